"""Figures and tables of a knowledge base from its plain files, worked out by hand."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from tcl.views import continual


def scores(conv: float, matmul: float, picked: str = "a") -> dict:
    by_task = {"00000000000000c0": conv, "00000000000000d0": matmul}
    mean = (conv + matmul) / 2
    return {"top1": mean, "by_operator": {"conv2d": conv, "matmul": matmul}, "by_task": by_task, "picked": dict.fromkeys(by_task, picked)}


def entry(platform: str, row: dict, **learned) -> dict:
    size = {"knowledge_base": 400_000, "column": 350_000, "model": 300_000, "head": 40_000}
    about = {"sources": {}, "nearest": None, "warning": "", "losses": [0.5, 0.4], "score": {"top1": 0.8}, "seconds": 1.0} | learned
    return {
        "platform": platform, "row": row, "learned": about, "consolidated": {"losses": [0.3], "seconds": 1.0}, "size_bytes": size,
        "data": {"measured": 100, "programs": 1000, "sampler": "rdu"},
    }  # fmt: skip


NAMES = ["k80", "mi50", "v100"]
FROM_K80 = {"nearest": "k80", "transfer": {"k80": {"top1": 0.5}}, "scratch": {"top1": 0.6}}
FROM_MI50 = {"nearest": "mi50", "scratch": {"top1": 0.9}}
HISTORY = [
    entry("k80", {"k80": scores(0.9, 0.6)}),
    entry("mi50", {"k80": scores(0.95, 0.6, "b"), "mi50": scores(0.7, 0.7)}, **FROM_K80),
    entry("v100", {"k80": scores(0.65, 0.62, "c"), "mi50": scores(0.7, 0.69), "v100": scores(0.8, 0.8)}, **FROM_MI50),
]


def test_r_is_lower_triangular_and_drawn():
    r = continual.matrix(NAMES, [h["row"] for h in HISTORY])
    np.testing.assert_allclose(r[np.tril_indices(3)], [0.75, 0.775, 0.7, 0.635, 0.695, 0.8])
    assert np.isnan(r[np.triu_indices(3, 1)]).all()
    figure = continual.r_figure(NAMES, r)
    assert figure.data[0].text[2] == ["0.635", "0.695", "0.800"] and figure.data[0].text[0][1] == ""


def test_the_worst_slice_is_measured_from_the_best_in_between():
    tasks = continual.drops(HISTORY, "by_task")
    worst = tasks.iloc[0]
    assert (worst["platform"], worst["slice"], worst["after"]) == ("k80", "00000000000000c0", "mi50")
    assert worst["drop"] == pytest.approx(0.3)
    assert (worst["program_then"], worst["program_now"]) == ("b", "c")
    operators = continual.drops(HISTORY, "by_operator")
    assert set(operators["platform"]) == {"k80", "mi50"}  # the last has nothing to lose yet
    assert operators["drop"].max() == pytest.approx(0.3)
    assert operators.set_index(["platform", "slice"]).loc[("k80", "matmul"), "drop"] == pytest.approx(-0.02)


def test_slices_show_loss_and_gain():
    heat = continual.slices_figure(HISTORY).data[0]
    assert heat.z[0][0] == pytest.approx(-0.3) and heat.z[0][1] == pytest.approx(0.02)
    assert heat.z[2][0] == 0 and "0.65" in heat.text[0][0]


def test_pairs_join_agreement_and_transfer():
    agreement = [
        {"a": "k80", "b": "mi50", "shared_programs": 40, "spearman": 0.8},
        {"a": "v100", "b": "k80", "shared_programs": 9, "spearman": -0.2},
    ]
    frame = continual.pairs(NAMES, agreement, HISTORY).set_index(["source", "target"])
    assert frame.loc[("k80", "mi50"), "gained"] == pytest.approx(0.2) and frame.loc[("k80", "mi50"), "verdict"] == "helped"
    assert frame.loc[("k80", "mi50"), "as_is"] == 0.5
    assert frame.loc[("mi50", "v100"), "verdict"] == "hurt"
    assert np.isnan(frame.loc[("k80", "v100"), "gained"]) and frame.loc[("k80", "v100"), "verdict"] == "would hurt"
    said = continual.warnings(frame.reset_index())
    assert len(said) == 2 and "would hurt" in said[0] and "lost 0.100" in said[1]
    assert continual.pairs(["k80"], [], []).empty
    assert continual.verdict(None) == "unknown: no shared programs"


def test_hurts_is_what_distilling_leaves_out():
    from tcl.continual.distill import Settings

    assert Settings().hurts_below == continual.HURTS


def test_ours_stays_and_joint_grows():
    frame = continual.growth(HISTORY).pivot_table(index="platforms", columns="method", values=["size_mb", "programs"])
    size, programs = frame["size_mb"], frame["programs"]
    ours, joint = "ours (knowledge base and column)", "joint (multi-task: trunk and a head each)"
    assert size[ours].tolist() == [0.75] * 3 and programs[ours].tolist() == [100] * 3
    np.testing.assert_allclose(size[joint], [0.3, 0.34, 0.38])
    assert programs[joint].tolist() == [100, 200, 300]
    assert len(continual.growth_figure(continual.growth(HISTORY)).data) == 8


def test_losses_of_the_history_and_of_a_running_job():
    live = [
        {"kind": "epoch", "platform": "a100", "phase": "learn", "epoch": e, "loss": 1.0 / e} for e in (1, 2, 2)
    ] + [{"kind": "epoch", "platform": "k80", "phase": "learn", "epoch": 1, "loss": 9.0}]  # fmt: skip
    frame = continual.losses(HISTORY, live)
    assert (frame["platform"] == "a100").sum() == 2  # an epoch done twice counts once
    assert frame[frame["platform"] == "k80"]["loss"].tolist() == [0.5, 0.4, 0.3]  # a finished platform: as it was kept
    assert len(continual.losses_figure(frame).data) == 7


def test_movement_marks_what_moved_most():
    random = np.random.default_rng(0)
    frame = pd.DataFrame(random.normal(size=(50, 5)), columns=["x_before", "y_before", "x_after", "y_after", "moved"])
    frame["moved"] = np.arange(50.0)
    figure = continual.movement_figure(frame, marked=3)
    assert [list(figure.data[i].customdata) for i in (1, 3)] == [[49, 48, 47]] * 2
    still = continual.movement_figure(frame.assign(moved=0.0), marked=3)
    assert len(still.data[1].customdata) == 0


def test_bench_result_for_people():
    result = {
        "summary": [
            {"method": "scratch", "rows": 6, "target_top1": 0.6, "target_top1_sd": 0.02, "worst_slice": None, "size_mb": 0.3},
            {"method": "ours", "rows": 6, "target_top1": 0.61, "target_top1_sd": 0.01, "worst_slice": 0.05, "size_mb": 0.75},
        ]
    }  # fmt: skip
    table = continual.bench_table(result)
    assert table["method"].tolist() == ["ours", "scratch"] and table["target's top-1"][0] == "0.610 ± 0.010"
    assert "no clear winner" in continual.bench_winner(result)
    assert "ours, 0.610" in continual.bench_winner(result)
    assert continual.bench_winner({}) == "No method has a result yet."
    assert continual.bench_worst(result) == ""
    result["summary"][-1]["worst_where"] = "avx2 matmul in avx2 > avx512, seed 0"
    assert continual.bench_worst(result) == "The worst slice of ours is avx2 matmul in avx2 > avx512, seed 0."


@pytest.mark.parametrize("text", ["", "{", "[]", '{"platforms": {}}'])
def test_what_is_no_knowledge_base_is_none(tmp_path, text):
    assert continual.read(tmp_path) is None
    (tmp_path / continual.CARD).write_text(text)
    assert continual.read(tmp_path) is None


def test_one_platform_has_no_losses_to_show(tmp_path):
    (tmp_path / continual.CARD).write_text(json.dumps({"platforms": {"k80": {}}, "history": HISTORY[:1]}))
    files = continual.read(tmp_path)
    assert files.names == ["k80"] and files.summary == {} and files.movement(1) is None
    assert continual.drops(files.history, "by_task").empty
    continual.slices_figure(files.history)
