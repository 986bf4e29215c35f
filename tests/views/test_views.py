"""Figures from plain data: what they must show, whatever the data's shape."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from tcl.errors import UserError
from tcl.features.map import EVERYTHING, make_map, task_scope
from tcl.programs.selection import save_selection
from tcl.programs.types import format_id
from tcl.views import explore, palette, tuning
from tcl.views.explore import COLORS, explore_frame, latency_histogram, map_figure, map_picture, parameter, parameters, within
from tcl.views.program import latency_rows, program_details
from tcl.views.schedule import difference, steps_of
from tests.views.conftest import fill


@pytest.fixture
def dataset(tmp_path):
    """Few enough programs that their map needs no UMAP."""
    return fill(tmp_path / "few", programs_a_task=9)


def test_frame_tells_sampled_from_unsampled(dataset):
    made = make_map(dataset)
    frame = explore_frame(dataset, EVERYTHING, "avx2", made)
    assert len(frame) == len(dataset.programs(["program"]))
    measured = set(dataset.measurements(["program", "platform"], platforms=["avx2"])["program"])
    assert set(frame.loc[frame["sampled"], "program"]) == measured
    assert 0 < len(measured) < len(frame)
    best = frame.groupby("task", observed=True)["label"].max()
    assert (best == 1.0).all()
    failed = frame["error"] != ""
    assert failed.any() and frame.loc[failed, "latency_s"].isna().all()
    both = frame["platforms"].astype(str).str.contains("avx2 \\+ avx512")
    assert both.any()


def test_frame_of_a_selection(dataset):
    made = make_map(dataset)
    chosen = dataset.programs(["program"]).head(7).assign(round=0)
    save_selection(dataset, "mine", chosen, {"sampler": "test"})
    frame = explore_frame(dataset, EVERYTHING, "avx2", made, "mine")
    assert frame["sampled"].sum() == 7


@pytest.mark.parametrize("color", COLORS)
def test_map_shows_every_program_once(dataset, color):
    frame = explore_frame(dataset, EVERYTHING, "avx2", make_map(dataset))
    figure = map_figure(frame, color)
    rows = np.concatenate([trace.customdata for trace in figure.data])
    assert sorted(rows) == list(range(len(frame)))
    json.loads(figure.to_json())


def test_map_by_a_parameter(dataset):
    task = int(dataset.tasks()["task"][0])
    scope = task_scope(task)
    frame = explore_frame(dataset, scope, "avx2", make_map(dataset, scope))
    programs = frame["program"].to_numpy()
    known = parameters(dataset, programs)
    assert "split 1: factor 1" in known
    values = parameter(dataset, programs, known["split 1: factor 1"])
    schedules = dataset.programs(["program", "schedule"], tasks=[task]).set_index("program")["schedule"]
    tiles = [json.loads(schedules[p])[0][4][0] for p in programs]
    assert np.allclose(values, tiles)
    assert map_figure(frame, "split 1: factor 1", values).data
    with pytest.raises(UserError):
        map_picture(dataset, scope, color="the weather")


def test_picture_needs_a_map(dataset):
    with pytest.raises(UserError, match="no map"):
        map_picture(dataset)


@pytest.mark.parametrize("settings", [{"failing": 1.0}, {"programs_a_task": 1, "tasks": 1, "unmeasured": 0.0}, {"unmeasured": 1.0}])
def test_odd_data(tmp_path, settings):
    dataset = fill(tmp_path / "odd", **{"programs_a_task": 9} | settings)
    frame = explore_frame(dataset, EVERYTHING, "avx2", make_map(dataset))
    for color in COLORS:
        figure = map_figure(frame, color)
        assert sum(len(trace.customdata) for trace in figure.data) == len(frame)
    latency_histogram(frame, frame.head(1))


def test_within():
    x, y = np.array([0.0, 1.0, 2.0, np.nan]), np.array([0.0, 1.0, 2.0, 0.0])
    assert within([{"box": [1.5, 0.5, 0.5, 1.5]}], x, y).tolist() == [False, True, False, False]
    assert within([{"lasso": [[-1, -1], [3, -1], [3, 1.5]]}], x, y).tolist() == [False, False, False, False]
    assert within([{"lasso": [[-1, -1], [3, -1], [-1, 3]]}], x, y).tolist() == [True, False, False, False]
    assert within([{"lasso": [[0, 0], [1, 1]]}], x, y).sum() == 0
    rng = np.random.default_rng(0)
    px, py = rng.uniform(-2, 2, (2, 5000))
    circle = [[np.cos(a), np.sin(a)] for a in np.linspace(0, 2 * np.pi, 200, endpoint=False)]
    radius = np.hypot(px, py)
    found = within([{"lasso": circle}], px, py)
    assert found[radius < 0.99].all() and not found[radius > 1].any()


def test_ansor_steps_name_their_loops():
    splits, rest = '["SP",2,0,128,[1,4,2],1],["SP",2,4,64,[8],1]', '["FU",2,[0,1]],["AN",2,0,3],["PR",2,0,"auto_unroll_max_step$64"]'
    schedule = f'[{splits},["RE",2,[0,4,1,5,2,3]],{rest}]'
    texts = [s.text for s in steps_of(schedule, "ansor", "matmul", (128, 64, 32))]
    assert texts[0] == "stage 2: split i (128) into 16 × 1 × 4 × 2"
    assert texts[1] == "stage 2: split j (64) into 8 × 8"
    assert texts[2] == "stage 2: reorder to i.0, j.0, i.1, j.1, i.2, i.3"
    assert texts[3] == "stage 2: fuse i.0, j.0"
    assert texts[4] == "stage 2: parallel i.0·j.0"
    assert texts[5] == "stage 2: unroll up to 64 steps inside i.0·j.0"


def test_metaschedule_steps_show_their_decisions():
    trace = [
        [
            ["GetSBlock", [], ["matmul", "main"], ["b0"]],
            ["GetLoops", ["b0"], [], ["l1", "l2", "l3"]],
            ["SamplePerfectTile", ["l1"], [2, 64], ["v4", "v5"]],
            ["Split", ["l1", "v4", "v5"], [1, 0], ["l6", "l7"]],
            ["Fuse", ["l6", "l2"], [1], ["l8"]],
            ["SampleCategorical", [], [[0, 16, 64], [0.3, 0.3, 0.4]], ["v9"]],
            ["Annotate", ["b0", "v9"], ["meta_schedule.unroll_explicit"], []],
            ["EnterPostproc", [], [], []],
            ["Unroll", ["l7"], [], []],
        ],
        [[2, [32, 8]], [5, 1]],
    ]
    texts = [s.text for s in steps_of(json.dumps(trace), "metaschedule", "matmul", (256, 256, 256))]
    assert texts == ["split i (256) into 32 × 8", "fuse i.0, j", "annotate matmul with unroll explicit 16"]


def test_a_schedule_that_is_not_one_is_shown_as_it_is():
    for text, format in (("{]", "ansor"), ("[[1]]", "ansor"), ('{"a": 1}', "metaschedule"), ("[]", "unheard-of")):
        (step,) = steps_of(text, format)
        assert step.text == text


def test_difference_marks_decisions_and_missing_steps():
    a = steps_of('[["SP",0,0,64,[4],1],["AN",0,0,3]]', "ansor", "", (64,))
    b = steps_of('[["SP",0,0,64,[8],1],["AN",0,0,3],["PR",0,0,"auto_unroll_max_step$16"]]', "ansor", "", (64,))
    table = difference(a, b)
    assert table["change"].tolist() == ["differs", "", "right only"]
    assert "16 × 4" in table["left"][0] and "8 × 8" in table["right"][0]


def test_program_details(dataset):
    frame = explore_frame(dataset, EVERYTHING, "avx2", None)
    program = int(frame[frame["latency_s"].notna()]["program"].iloc[0])
    details = program_details(dataset, program)
    assert details["id"] == format_id(program)
    row = next(m for m in details["measurements"] if m["platform"] == "avx2")
    assert row["low_s"] <= row["latency_s"] <= row["high_s"] and row["repeats"] == 3
    assert row["gflops"] == pytest.approx(details["flops"] / row["latency_s"] / 1e9)
    assert len(explore.platform_figure(latency_rows([details])).data) == 1
    with pytest.raises(UserError, match="holds no program"):
        program_details(dataset, 1)


def events(latencies, tasks=("a",)):
    found = [{"kind": "task", "t": 0, "task": t, "name": t, "weight": 2.0 if t == "b" else 1.0, "trials": 0, "best_s": None} for t in tasks]
    for i, latency in enumerate(latencies):
        task = tasks[i % len(tasks)]
        found.append({"kind": "measured", "t": float(i), "task": task, "latency_s": latency, "error": "" if latency else "run_timeout"})
    return found


def test_tuning_of_one_task():
    frame = tuning.measured(events([3e-3, None, 1e-3, 2e-3]))
    assert tuning.best_so_far(frame).tolist() == [3e-3, 3e-3, 1e-3, 1e-3]
    assert tuning.failures(frame) == {"run_timeout": 1}
    assert tuning.per_minute(frame) == 60.0
    for against in ("trials", "seconds"):
        figure = tuning.best_figure(frame, against, {"untuned": 5e-3, "PyTorch": None})
        (line,), (label,) = figure.layout.shapes, figure.layout.annotations
        assert line.y0 == pytest.approx(5.0) and label.y == pytest.approx(np.log10(5.0))  # ms, on a log axis


def test_tuning_of_a_network_sums_weighted_bests():
    recorded = events([4e-3, 1e-3, 2e-3, 3e-3], tasks=("a", "b"))
    frame = tuning.measured(recorded)
    weights = dict(zip(*tuning.tasks(recorded)[["task", "weight"]].T.to_numpy(), strict=True))
    best = tuning.best_so_far(frame, weights)
    assert np.isnan(best[0])
    assert best.tolist()[1:] == pytest.approx([4e-3 + 2 * 1e-3, 2e-3 + 2 * 1e-3, 2e-3 + 2 * 1e-3])


def test_tuning_of_nothing():
    frame = tuning.measured([])
    assert tuning.per_minute(frame) == 0.0
    tuning.best_figure(frame).to_json()
    tuning.best_figure(tuning.measured(events([None, None]))).to_json()


def test_units():
    assert palette.unit_of(pd.Series([2e-4, np.nan, 3e-4]).to_numpy()) == (1e6, "µs")
    assert palette.latency_text(2.26e-4) == "226 µs"
    assert palette.latency_text(float("nan")) == "failed"
    places, texts = palette.log_ticks(1e-4, 1e-1)
    assert len(places) == len(texts) <= 10 and texts[0] == "100 µs"
