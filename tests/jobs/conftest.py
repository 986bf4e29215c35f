from __future__ import annotations

import json
import time

import pytest

from tcl.jobs.store import Job, find, submit


@pytest.fixture(autouse=True)
def workspace(tmp_path, monkeypatch):
    """A workspace and machine locks of the test's own."""
    monkeypatch.setenv("TCL_WORKSPACE", str(tmp_path / "workspace"))
    monkeypatch.setenv("TCL_LOCK_DIR", str(tmp_path))
    yield tmp_path
    from tcl.jobs.store import ALIVE, all_jobs

    for job in all_jobs():
        if job.state in ALIVE:
            job.cancel()


@pytest.fixture
def recording(tmp_path):
    """A recorded tuning run of 20 s: one measurement each 0.1 s, each better than the one before."""
    folder = tmp_path / "recorded"
    folder.mkdir()
    with (folder / "events.jsonl").open("w") as file:
        for i in range(200):
            t = round(0.1 * i, 3)
            file.write(json.dumps({"t": t, "kind": "measured", "trial": i, "latency_s": 1.0 / (i + 1)}) + "\n")
            file.write(json.dumps({"t": t, "kind": "step", "done": i + 1, "total": 200, "message": "measuring"}) + "\n")
    (folder / "result.json").write_text(json.dumps({"measured": 200}))
    return folder


@pytest.fixture
def start(recording):
    """Start a real background process that plays the recording; returns its job."""

    def begin(speed: float = 1.0) -> Job:
        return find(submit("replay", ["jobs", "replay", str(recording), "--speed", str(speed), "--json"]))

    return begin


def until(condition, timeout: float = 20.0):
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError("waited in vain")
