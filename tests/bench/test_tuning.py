"""`tcl bench tuning`: a small run, and goals that count what was not reached."""

from __future__ import annotations

import pytest

from tcl.bench.priors import without
from tcl.bench.tuning import BASELINE, Curve, goals, in_turns, run, schedule_of
from tcl.programs.dataset import Dataset
from tcl.progress import Progress
from tcl.tuning.tune import tune
from tcl.workspace import BUILT_IN


@pytest.mark.tvm
def test_a_small_run(tmp_path, monkeypatch):
    how = {
        "progress": Progress(), "methods": ("random/random", "decisions/random"), "operators": ("matmul:32,32,32",), "networks": (),
        "trials": 6, "seeds": 1, "rivals": ("pytorch",), "cells": str(tmp_path),
    }  # fmt: skip
    late = run(**how, time_limit_s=-1)
    assert late["rows"] == [] and late["missing"] == 1
    result = run(**how)
    monkeypatch.setattr("tcl.bench.tuning._cell", None)  # a finished cell is read
    assert run(**how)["rows"] == result["rows"]
    assert [r["method"] for r in result["rows"]] == ["random/random", "decisions/random"]
    for row in result["rows"]:
        assert row["measured"] + row["failed"] == 6 and row["best_ms"] > 0 and row["correct"]
        assert row["pytorch_ms"] == result["rows"][0]["pytorch_ms"] > 0  # timed once
        assert row["curve"][-1][1] * 1e3 == pytest.approx(min(b for _, b in row["curve"]) * 1e3)
    assert result["rows"][1]["scored"] > 1000


@pytest.mark.tvm
def test_the_last_measurement_is_of_each_methods_program(tmp_path):
    result = tune("matmul:32,32,32", trials=6, out=tmp_path / "out", model="random", export=False, rivals=())
    best = schedule_of(tmp_path / "out", result["best_program"])
    again = in_turns("matmul:32,32,32", {"a": best, "b": "not a trace", "c": best})
    assert again.keys() == {"a", "c"} and again["a"] == again["c"] > 0  # one program is measured once; what cannot run has no latency
    assert in_turns("resnet18", {}) == {}


def test_a_curve_says_when_a_latency_was_reached():
    curve = Curve()
    curve.event("phase", name="search", task="")
    for best in (None, 3e-3, 2e-3, 1e-3):
        curve.event("measured", best_s=best)
    assert curve.reaches(2e-3) == curve.points[1][0] and curve.reaches(1e-4) is None


def test_a_method_that_never_got_there_lowers_the_median():
    def row(method, best, times, seed):
        return {"subject": "x", "seed": seed, "method": method, "best_ms": best, "scored_per_s": 3e4, "times_faster": times}

    rows = [row(BASELINE, 1.0, 1.0, s) for s in range(3)]
    rows += [row("decisions/xgb", b, t, s) for s, (b, t) in enumerate([(0.5, 20.0), (2.0, None), (1.5, None)])]
    found = {g["name"]: g for g in goals(rows)}
    assert found["decisions/xgb: the same, floor"]["value"] == 0.0 and not found["decisions/xgb: the same, floor"]["met"]
    assert found["decisions/xgb: the same, worst"]["value"] == 2.0 and not found["decisions/xgb: the same, worst"]["met"]
    assert found["candidates scored per second, median"]["met"]


@pytest.mark.tvm
def test_a_prior_never_saw_what_is_tuned():
    dataset = Dataset.open(BUILT_IN)
    tasks = dataset.tasks()
    one = tasks[tasks["name"] == "matmul:256,256,256"].iloc[0]
    split = without(dataset, ["matmul:256,256,256", "softmax:7,9"])
    held_out = {task for task, side in split.sides.items() if side == "test"}
    assert held_out == set(tasks.loc[tasks["group"] == one["group"], "task"])
    assert set(split.sides) == set(tasks["task"]) and split.count()["train"] > 80
