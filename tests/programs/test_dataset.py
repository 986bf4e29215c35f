"""The dataset on disk: commits are whole, reading sees commits only, nothing is written twice."""

from __future__ import annotations

import numpy as np
import pytest

from tcl.errors import UserError
from tcl.programs.dataset import Dataset
from tcl.programs.types import Measurement, NetworkUse, Platform, Program, Task, format_id, parse_id
from tcl.programs.writer import Writer

TASK = Task("matmul 4x4x4", "matmul", "ansor", '["matmul",4,4,4]', (4, 4, 4), 128.0, 192.0)


def fill(dataset: Dataset, costs: list[float | None], platform: str = "a") -> None:
    with Writer(dataset) as writer:
        writer.add_platform(Platform(platform))
        writer.add_tasks([TASK])
        programs = [Program(TASK.id, f"[{i}]") for i in range(len(costs))]
        writer.add_programs(programs)
        writer.add_measurements(
            Measurement(p.id, TASK.id, platform, () if c is None else (c,), "" if c else "build_error")
            for p, c in zip(programs, costs, strict=True)
        )


def test_counts_and_labels(tmp_path):
    dataset = Dataset.create(tmp_path / "d")
    fill(dataset, [1.0, 2.0, None])
    stats = Dataset.open(tmp_path / "d").stats()
    assert (stats["tasks"], stats["programs"], stats["measurements"], stats["failures"]) == (1, 3, 3, 1)
    assert stats["by_operator"] == {"matmul": {"tasks": 1, "programs": 3, "measurements": 3}}
    labels = dataset.labels().set_index("program")["label"]
    expected = {Program(TASK.id, "[0]").id: 1.0, Program(TASK.id, "[1]").id: 0.5, Program(TASK.id, "[2]").id: 0.0}
    assert labels.to_dict() == expected


def test_writing_twice_adds_nothing(tmp_path):
    dataset = Dataset.create(tmp_path / "d")
    fill(dataset, [1.0, 2.0])
    before = dataset.version
    fill(dataset, [1.0, 2.0])
    assert dataset.stats()["measurements"] == 2
    assert dataset.version == before


def test_failure_never_hides_success(tmp_path):
    dataset = Dataset.create(tmp_path / "d")
    fill(dataset, [2.0])
    fill(dataset, [None])
    fill(dataset, [1.5])
    row = dataset.labels().iloc[0]
    assert (row["latency_s"], row["error"], row["measurements"], row["label"]) == (1.5, "", 3, 1.0)


def test_exception_leaves_old_state(tmp_path):
    dataset = Dataset.create(tmp_path / "d")
    fill(dataset, [1.0])
    with pytest.raises(RuntimeError), Writer(dataset) as writer:
        writer.add_programs([Program(TASK.id, "[9]")])
        writer._parts["programs"].close()
        raise RuntimeError("killed")
    again = Dataset.open(tmp_path / "d")
    assert again.stats()["programs"] == 1 and len(again.programs()) == 1
    assert len(list((tmp_path / "d" / "programs.parquet").iterdir())) == 1


def test_many_small_commits_are_merged_and_old_readers_recover(tmp_path):
    dataset = Dataset.create(tmp_path / "d")
    fill(dataset, [1.0])
    reader = Dataset.open(tmp_path / "d")
    for i in range(30):
        with Writer(dataset) as writer:
            writer.add_programs([Program(TASK.id, f"[1,{i}]")])
    assert len(dataset.manifest["tables"]["programs"]) < 10
    assert len(dataset.programs()) == 31
    for path in (tmp_path / "d" / "programs.parquet").iterdir():
        if f"programs.parquet/{path.name}" not in {p["file"] for p in dataset.manifest["tables"]["programs"]}:
            path.unlink()
    assert len(reader.programs()) == 31


def test_networks_of_a_task_are_united(tmp_path):
    dataset = Dataset.create(tmp_path / "d")
    for use in (NetworkUse("resnet18", 2.0), NetworkUse("resnet50", 1.0)):
        with Writer(dataset) as writer:
            writer.add_tasks([Task(TASK.name, TASK.operator, TASK.format, TASK.workload, networks=(use,))])
    assert dataset.tasks()["networks"].tolist() == [{"resnet18": 2.0, "resnet50": 1.0}]
    assert dataset.stats()["tasks"] == 1


def test_filters(tmp_path):
    dataset = Dataset.create(tmp_path / "d")
    fill(dataset, [1.0], "a")
    fill(dataset, [1.0, 3.0], "b")
    assert len(dataset.measurements(platforms=["b"])) == 2
    assert len(dataset.measurements(tasks=[1])) == 0


def test_ids_survive_text():
    for identity in np.array([-1, 0, 1, -(2**63), 2**63 - 1]):
        assert parse_id(format_id(int(identity))) == identity
    with pytest.raises(UserError):
        parse_id("matmul")


def test_other_folders_are_refused(tmp_path):
    with pytest.raises(UserError, match="not a dataset"):
        Dataset.open(tmp_path)
    (tmp_path / "x").write_text("")
    with pytest.raises(UserError, match="exists and is not a dataset"):
        Dataset.create(tmp_path)
