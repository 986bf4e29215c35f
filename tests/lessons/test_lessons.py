"""What lessons say follows from their data: other data, other answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tcl.jobs.replay import play
from tcl.lessons import LESSONS, forgetting, loops, mistakes, tenth, tuning
from tcl.lessons.question import Question, how_much, which
from tcl.progress import Progress
from tcl.views.lessons import loop_nest, picks_figure, steps_figure
from tests.views.conftest import fill

SCRIPT = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((8, 4), "float32"), C: T.Buffer((8,), "float32")):
    T.func_attr({"tirx.noalias": True})
    for i_0 in T.parallel(2):
        for i_1, k in T.grid(4, 4):
            with T.sblock("C"):
                v_i = T.axis.spatial(8, i_0 * 4 + i_1)
                v_k = T.axis.reduce(4, k)
                T.reads(A[v_i, v_k])
                T.writes(C[v_i])
                C[v_i] = C[v_i] + A[v_i, v_k]
    for i in range(8):
        for j in T.vectorized(1):
            with T.sblock("D"):
                v_i, v_j = T.axis.remap("SR", [i, j])
                with T.init():
                    C[v_i] = T.float32(0.0)
                C[v_i] = C[v_i] * A[v_i, v_j]
"""


def test_a_script_becomes_its_loops():
    assert loop_nest(SCRIPT) == "\n".join([
        "for i_0 in parallel(2):",
        "    for i_1 in range(4):",
        "        for k in range(4):",
        "            C[i_0 * 4 + i_1] += A[i_0 * 4 + i_1, k]",
        "for i in range(8):",
        "    for j in vectorized(1):",
        "        if j == 0: C[i] = 0",
        "        C[i] = C[i] * A[i, j]",
    ])  # fmt: skip
    assert loop_nest("") == ""


def test_a_question_has_its_answer_among_its_options():
    assert how_much("?", 15.0, (10, 20), "").right == "10 to 20"
    assert how_much("?", 20.0, (10, 20), "").right == "20 or more"
    assert how_much("?", 1.0, (10, 20), "", "{:g} %").right == "less than 10 %"
    assert which("?", ["a", "b"], "b", "").answer == 1
    with pytest.raises(ValueError):
        Question("?", ("a", "a"), 0, "")
    with pytest.raises(ValueError):
        Question("?", ("a",), 1, "")


def test_every_measured_step_computes_the_same():
    steps = loops.load()
    assert steps.rows["error"].max() < 1e-5 and (steps.rows["latency_s"] <= steps.rows["median_s"]).all()
    assert steps.rows["script"].nunique() == len(steps.rows)  # each move changes the program
    assert all("for " in loop_nest(script) for script in steps.rows["script"])


def test_other_latencies_give_other_answers():
    steps = loops.load()
    rows = steps.rows.copy()
    order = rows["latency_s"].to_numpy().copy()
    right = np.flatnonzero(~rows["wrong"].to_numpy())
    order[right] = np.geomspace(1.0, 0.9, len(right))  # now the last move, halved again, is the best one
    order[right[-1]] /= 2
    rows["latency_s"] = order
    rows["gain"] = [1.0, *(order[max(j for j in right if j < i)] / order[i] for i in range(1, len(rows)))]
    changed = loops.questions(replace(steps, rows=rows))
    assert changed[0].right == rows["name"].iloc[right[-1]] != loops.questions(steps)[0].right
    assert changed[1].right == "less than 10"
    assert loops.guess(replace(steps, rows=rows), int(right[-1])).answer == 0
    assert loops.guess(replace(steps, rows=rows), int(right[2])).answer == 2


def test_the_steps_figure_shows_no_more_than_was_revealed():
    steps = loops.load()
    figure = steps_figure(steps.rows, 3)
    assert len(figure.data[0].x) == 3 and len(figure.layout.yaxis.categoryarray) == len(steps.rows)
    assert "slower" in figure.data[0].text[2]


def test_a_selection_is_judged_by_what_it_tells(tmp_path):
    dataset = fill(tmp_path / "data")
    one = tenth.load(dataset, task="matmul 64", platform="avx2")
    n = len(one.frame)
    assert one.budget == round(0.1 * n) and one.frame["latency_s"].notna().all() and np.isfinite(one.frame["x"]).all()
    best = int(one.frame["latency_s"].idxmin())
    assert tenth.told(one, np.array([best])).regret == 0.0
    few, most = tenth.told(one, np.array([0, 1])), tenth.told(one, np.arange(n - 3))
    assert most.distance < few.distance and most.spearman != few.spearman
    picked = tenth.picked_by_rdu(one, 1)
    assert len(set(picked)) == one.budget and not np.array_equal(picked, tenth.picked_by_rdu(one, 2))
    figure = picks_figure(one.frame, {"yours": np.array([], dtype=int), "RDU's": picked}, latencies=True)
    assert [t.name for t in figure.data] == [f"programs ({n})", f"RDU's ({one.budget})"]
    table = tenth.table(one, {"RDU": picked}, tenth.draws(one, n=5))
    assert table.loc["RDU", "picked"] == one.budget


def test_a_perfect_model_makes_no_mistakes():
    models = mistakes.both()
    found = models["mlp"]
    perfect = found.predictions.assign(prediction=-found.predictions["latency_s"].fillna(np.inf))
    assert mistakes.rank_errors(replace(found, predictions=perfect))["error"].max() < 1e-9
    assert mistakes.rank_errors(found)["error"].mean() > 0.05
    table = found.assignments.assign(picked_s=found.assignments["best_s"])
    assert mistakes.questions("mlp", replace(found, assignments=table, predictions=perfect))[0].answer == 0
    better = replace(found, scores=found.scores | {"top1_mean": 1.0, "top5_mean": 1.0, "pairwise": 1.0})
    first, five = mistakes.compared(models | {"mlp": better})
    assert first.right.startswith("yes") and five.right == "mlp"
    assert mistakes.compared(models)[0].right.startswith("no")  # what was measured


def test_the_two_runs_differ_in_protection_only():
    runs = forgetting.load()
    assert [f.history[0]["learned"]["score"]["top1"] for f in runs.values()] == pytest.approx([0.637] * 2, abs=1e-3)
    free, kept = (forgetting.matrix(f) for f in runs.values())
    assert abs(forgetting.change(runs["protected"])) < 1e-9 and forgetting.change(runs["unprotected"]) < -0.01
    assert np.isnan(free[0, 1:]).all() and free.shape == kept.shape == (3, 3)


def test_the_recording_plays_to_its_end():
    class Heard(Progress):
        def __init__(self) -> None:
            self.events: list[dict] = []

        def event(self, kind: str, **data) -> None:
            self.events.append({"kind": kind, **data})

    heard, run = Heard(), tuning.load()
    assert play(tuning.FOLDER, heard, 1e6) == run.result
    measured = [e["latency_s"] for e in heard.events if e["kind"] == "measured"]
    assert measured == run.frame["latency_s"].tolist() and len(measured) == run.result["measured"] == 64


def test_no_asset_tells_where_it_was_made():
    from tcl.lessons import DATA, RECORDED

    for path in [*DATA.rglob("*.json"), *RECORDED.rglob("*.json*")]:
        assert not any(word in path.read_text() for word in ('"/', "/tmp/", "/home/")), path


def test_ten_minutes_in_all():
    assert sum(lesson.minutes for lesson in LESSONS.values()) <= 10
    assert pd.Series([lesson.notebook for lesson in LESSONS.values()]).is_unique
