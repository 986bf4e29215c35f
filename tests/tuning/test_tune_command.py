"""The `tcl tune` command as a person types it: one JSON object, one clear line for a mistake."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tcl.jobs.store import Job

SPEC = "softmax:16,64"


def tcl(*arguments, tmp_path):
    return subprocess.run(
        [sys.executable, "-c", "from tcl.cli import main; main()", *arguments],
        capture_output=True, text=True, timeout=240, check=False, env=os.environ | {"TCL_WORKSPACE": str(tmp_path / "ws")},
    )  # fmt: skip


@pytest.mark.tvm
def test_json_is_the_only_thing_on_standard_output(tmp_path):
    done = tcl("tune", SPEC, "--trials", "8", "--cost-model", "random", "--strategy", "random", "--json", tmp_path=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    keys = ("measured", "failed", "best_latency_s", "median_latency_s", "untuned_latency_s", "pytorch_latency_s", "correct", "seconds")
    assert set(keys) <= result.keys()
    assert result["correct"] is True and result["measured"] == 8
    (job,) = (Job(path) for path in (tmp_path / "ws" / "jobs").iterdir())  # the app shows it as any other run
    assert job.state == "done" and job.result == result and len(job.events("measured")) == 8
    assert job.about["argv"][:2] == ["tune", SPEC] and job.about["title"] == f"{SPEC}, random, 8 trials"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["resnet81"], "Did you mean resnet18"),
        (["matmul:1,2"], "2 numbers instead of 3"),
        ([SPEC, "--target", "cuda"], "CUDA"),
        ([SPEC, "--cost-model", "nowhere"], "not a saved model"),
    ],
)
def test_a_mistake_is_one_line(arguments, message, tmp_path):
    done = tcl("tune", *arguments, tmp_path=tmp_path)
    assert done.returncode != 0 and done.stdout == ""
    lines = done.stderr.strip().splitlines()
    assert not (tmp_path / "ws" / "jobs").exists()
    assert len(lines) == 1 and message in lines[0] and lines[0].startswith("tcl: ")
