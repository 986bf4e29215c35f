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
from tcl.tuning.collect import collect, find_tasks
from tcl.tuning.targets import available_profiles, platform_for

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


def test_a_mistake_leaves_nothing_behind(tmp_path):
    with pytest.raises(UserError, match="neither a network nor an operator"):
        find_tasks(["resnet19"])
    with pytest.raises(UserError, match="not a sampler"):
        collect(["matmul:8,8,8"], tmp_path / "d", [platform_for()], sampler="oracle")
    assert not (tmp_path / "d").exists()


def _measured(path: Path) -> int:
    try:
        return Dataset.open(path).stats()["measurements"]
    except UserError:
        return 0
