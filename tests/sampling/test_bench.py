"""The benchmark's arithmetic, and a small run of it that is stopped and goes on."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tcl.bench.sampling import compare, goals, run, summarise
from tcl.programs.dataset import Dataset
from tcl.programs.types import Measurement, Platform, Program, Task
from tcl.programs.writer import Writer


def cell(platform, seed, scores):
    return {"platform": platform, "seed": seed, "assignment_scores": {t: [s, s, s] for t, s in scores.items()}}


def test_the_paired_bootstrap_sees_a_difference_and_none():
    rng = np.random.default_rng(0)
    tasks = [f"t{i}" for i in range(40)]
    theirs = [cell("a", s, {t: rng.random() for t in tasks}) for s in range(3)]
    better = [cell("a", c["seed"], {t: v[0] + 0.1 + 0.1 * rng.normal() for t, v in c["assignment_scores"].items()}) for c in theirs]
    gain, low, high, p = compare(better, theirs, 0)
    assert gain == pytest.approx(0.1, abs=0.03)
    assert low < gain < high
    assert p < 0.01
    same = [cell("a", c["seed"], {t: v[0] + 0.1 * rng.normal() for t, v in c["assignment_scores"].items()}) for c in theirs]
    assert 0.01 < compare(same, theirs, 0)[3] < 0.99
    assert compare(theirs, [None] * 3, 0) == (None, None, None, None)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench") / "data"
    rng = np.random.default_rng(0)
    with Writer(Dataset.create(folder)) as writer:
        writer.add_platform(Platform("a"))
        for t in range(8):
            task = Task(f"matmul {t}", "matmul", "autotvm", f"matmul {t}", extents=(64, 64, 2**t), flops=2.0 * 64 * 64 * 2**t)
            writer.add_tasks([task])
            for i in range(60):
                x, y = (int(v) for v in 2 ** rng.integers(0, 6, 2))
                program = Program(task.id, json.dumps([["tile_x", "sp", [-1, x]], ["tile_y", "sp", [-1, y]], ["unroll", "ot", i]]))
                writer.add_programs([program])
                writer.add_measurements([Measurement(program.id, task.id, "a", (1e-3 * (1 + x + 0.1 * y),))])
    return folder


def test_a_run_that_is_stopped_goes_on_from_its_cells(dataset, tmp_path):
    def bench(**more):
        return run(
            data=str(dataset), operators=["matmul"], samplers=["random", "rdu", "rdu-u"], fractions=[0.1], seeds=2, model="xgb",
            model_settings={"trees": 20, "depth": 3}, rounds=2, cells=str(tmp_path), **more,
        )  # fmt: skip

    first = bench(time_limit_s=1e-9)
    assert first["cells"] == 0
    whole = bench()
    assert whole["cells"] == whole["of"] == 8
    files = {p: p.stat().st_mtime_ns for p in tmp_path.glob("*.json")}
    assert len(files) == 8
    again = bench()
    assert {p: p.stat().st_mtime_ns for p in tmp_path.glob("*.json")} == files
    assert again["rows"] == whole["rows"]
    assert summarise([json.loads(path.read_text()) for path in sorted(files, key=str, reverse=True)]) == whole["rows"]
    rows = {r["sampler"]: r for r in whole["rows"]}
    assert rows["random"]["top1_gain"] == 0.0
    assert rows["all"]["regret"] == 0.0
    assert 0 < rows["rdu"]["top1_mean"] <= 1
    assert {g["name"].split(" ")[0] for g in whole["goals"]} >= {"RDU's", "p", "top-1", "share"}
    # Every selection has exactly its share of the training part.
    for path in files:
        one = json.loads(path.read_text())
        assert one["programs"] == (one["pool"] if one["sampler"] == "all" else round(0.1 * one["pool"]))


def test_a_share_of_which_nothing_can_be_learned_is_counted_not_fatal(dataset, tmp_path):
    """1 % of 60 programs a task is less than the two that a ranking needs."""
    result = run(
        data=str(dataset), operators=["matmul"], samplers=["random"], fractions=[0.01, 0.2], seeds=1, model="mlp", trainer={"epochs": 1},
        rounds=1, cells=str(tmp_path),
    )  # fmt: skip
    assert [(r["sampler"], r["fraction"]) for r in result["rows"]] == [("random", 0.2), ("all", 1.0)]
    (left_out,) = result["skipped"]
    assert (left_out["platform"], left_out["fraction"], left_out["cells"]) == ("a", 0.01, 1)
    assert "two programs" in left_out["why"]


def test_how_much_can_be_pruned():
    def row(sampler, fraction, lost):
        return {"sampler": sampler, "fraction": fraction, "pairwise_lost": lost, "top1_mean": 0.5, "share_of_all": 0.9, "top1_p": 0.5}

    rows = [row("rdu", 0.1, 0.02), row("rdu", 0.2, 0.004), row("rdu", 0.5, 0.001), row("random", 0.1, 0.03), row("random", 0.5, 0.01)]
    pruned = {g["name"].split()[2]: g["value"] for g in goals([*rows, row("all", 1.0, 0.0)]) if "prune" in g["name"]}
    assert pruned == {"rdu": 0.8, "random": 0.0}  # none of what was measured of random is good enough
    unknown = [r | {"pairwise_lost": None} for r in rows]
    assert {g["value"] for g in goals([*unknown, row("all", 1.0, 0.0)]) if "prune" in g["name"]} == {None}
