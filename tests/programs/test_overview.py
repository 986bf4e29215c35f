"""Tables for the Data page against counts made by hand."""

import numpy as np
import pytest

from tcl.programs import overview
from tcl.programs.dataset import Dataset
from tcl.programs.types import Measurement, Platform, Program, Task
from tcl.programs.writer import Writer
from tests.views.conftest import fill

A, B = Task("a", "conv2d", "ansor", '["a"]', (2, 3)), Task("b", "matmul", "ansor", '["b"]', (4, 5))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """Task a: four programs, x ranks them 1 2 3 4, y 2 1 3 4 (one fails on y). Task b: on x only."""
    made = Dataset.create(tmp_path_factory.mktemp("overview") / "d")
    programs = [Program(A.id, f"[{i}]") for i in range(5)]
    other = Program(B.id, "[]")
    rows = [Measurement(p.id, A.id, "x", (float(i + 1),)) for i, p in enumerate(programs)]
    rows += [Measurement(p.id, A.id, "y", (c,)) for p, c in zip(programs, (2.0, 1.0, 3.0, 4.0), strict=False)]
    rows += [Measurement(programs[4].id, A.id, "y", (), "run_error"), Measurement(other.id, B.id, "x", (), "build_error")]
    rows += [Measurement(programs[0].id, A.id, "x", (0.5,))]
    with Writer(made) as writer:
        for name in ("x", "y"):
            writer.add_platform(Platform(name))
        writer.add_tasks([A, B])
        writer.add_programs([*programs, other])
        writer.add_measurements(rows)
    return made


def test_counts(dataset):
    frame = overview.counts(dataset).set_index(["platform", "name"])
    assert frame.loc[("x", "a"), ["programs", "measurements", "failures", "best_latency_s"]].tolist() == [5, 6, 0, 0.5]
    assert frame.loc[("y", "a"), ["programs", "measurements", "failures", "best_latency_s"]].tolist() == [5, 5, 1, 1.0]
    assert np.isnan(frame.loc[("x", "b"), "best_latency_s"])
    matrix = overview.count_matrix(dataset)
    assert matrix.loc["x"].to_dict() == {"conv2d": 6, "matmul": 1} and matrix.loc["y", "matmul"] == 0


def test_failures(dataset):
    frame = overview.failures(dataset)
    assert frame.to_dict("records") == [
        {"platform": "x", "error": "build_error", "count": 1, "share": 1 / 7},
        {"platform": "y", "error": "run_error", "count": 1, "share": 1 / 5},
    ]
    assert overview.failures(dataset, by="operator")["operator"].tolist() == ["conv2d", "matmul"]


def test_without_failures_their_table_is_empty(tmp_path):
    frame = overview.failures(fill(tmp_path / "data", programs_a_task=1, tasks=1, failing=0.0, unmeasured=0.0))
    assert frame.empty and frame.columns.tolist() == ["platform", "error", "count", "share"]


def test_latency_distribution(dataset):
    row = overview.latency_distribution(dataset, ["y"]).iloc[0]
    assert (row["min_s"], row["median_s"], row["max_s"], row["spread"], row["programs"], row["failures"]) == (1.0, 2.5, 4.0, 2.5, 5, 1)


def test_shared(dataset):
    frame = overview.shared(dataset, "x", "y").set_index("name")
    row = frame.loc["a"]
    assert (row["programs_a"], row["programs_b"], row["shared_programs"]) == (5, 5, 4)
    assert row["spearman"] == pytest.approx(0.8) and row["best_of_a_on_b"] == pytest.approx(0.5)
    assert frame.loc["b", ["programs_a", "programs_b", "shared_programs"]].tolist() == [1, 0, 0]
    summary = overview.shared_summary(dataset).iloc[0]
    assert (summary["shared_tasks"], summary["shared_programs"]) == (1, 4) and summary["spearman"] == pytest.approx(0.8)
