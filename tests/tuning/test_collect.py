"""Collecting for real, at a small size: one pool on several platforms, resumed after kill -9."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tcl.errors import UserError
from tcl.programs.dataset import Dataset
from tcl.programs.selection import list_selections, load_selection
from tcl.sampling.plan import Request, read_plan, sample
from tcl.tuning.collect import collect, find_tasks
from tcl.tuning.targets import available_profiles, platform_for
from tests.views.conftest import fill

pytestmark = pytest.mark.tvm


def test_two_platforms_measure_the_same_programs_once(tmp_path):
    platforms = [platform_for(p) for p in available_profiles()[-2:]]
    names = ["matmul:32,32,32", "softmax:8,64"]
    first = collect(names, tmp_path / "d", platforms, programs_per_task=6, budget=0.5)
    assert (first.tasks, first.programs, first.selected, first.measured) == (2, 12, 6, 12)
    rows = Dataset.open(tmp_path / "d").measurements()
    by_platform = rows.groupby(rows["platform"].astype(str))["program"].apply(frozenset)
    assert len(set(by_platform)) == 1 and len(by_platform) == 2
    again = collect(names, tmp_path / "d", platforms, programs_per_task=6, budget=0.5)
    assert (again.measured, again.already_there) == (0, 12)
    larger = collect(names, tmp_path / "d", platforms, programs_per_task=8, budget=1.0)
    assert larger.programs == 16 and larger.measured + larger.already_there == 32
    dataset = Dataset.open(tmp_path / "d")
    counts = dataset.measurements(["program", "platform"]).astype({"platform": str}).value_counts()
    assert (counts == 1).all() and len(counts) == 32
    assert dataset.programs(["program"])["program"].is_unique


def test_killed_half_way_it_continues(tmp_path):
    out = tmp_path / "d"
    command = [sys.executable, "-m", "tcl", "collect", "matmul:32,32,32", "matmul:48,48,48", "matmul:64,64,64", "--out", str(out),
               "--programs-per-task", "8", "--json"]  # fmt: skip
    process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline and _measured(out) == 0:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = _measured(out)
    assert 0 < before < 24
    result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert result["already_there"] == before
    assert result["measured"] == 24 - before and result["failed"] == {}
    rows = Dataset.open(out).measurements(["program"])
    assert len(rows) == 24 and rows["program"].is_unique


ROUNDS = ["matmul:32,32,32", "matmul:48,48,48", "softmax:16,64", "--programs-per-task", "16", "--sampler", "rdu", "--budget", "24"]


def test_a_sampler_killed_in_a_round_finishes_that_round_and_the_budget(tmp_path):
    out = tmp_path / "d"
    command = [sys.executable, "-m", "tcl", "collect", *ROUNDS, "--out", str(out), "--json"]
    process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline and _measured(out) == 0:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = _measured(out)
    assert 0 < before < 24
    dataset = Dataset.open(out)
    (name,) = list_selections(dataset)
    written = load_selection(dataset, name)[0]
    assert len(written) > before  # the round was written down before it was measured
    result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert (result["already_there"], result["measured"], result["selected"]) == (before, 24 - before, 24)
    kept, about = load_selection(dataset, name)
    assert kept["round"].value_counts().sort_index().to_dict() == {0: 12, 1: 6, 2: 6}
    assert kept["order"].tolist() == list(range(24)) and about["sampler"] == "rdu"
    assert kept.iloc[: len(written)]["program"].tolist() == written["program"].tolist()
    assert kept.loc[kept["round"] > 0, "uncertainty"].notna().all()  # what was measured before taught the later rounds
    rows = dataset.refresh().measurements(["program"])
    assert rows["program"].is_unique and set(rows["program"]) == set(kept["program"])
    assert dataset.stats()["programs"] == 48  # what was not picked stays in the pool
    again = collect(ROUNDS[:3], out, [platform_for()], programs_per_task=16, sampler="rdu", budget="24")
    assert (again.already_there, again.measured) == (24, 0)


def test_a_plan_is_measured_exactly(tmp_path):
    platform = platform_for()
    collect(["matmul:32,32,32", "softmax:16,64"], tmp_path / "pool", [platform], programs_per_task=8, budget=0)
    picked = sample(Request(tmp_path / "pool", "kcenter", "4"), tmp_path / "plan.csv")
    assert picked["picked"] == 4
    found = collect([], tmp_path / "d", [platform], source=tmp_path / "pool", plan=tmp_path / "plan.csv")
    assert (found.selected, found.measured, found.programs) == (4, 4, 16)
    rows = Dataset.open(tmp_path / "d").measurements(["program"])
    assert set(rows["program"]) == set(read_plan(tmp_path / "plan.csv"))
    assert Dataset.open(tmp_path / "pool").stats()["measurements"] == 0
    more = collect([], tmp_path / "d", [platform], sampler="rdu", budget="6", rounds=2)  # a sampler goes on from what is measured
    assert (more.already_there, more.measured) == (4, 2)


def test_plans_that_cannot_be_measured(tmp_path):
    platform = platform_for()
    with pytest.raises(UserError, match="no plan"):
        collect([], tmp_path / "d", [platform], plan=tmp_path / "none.csv")
    foreign = fill(tmp_path / "ansor", programs_a_task=4)
    sample(Request(foreign.path, "random", "3"), tmp_path / "plan.csv")
    with pytest.raises(UserError, match="come from ansor logs"):
        collect([], tmp_path / "d", [platform], source=foreign.path, plan=tmp_path / "plan.csv")
    other = fill(tmp_path / "other", programs_a_task=1, tasks=1)
    with pytest.raises(UserError, match="are not in"):
        collect([], tmp_path / "d", [platform], source=other.path, plan=tmp_path / "plan.csv")
    with pytest.raises(UserError, match="holds no program"):
        collect([], tmp_path / "d", [platform], source=foreign.path, sampler="rdu")
    with pytest.raises(UserError, match="beside"):
        collect(["matmul:8,8,8"], tmp_path / "d", [platform], plan=tmp_path / "plan.csv")
    assert not (tmp_path / "d").exists()


def test_a_mistake_leaves_nothing_behind(tmp_path):
    with pytest.raises(UserError, match="neither a network nor an operator"):
        find_tasks(["resnet19"])
    with pytest.raises(UserError, match="no sampler"):
        collect(["matmul:8,8,8"], tmp_path / "d", [platform_for()], sampler="oracle")
    assert not (tmp_path / "d").exists()


def _measured(path: Path) -> int:
    try:
        return Dataset.open(path).stats()["measurements"]
    except UserError:
        return 0
