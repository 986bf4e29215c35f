"""Whatever happens around a tuner, what it measured is kept: a full disk, a clock that jumps, another tuner on the same folder.

Candidates that hang, crash or eat memory, and a killed worker: test_measure.py. A killed tuner: test_tune_run.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from tcl.programs.dataset import Dataset
from tcl.programs.types import parse_id
from tcl.programs.validate import validate
from tcl.progress import Progress
from tcl.tuning import tune as module
from tcl.tuning.journal import Journal
from tcl.tuning.operators import operator_task
from tcl.tuning.targets import platform_for
from tcl.tuning.tune import tune

pytestmark = pytest.mark.tvm
SPEC = "matmul:32,32,32"
BATCH = 4
SCRIPT = """
import resource, sys
from pathlib import Path
from tcl.cli import main
from tcl.commands import tune as command
from tcl.progress import Progress
from tcl.tuning import tune as module

module.BATCH = 4


class Full(Progress):
    def event(self, kind, **data):
        if kind == "measured" and data["trial"] == 8:  # from here on no file can grow: what a full disk does to a writer
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))


if __name__ == "__main__":
    if sys.argv.pop(1) == "full":
        command.progress = Full
    main()
"""


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    monkeypatch.setattr(module, "BATCH", BATCH)


def command(tmp_path, disk, trials, seed=0):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    options = ["--cost-model", "random", "--strategy", "random", "--compare", "", "--no-export", "--seed", str(seed)]
    return subprocess.Popen(
        [sys.executable, str(script), disk, "tune", SPEC, "--trials", str(trials), "--out", str(tmp_path / "out"), *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"TCL_WORKSPACE": str(tmp_path / "workspace")},
    )  # fmt: skip


def counted(path):
    return Journal(path, platform_for("native"), [operator_task(SPEC)]).count()


def test_a_full_disk(tmp_path):
    process = command(tmp_path, "full", 24)
    _, errors = process.communicate(timeout=900)
    assert process.returncode == 1
    assert "Traceback" not in errors and "is intact" in errors.strip().splitlines()[-1]
    assert counted(tmp_path / "out") == 8  # both batches before it
    assert validate(Dataset.open(tmp_path / "out")) == []
    result = tune(SPEC, trials=12, out=tmp_path / "out", model="random", strategy="random", export=False, rivals=())
    assert result["trials"] == 12 and result["correct"]


def test_two_tuners_on_one_folder(tmp_path):
    both = [command(tmp_path, "free", 12, seed) for seed in (1, 2)]
    for process in both:
        _, errors = process.communicate(timeout=900)
        assert process.returncode == 0, errors
    assert validate(Dataset.open(tmp_path / "out")) == []
    rows = Dataset.open(tmp_path / "out").measurements()
    # each made its 12, or went on from what the other had when it started; nothing of either is lost
    assert 12 <= rows[rows["source"] == "tune:random"]["program"].nunique() <= 24
    assert counted(tmp_path / "out") == rows[rows["source"] == "tune:random"]["program"].nunique()


def test_a_clock_that_jumps(tmp_path, monkeypatch):
    real, offset = time.time, [0.0]

    class Jumps(Progress):
        def event(self, kind, **data):
            if kind == "measured" and data["trial"] in (4, 8):
                offset[0] += -86400.0 if data["trial"] == 4 else 10 * 365 * 86400.0

    monkeypatch.setattr(time, "time", lambda: real() + offset[0])
    result = tune(SPEC, trials=12, out=tmp_path / "out", model="random", strategy="random", export=False, rivals=(), progress=Jumps())
    assert result["trials"] == 12 and result["correct"] and 0 < result["seconds"] < 3600
    again = Journal(tmp_path / "out", platform_for("native"), [operator_task(SPEC)])
    assert again.count() == 12
    best = again.trials[operator_task(SPEC).id][parse_id(result["best_program"])]
    assert best.latency_s == pytest.approx(result["best_latency_s"])
