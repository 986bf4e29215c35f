"""Jobs are real processes: every verb, and what a person sees when a worker is killed."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from tcl.errors import UserError
from tcl.files import write_json
from tcl.jobs.store import CANCELLED, DONE, FAILED, LOST, PAUSED, RUNNING, STOPPED, all_jobs, find, submit
from tests.jobs.conftest import until


def test_runs_to_its_end_and_keeps_its_result(start):
    job = start(speed=200)
    until(lambda: job.state == DONE)
    assert job.result == {"measured": 200}
    assert [e["trial"] for e in job.events("measured")] == list(range(200))
    assert job.progress["done"] == job.progress["total"] == 200
    assert job.progress["latest"]["measured"]["trial"] == 199
    times = [e["t"] for e in job.events()]
    assert times == sorted(times)


def test_pause_holds_and_resume_goes_on(start):
    job = start(speed=2)
    until(lambda: job.progress["done"] > 5)
    job.pause()
    until(lambda: job.state == PAUSED)
    held = len(job.events())
    time.sleep(1.0)
    assert len(job.events()) == held
    assert job.state == PAUSED
    job.resume()
    until(lambda: len(job.events()) > held + 5)
    assert job.state == RUNNING
    # The pause of a second left no hole in the recording: seconds are counted at work.
    t = [e["t"] for e in job.events()]
    assert max(b - a for a, b in itertools.pairwise(t)) < 0.8


def test_stop_ends_after_the_step_and_keeps_what_is_there(start):
    job = start()
    until(lambda: job.progress["done"] > 3)
    job.stop()
    until(lambda: job.state == STOPPED)
    assert 3 < len(job.events("measured")) < 200
    with pytest.raises(UserError, match="has ended"):
        job.resume()


def test_stop_reaches_a_paused_job(start):
    job = start()
    until(lambda: job.progress["done"] > 1)
    job.pause()
    until(lambda: job.state == PAUSED)
    job.stop()
    until(lambda: job.state == STOPPED)


def test_cancel_kills_the_whole_group(start):
    job = start()
    process = until(job.process)
    job.cancel()
    assert job.state == CANCELLED
    assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_killed_worker_is_lost_never_running(start):
    job = start()
    until(lambda: job.progress["done"] > 1)
    process = job.process()
    os.kill(process.pid, signal.SIGKILL)
    until(lambda: job.process() is None)
    assert job.state == LOST
    assert job.events("measured")
    job.remove()
    assert all_jobs() == []


def test_another_process_with_the_same_number_is_not_the_worker(start):
    job = start()
    until(lambda: job.state == RUNNING)
    worker = job.process()
    write_json(job.path / "process.json", {"pid": worker.pid, "started": worker.create_time() - 3600})
    assert job.state == LOST
    job.path.joinpath("process.json").unlink()
    write_json(job.path / "process.json", {"pid": worker.pid, "started": worker.create_time()})
    assert job.state == RUNNING


def test_orphans_of_a_killed_worker_go_with_the_job(start):
    job = start()
    until(lambda: job.state == RUNNING)
    orphan = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], env=os.environ | {"TCL_JOB_DIR": str(job.path)})
    os.kill(job.process().pid, signal.SIGKILL)
    until(lambda: job.state == LOST)
    job.remove()
    assert not psutil.pid_exists(orphan.pid)


def test_survives_its_submitter(recording, workspace):
    code = f"from tcl.jobs.store import submit; print(submit('replay', ['jobs', 'replay', {str(recording)!r}, '--speed', '5']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    job = find(done.stdout.strip())
    until(lambda: job.progress["done"] > 3)
    assert job.state == RUNNING
    job.cancel()


def test_a_users_mistake_is_told_in_one_sentence():
    job = find(submit("replay", ["jobs", "replay", "nothing-like-it"]))
    until(lambda: job.state == FAILED)
    assert "There is no job 'nothing-like-it'" in job.error
    assert "Traceback" not in job.log()


def test_an_unknown_command_fails_with_the_commands_own_words():
    job = find(submit("x", ["no-such-command"]))
    until(lambda: job.state == FAILED)
    assert "No such command" in job.error


def test_running_jobs_are_not_removed(start):
    job = start()
    until(lambda: job.state == RUNNING)
    with pytest.raises(UserError, match="cannot be removed"):
        job.remove()


def test_half_written_event_is_left_out(start):
    job = start(speed=200)
    until(lambda: job.state == DONE)
    n = len(job.events())
    with (job.path / "events.jsonl").open("a") as file:
        file.write('{"t": 3, "kind": "meas')
    assert len(job.events()) == n


def test_command_line_verbs(start):
    job = start()
    until(lambda: job.progress["done"] > 1)

    def tcl(*arguments: str) -> dict:
        done = subprocess.run([sys.executable, "-m", "tcl", "jobs", *arguments, "--json"], capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    assert [row["id"] for row in tcl("list")["jobs"]] == [job.id]
    told = subprocess.run([sys.executable, "-m", "tcl", "jobs", "list"], capture_output=True, text=True, check=True)
    header, line = told.stdout.splitlines()
    assert header.split() == ["id", "state", "progress", "what"] and line.index(job.state) == header.index("state")
    tcl("pause", job.id[-4:])
    until(lambda: job.state == PAUSED)
    tcl("resume", job.id)
    until(lambda: job.state == RUNNING)
    assert tcl("show", job.id)["latest"]["measured"]["trial"] > 0
    assert tcl("cancel", job.id)["state"] == CANCELLED
    assert tcl("remove", job.id)["removed"]
    assert tcl("list")["jobs"] == []
