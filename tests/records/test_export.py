"""What is exported can be imported again; stock TVM loads the MetaSchedule database."""

import json

import pandas as pd
import pytest

from tcl.commands.data import _export_metaschedule
from tcl.programs.dataset import Dataset
from tcl.programs.types import Measurement, Platform
from tcl.programs.writer import Writer
from tcl.records.export import export_ansor, export_table
from tcl.records.importer import import_logs
from tests.records.samples import ansor, autotvm, program, write


@pytest.fixture
def dataset(tmp_path):
    lines = [ansor([0.1, 0.3, 0.2], steps=program(1)), ansor(0.5, steps=program(2), stamp=2.5)]
    lines += [ansor(1e10, error=6, steps=program(3)), autotvm()]
    import_logs([write(tmp_path / "a.log", *lines)], tmp_path / "d", "p")
    return Dataset.open(tmp_path / "d")


def test_ansor_round_trip(dataset, tmp_path):
    assert export_ansor(dataset, tmp_path / "out" / "x.json") == {"written": 3, "left_out": 1}
    import_logs([tmp_path / "out" / "x.json"], tmp_path / "e", "p")
    again = Dataset.open(tmp_path / "e")
    mine = dataset.measurements()
    mine = mine[mine["task"].isin([t.id for t in again.task_list()])]
    other = again.measurements()
    assert set(other["record"]) == set(mine["record"]) and len(other) == 3
    assert set(other["error"].astype(str)) == {"", "build_timeout"}


@pytest.mark.parametrize("format", ["parquet", "csv"])
def test_flat_tables(dataset, tmp_path, format):
    path = tmp_path / f"x.{format}"
    assert export_table(dataset, path, format) == {"written": 4, "left_out": 0}
    frame = pd.read_parquet(path) if format == "parquet" else pd.read_csv(path)
    assert len(frame) == 4 and set(frame["operator"]) == {"conv2d"} and sorted(set(frame["format"])) == ["ansor", "autotvm"]
    row = frame[frame["latency_s"] == 0.2].iloc[0]
    assert list(json.loads(row["costs_s"]) if format == "csv" else row["costs_s"]) == [0.1, 0.3, 0.2]
    assert json.loads(row["schedule"]) == program(1) and len(row["task"]) == 16


def test_an_export_that_fails_leaves_no_file(dataset, tmp_path):
    dataset.manifest["tables"]["programs"][0]["file"] = "programs.parquet/none.parquet"
    (dataset.path / "programs.parquet").rename(tmp_path / "away")
    with pytest.raises(Exception, match="misses part files"):
        export_table(dataset, tmp_path / "x.csv", "csv")
    assert not list(tmp_path.glob("*x.csv*"))


@pytest.mark.tvm
def test_stock_tvm_loads_the_metaschedule_database_and_we_import_it_back(tmp_path):
    from tvm.s_tir.meta_schedule.database import JSONDatabase

    from tcl.tuning.design_space import module, sample_programs
    from tcl.tuning.operators import operator_task

    task, target = operator_task("matmul:64,64,64"), {"kind": "llvm", "num-cores": 2}
    programs = sample_programs(task, target, 3)
    made = Dataset.create(tmp_path / "d")
    with Writer(made) as writer:
        writer.add_platform(Platform("cpu", target=json.dumps(target)))
        writer.add_tasks([task])
        writer.add_programs(programs)
        writer.add_measurements([Measurement(p.id, task.id, "cpu", (0.001 * (i + 1),)) for i, p in enumerate(programs)])
    assert _export_metaschedule(made, tmp_path / "db", ["cpu"], "") == {"written": 3, "left_out": 0}
    database = JSONDatabase(work_dir=str(tmp_path / "db"))
    mod = module(task)
    assert database.has_workload(mod)
    records = database.get_top_k(database.commit_workload(mod), 5)
    assert [float(r.run_secs[0]) for r in records] == pytest.approx([0.001, 0.002, 0.003])

    summary = import_logs([tmp_path / "db"], tmp_path / "again", "cpu")
    again = Dataset.open(tmp_path / "again")
    assert summary.imported == 3 and not summary.refused
    assert again.task_list()[0].id == task.id and set(again.programs()["program"]) == {p.id for p in programs}
