"""A command in a terminal is kept as a job: the same folder, states and verbs."""

from __future__ import annotations

import sys

import pytest

from tcl.errors import UserError
from tcl.jobs.store import ALIVE, DONE, FAILED, PAUSED, RUNNING, STOPPED, all_jobs
from tcl.jobs.terminal import kept
from tcl.jobs.worker import JobProgress, set_state
from tcl.progress import Progress, Stopped


class Told(Progress):
    def __init__(self) -> None:
        self.events: list[str] = []

    def event(self, kind, **data):
        self.events.append(kind)


@pytest.fixture(autouse=True)
def typed(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["tcl", "tune", "matmul:8,8,8", "--json"])


def test_the_terminal_and_the_job_are_told_the_same():
    told = Told()
    with kept("tune", "a title", told) as run:
        run.event("phase", name="search")
        (job,) = all_jobs()
        assert job.state == RUNNING and job.about["argv"] == ["tune", "matmul:8,8,8", "--json"] and job.about["title"] == "a title"
        run.step(1, 2, "trials")
        run.event("result", best_latency_s=1e-3)
    assert told.events == [e["kind"] for e in job.events() if e["kind"] != "step"] == ["phase", "result"]
    assert job.state == DONE and job.result == {"best_latency_s": 1e-3} and job.progress["done"] == 1


def test_a_mistake_leaves_no_job_and_a_failure_its_reason():
    with pytest.raises(UserError), kept("tune", "", Told()):
        raise UserError("no such thing")
    assert all_jobs() == []
    with pytest.raises(UserError), kept("tune", "", Told()) as run:
        run.event("phase", name="search")
        raise UserError("went wrong")
    (job,) = all_jobs()
    assert job.state == FAILED and "went wrong" in job.error


def test_it_pauses_and_stops_as_the_app_asks():
    import threading

    from tests.jobs.conftest import until

    with kept("tune", "", Told()) as run:
        run.event("phase", name="search")
        (job,) = all_jobs()
        job.pause()
        waiting = threading.Thread(target=run.check)
        waiting.start()
        until(lambda: job.state == PAUSED)
        job.resume()
        waiting.join(timeout=10)
        assert not waiting.is_alive() and job.state == RUNNING
        job.stop()
        with pytest.raises(Stopped):
            run.check()
    assert job.state == STOPPED and job.state not in ALIVE


def test_in_a_background_job_it_is_kept_once(tmp_path):
    (tmp_path / "job").mkdir()
    told = JobProgress(tmp_path / "job")
    with kept("tune", "", told) as run:
        assert run is told
    assert all_jobs() == []


def test_a_disk_that_takes_no_more_does_not_end_the_work(monkeypatch):
    told = Told()

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    with kept("tune", "", told) as run:
        run.event("phase", name="search")
        monkeypatch.setattr(JobProgress, "event", full)
        run.event("measured", trial=1)
        run.event("measured", trial=2)
    assert told.events == ["phase", "measured", "measured"]
    (job,) = all_jobs()
    assert job.state == RUNNING  # "lost" once this process ends: its end could not be written
    set_state(job.path, FAILED)  # the fixture ends what runs, and this process is what works on it
