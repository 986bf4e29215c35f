"""Validation finds what was broken on purpose, and nothing in a sound dataset."""

import json

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tcl.programs.dataset import Dataset
from tcl.programs.manifest import MANIFEST
from tcl.programs.types import Measurement, Platform, Program, Task
from tcl.programs.validate import validate
from tcl.programs.writer import Writer

TASK = Task("t", "matmul", "ansor", '["matmul",4]', (4, 4, 4), 128.0, 192.0)


@pytest.fixture
def dataset(tmp_path):
    made = Dataset.create(tmp_path / "d")
    with Writer(made) as writer:
        writer.add_platform(Platform("p"))
        writer.add_tasks([TASK])
        programs = [Program(TASK.id, f"[{i}]") for i in range(3)]
        writer.add_programs(programs)
        costs = ((1.0,), (2.0, 4.0, 3.0), ())
        writer.add_measurements(
            [Measurement(p.id, TASK.id, "p", c, "" if c else "run_error") for p, c in zip(programs, costs, strict=True)]
        )
    return made


def change(dataset, table, **columns):
    """Rewrite a part file with columns changed by functions of the table."""
    path = dataset.path / dataset.manifest["tables"][table][0]["file"]
    rows = pq.read_table(path, partitioning=None)
    for name, function in columns.items():
        place = rows.schema.get_field_index(name)
        rows = rows.set_column(place, rows.schema.field(name), function(rows))
    pq.write_table(rows, path)


def test_sound(dataset, tmp_path):
    assert validate(dataset) == []
    assert validate(Dataset.create(tmp_path / "empty")) == []


@pytest.mark.parametrize(
    ("table", "columns", "words"),
    [
        ("programs", {"schedule": lambda t: pa.array(["[7]"] * 3)}, "id is not the hash of its task and schedule (3 times"),
        ("programs", {"task": lambda t: pa.array([1, 1, 1])}, "belongs to a task that is not there"),
        ("programs", {"program": lambda t: pa.array([t["program"][0].as_py()] * 3)}, "A program is stored twice (2 times"),
        ("measurements", {"latency_s": lambda t: pa.array([1.0, 2.0, None])}, "not the median of its costs (1 time"),
        ("measurements", {"costs_s": lambda t: pa.array([[-1.0], [2.0, 4.0, 3.0], []])}, "neither positive costs nor an error"),
        ("measurements", {"program": lambda t: pc.add(t["program"], 1)}, "belongs to a program that is not there"),
        ("measurements", {"record": lambda t: pc.add(t["record"], 1)}, "A measurement's id is not the hash"),
        ("tasks", {"workload": lambda t: pa.array(["[]"])}, "A task's id is not the hash"),
    ],
)
def test_broken_rows(dataset, table, columns, words):
    change(dataset, table, **columns)
    problems = validate(dataset)
    assert any(words in p for p in problems), problems


def test_missing_and_damaged_parts(dataset):
    paths = {name: dataset.path / dataset.manifest["tables"][name][0]["file"] for name in ("programs", "measurements")}
    paths["programs"].unlink()
    paths["measurements"].write_bytes(paths["measurements"].read_bytes()[:-20])
    problems = " ".join(validate(dataset))
    assert "is missing" in problems and "cannot be read" in problems


def test_wrong_totals_and_platforms(dataset):
    manifest = json.loads((dataset.path / MANIFEST).read_text())
    manifest["totals"]["programs"] = 7
    (dataset.path / MANIFEST).write_text(json.dumps(manifest))
    (dataset.path / "platforms.json").write_text("{}")
    problems = " ".join(validate(Dataset.open(dataset.path)))
    assert "totals of programs" in problems and "unknown platform (3 times" in problems
