"""`tcl sample`: from a dataset to a plan and back."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from tcl.cli import cli
from tcl.errors import UserError
from tcl.programs.dataset import Dataset
from tcl.programs.selection import load_selection
from tcl.programs.types import Measurement, Platform, Program, Task
from tcl.programs.writer import Writer
from tcl.sampling.plan import Request, read_plan, select
from tcl.sampling.registry import DEFAULT


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """Three small AutoTVM tasks; platform a measured all programs, b the first ten of each, c none."""
    folder = tmp_path_factory.mktemp("sample") / "data"
    rng = np.random.default_rng(0)
    with Writer(Dataset.create(folder)) as writer:
        for name in "abc":
            writer.add_platform(Platform(name))
        for t in range(3):
            task = Task(f"matmul {t}", "matmul", "autotvm", f"matmul {t}", extents=(64, 64, 2**t * 16), flops=2.0 * 64 * 64 * 2**t * 16)
            writer.add_tasks([task])
            for i in range(40):
                x, y = (int(v) for v in 2 ** rng.integers(0, 6, 2))
                program = Program(task.id, json.dumps([["tile_x", "sp", [-1, x]], ["tile_y", "sp", [-1, y]], ["unroll", "ot", i]]))
                writer.add_programs([program])
                for platform in "ab"[: 2 if i < 10 else 1]:
                    cost = 1e-3 * (1 + x + 0.1 * y + (platform == "b") * y)
                    writer.add_measurements([Measurement(program.id, task.id, platform, (cost,))])
    return folder


def test_a_plan_comes_back_as_it_was_written(dataset, tmp_path):
    plans = []
    for suffix in ("csv", "parquet"):
        out = tmp_path / f"plan.{suffix}"
        result = CliRunner().invoke(cli, ["sample", str(dataset), "--budget", "10%", "--out", str(out), "--json", "--save-as", "mine"])
        assert result.exit_code == 0, result.output
        answer = json.loads(result.stdout)
        assert (answer["picked"], answer["pool"], answer["assignments"]) == (12, 120, 3)
        plans.append(read_plan(out))
    np.testing.assert_array_equal(*plans)
    known = Dataset.open(dataset).programs(["program", "task"])
    assert known.set_index("program").loc[plans[0], "task"].nunique() == 3
    kept, about = load_selection(Dataset.open(dataset), "mine")
    np.testing.assert_array_equal(kept["program"], plans[0])
    assert about["sampler"] == DEFAULT


def test_rounds_replay_what_the_platform_measured(dataset):
    sampled = select(Request(dataset, budget=30, platform="a", rounds=3))
    picked = sampled.picked()
    assert picked["round"].value_counts().to_dict() == {0: 15, 1: 8, 2: 7}
    assert picked.loc[picked["round"] > 0, "uncertainty"].notna().all()
    assert len(sampled.programs) == 120
    assert len(select(Request(dataset, budget=9, platform="b", rounds=2)).programs) == 30


def test_new_leaves_out_what_was_measured_and_learns_from_it(dataset):
    picked = select(Request(dataset, budget=20, platform="b", new=True)).picked()
    labels = Dataset.open(dataset).labels(["b"])
    assert not picked["program"].isin(labels["program"]).any()
    assert picked["uncertainty"].notna().all()


def test_other_platforms_guide_the_cold_start(dataset):
    cold = select(Request(dataset, budget=20)).picked()
    guided = select(Request(dataset, budget=20, platform="c")).picked()
    assert cold["uncertainty"].isna().all()
    assert guided["uncertainty"].notna().all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"platform": "d"}, "no platform"), ({"sampler": "best"}, "no sampler"), ({"budget": "121"}, "budget"),
        ({"rounds": 2}, "platform"), ({"sampler": "rdu:q=1"}, "no setting"), ({"platform": "c", "rounds": 2}, "no program"),
    ],
)  # fmt: skip
def test_mistakes_are_explained(dataset, change, message):
    with pytest.raises(UserError, match=message):
        select(Request(dataset, **change))


def test_files_that_are_no_plans(tmp_path):
    with pytest.raises(UserError, match="no plan"):
        read_plan(tmp_path / "none.csv")
    pd.DataFrame({"other": [1]}).to_csv(tmp_path / "other.csv")
    with pytest.raises(UserError, match="no column program"):
        read_plan(tmp_path / "other.csv")
    (tmp_path / "bad.parquet").write_text("no")
    with pytest.raises(UserError, match="cannot be read"):
        read_plan(tmp_path / "bad.parquet")
