"""`tcl bench tuning`: a small run, and goals that count what was not reached."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tcl.bench.priors import without
from tcl.bench.tuning import BASELINE, Curve, goals, in_turns, run, schedules_of
from tcl.errors import UserError
from tcl.programs.dataset import Dataset
from tcl.progress import Progress
from tcl.tuning.pace import at_one_pace
from tcl.tuning.tune import tune
from tcl.workspace import BUILT_IN


@pytest.mark.tvm
def test_a_small_run(tmp_path, monkeypatch):
    how = {
        "progress": Progress(), "methods": ("random/random", "decisions/random"), "operators": ("matmul:32,32,32",), "networks": (),
        "trials": 6, "seeds": 1, "rivals": ("pytorch",), "cells": str(tmp_path),
    }  # fmt: skip
    monkeypatch.setattr("tcl.bench.tuning.RIVAL_TURNS", 1)
    late = run(**how, time_limit_s=-1)
    assert late["rows"] == [] and late["missing"] == 1
    result = run(**how)
    monkeypatch.setattr("tcl.bench.tuning._cell", None)  # a finished cell is read
    assert run(**how)["rows"] == result["rows"]
    (tmp_path / "result.json").write_text(json.dumps(result))
    elsewhere = {**how, "cells": str(tmp_path / "elsewhere"), "time_limit_s": -1, "resume": str(tmp_path / "result.json")}
    assert run(**elsewhere)["rows"] == result["rows"]  # so is one that an earlier result holds
    assert run(**{**elsewhere, "cells": str(tmp_path / "more"), "trials": 7})["missing"] == 1
    (tmp_path / "result.json").write_text('{"bench": "scan", "rows": []}')
    with pytest.raises(UserError, match="no result of this benchmark"):
        run(**elsewhere)
    assert [r["method"] for r in result["rows"]] == ["random/random", "decisions/random"]
    for row in result["rows"]:
        assert row["measured"] + row["failed"] == 6 and row["best_ms"] > 0 and row["correct"]
        assert row["pytorch_ms"] == result["rows"][0]["pytorch_ms"] > 0  # timed once
        assert row["curve"][-1][1] * 1e3 == pytest.approx(row["best_ms"], abs=1e-6)
    assert result["rows"][1]["scored"] > 1000


@pytest.mark.tvm
def test_the_last_measurement_is_of_each_methods_program(tmp_path):
    curve = Curve()
    result = tune("matmul:32,32,32", trials=6, out=tmp_path / "out", model="random", export=False, rivals=(), progress=curve)
    assert len(curve.holders) == len(curve.points) and curve.holders[-1]
    schedules = schedules_of(tmp_path / "out", [*curve.holders, result["best_program"]])
    assert schedules.keys() == {*curve.holders, result["best_program"]}
    best = schedules[result["best_program"]]
    again = in_turns("matmul:32,32,32", {"a": best, "b": "not a trace", "c": best})
    assert again.keys() == {"a", "c"} and again["a"] == again["c"] > 0  # one program is measured once; what cannot run has no latency
    assert in_turns("matmul:32,32,32", {}) == {}


def test_turns_are_told_at_one_pace():
    slow, nan = 2.0, np.nan
    turns = np.array([[1.0, 1.1, nan, nan], [1.0 * slow, 1.1 * slow, 3.0 * slow, nan], [1.0, 1.1, 3.0, nan]])
    assert at_one_pace(turns) == pytest.approx([1.0, 1.1, 3.0, nan], nan_ok=True)
    assert at_one_pace(np.array([[nan, 2.0], [1.0, nan]])) == pytest.approx([1.0, 2.0])  # none ran every time


def _curve(weights, *measured):
    """A curve that was told of programs "p0", "p1", …: (task, latency, best of its task)."""
    curve = Curve()
    for task, weight in weights.items():
        curve.event("task", task=task, weight=weight)
    curve.event("phase", name="search", task="")
    for at, (task, latency, best) in enumerate(measured):
        curve.event("measured", task=task, latency_s=latency, best_s=best, program=f"p{at}")
    return curve


def test_a_curve_says_when_a_latency_was_reached():
    # the second and the third were measured together: both tell the best after their batch
    curve = _curve({"a": 1}, ("a", None, None), ("a", 3e-3, 2e-3), ("a", 2e-3, 2e-3), ("a", 1e-3, 1e-3), ("a", 2e-3, 1e-3))
    assert [best for _, best in curve.points] == [2e-3, 1e-3] and curve.holders == ["p2", "p3"]
    assert curve.reaches(2e-3) == curve.points[0][0] and curve.reaches(1e-4) is None
    assert curve.ended > curve.points[-1][0]


def test_a_curve_measured_again_is_of_the_programs_that_looked_best():
    curve = _curve({"a": 1}, ("a", 3e-3, 3e-3), ("a", 2e-3, 2e-3), ("a", 1e-3, 1e-3))
    again = curve.measured_again({"p0": 4e-3, "p2": 1.5e-3, "p1": 1.2e-3}, last="p1")  # luck had made p2 the fastest
    assert [best for _, best in again.points] == [4e-3, 1.2e-3, 1.5e-3, 1.2e-3]
    assert again.reaches(1.2e-3) == curve.points[1][0] and again.points[-1][0] == again.ended == curve.ended
    assert [best for _, best in curve.measured_again({"p0": 4e-3}, last="p1").points] == [4e-3]


def test_a_networks_curve_is_the_sum_over_its_tasks():
    curve = _curve({"a": 2, "b": 1}, ("a", 5e-3, 5e-3), ("b", None, None), ("b", 1e-3, 1e-3), ("a", 3e-3, 3e-3), ("b", 2e-3, 1e-3))
    assert [best for _, best in curve.points] == pytest.approx([11e-3, 7e-3])


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
