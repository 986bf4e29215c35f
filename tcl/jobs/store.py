"""Jobs on disk: one folder a job under `workspace()/jobs`, so that work outlives the page that started it.

    job.json        what was asked: id, kind, the `tcl` command line, when; written once
    process.json    who does it: process id and the moment that process started (a process id alone is given out again)
    state.json      the last state that the worker, or whoever cancelled it, wrote
    control         "pause" or "stop": what the user asked for; absent otherwise
    progress.json   done, total, message, seconds at work, and the latest event of each kind
    events.jsonl    every event with `t`, seconds at work since the start: the live views' data and the recording for a replay
    log.txt         what the command said on standard error
    result.json     the command's one JSON object

The state that a person sees is worked out from these files and from the process table each time: nobody has to keep watch,
and a worker that was killed is `lost`, never `running`.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tcl.errors import UserError
from tcl.files import write_json
from tcl.machine import HELD
from tcl.workspace import inside, workspace

QUEUED, RUNNING, PAUSED, STOPPING = "queued", "running", "paused", "stopping"
DONE, STOPPED, CANCELLED, FAILED, LOST = "done", "stopped", "cancelled", "failed", "lost"
ALIVE = (QUEUED, RUNNING, PAUSED, STOPPING)
ENDED = (DONE, STOPPED, CANCELLED, FAILED, LOST)

START_S = 30.0
"""A job without a process after this long was never started (its submitter died in between)."""

_children: list[subprocess.Popen[bytes]] = []
"""Workers started by this process: polled so that a dead one does not linger as a zombie."""


@dataclass(frozen=True)
class Job:
    """One job's folder. Cheap to make; every property reads the disk."""

    path: Path

    @property
    def id(self) -> str:
        return self.path.name

    @property
    def about(self) -> dict[str, Any]:
        """id, kind, argv (list of str, without `tcl`), title, created (Unix seconds), cwd."""
        return _read(self.path / "job.json")

    @property
    def kind(self) -> str:
        return str(self.about.get("kind", ""))

    @property
    def state(self) -> str:
        """One of `ALIVE` or `ENDED`."""
        written = str(_read(self.path / "state.json").get("state", QUEUED))
        if written in ENDED:
            return written
        if self.process() is None:
            # A worker writes its end before it exits: look again, it may just have done so.
            again = str(_read(self.path / "state.json").get("state", QUEUED))
            if again in ENDED:
                return again
            starting = not (self.path / "process.json").exists() and time.time() - float(self.about.get("created", 0)) < START_S
            return QUEUED if starting else LOST
        return STOPPING if self.asked == "stop" and written in (RUNNING, PAUSED) else written

    @property
    def asked(self) -> str:
        """What the user asked the worker for: "", "pause" or "stop"."""
        try:
            return (self.path / "control").read_text().strip()
        except OSError:
            return ""

    @property
    def error(self) -> str:
        """Why it failed, one sentence; empty otherwise."""
        return str(_read(self.path / "state.json").get("error", ""))

    @property
    def progress(self) -> dict[str, Any]:
        """done, total (0: unknown), message, active_s (seconds at work, pauses left out), latest (event kind -> event)."""
        return {"done": 0.0, "total": 0.0, "message": "", "active_s": 0.0, "latest": {}} | _read(self.path / "progress.json")

    @property
    def seconds_left(self) -> float | None:
        """An estimate from the pace so far; None where there is none (also while it tidies up after its last step), or the job ended."""
        progress = self.progress
        done, total = progress["done"], progress["total"]
        if not total or not 0 < done < total or self.state not in ALIVE:
            return None
        return progress["active_s"] / done * (total - done)

    @property
    def result(self) -> dict[str, Any] | None:
        return _read(self.path / "result.json") or None

    def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        """All events so far, oldest first; each has `t` (seconds at work) and `kind`. A line still being written is left out."""
        return read_events(self.path / "events.jsonl", kind)

    def log(self, last_bytes: int = 20_000) -> str:
        """The end of the log."""
        try:
            with (self.path / "log.txt").open("rb") as file:
                file.seek(max(file.seek(0, os.SEEK_END) - last_bytes, 0))
                return file.read().decode(errors="replace")
        except OSError:
            return ""

    def process(self) -> Any:
        """The worker as a `psutil.Process`, or None when it is not there (any more)."""
        import psutil

        _reap()
        written = _read(self.path / "process.json")
        if not written:
            return None
        try:
            process = psutil.Process(int(written["pid"]))
            same = abs(process.create_time() - float(written["started"])) < 1.0
            return process if same and process.status() != psutil.STATUS_ZOMBIE else None
        except psutil.Error:
            return None

    # -- verbs ---------------------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Wait after the current step."""
        self._must_be_alive("paused")
        self._ask("pause")

    def resume(self) -> None:
        """Go on after a pause. A stop that was asked for stays asked for."""
        self._must_be_alive("resumed")
        if self.asked == "pause":
            (self.path / "control").unlink(missing_ok=True)

    def stop(self) -> None:
        """Finish the current step, keep the results, end."""
        self._must_be_alive("stopped")
        self._ask("stop")

    def cancel(self) -> None:
        """End now: the worker and every process it started are killed. What was written to disk before stays there."""
        self._must_be_alive("cancelled")
        kill(self)
        if str(_read(self.path / "state.json").get("state")) not in ENDED:
            write_json(self.path / "state.json", {"state": CANCELLED, "at": time.time()})

    def remove(self) -> None:
        """Delete the job's folder; what the job made elsewhere (a dataset, a model) stays."""
        if self.state in ALIVE:
            raise UserError(f"Job {self.id} is {self.state} and cannot be removed.", hint=f"Cancel it first: tcl jobs cancel {self.id}")
        kill(self)  # a lost worker may have left processes behind
        shutil.rmtree(self.path, ignore_errors=True)

    def _ask(self, what: str) -> None:
        draft = self.path / f".control.{os.getpid()}"
        draft.write_text(what)
        draft.replace(self.path / "control")

    def _must_be_alive(self, participle: str) -> None:
        state = self.state
        if state not in ALIVE:
            raise UserError(f"Job {self.id} has ended ({state}); it cannot be {participle}.")

    def summary(self) -> dict[str, Any]:
        """What lists show: plain JSON."""
        about, progress = self.about, self.progress
        return {
            "id": self.id,
            "kind": about.get("kind", ""),
            "title": about.get("title", ""),
            "command": command_line(about.get("argv", [])),
            "state": self.state,
            "asked": self.asked,
            "created": about.get("created", 0.0),
            "done": progress["done"],
            "total": progress["total"],
            "message": progress["message"],
            "active_s": progress["active_s"],
            "left_s": self.seconds_left,
            "error": self.error,
        }


def jobs_folder() -> Path:
    folder = workspace() / "jobs"
    folder.mkdir(exist_ok=True)
    return folder


def submit(kind: str, argv: list[str], title: str = "") -> str:
    """Start `tcl ARGV…` in the background, in a session of its own that outlives this process; returns the job's id.

    Args:
        kind: what sort of job, for lists and views: "tune", "collect", "train", "distill", "map", …
        argv: the command line without `tcl`, e.g. ["tune", "matmul:256,256,256", "--trials", "64"].
        title: what people see; the command line when empty.
    """
    folder = new_job(kind, argv, title)
    # The machine lock that this process may hold ends with it: the job takes its own.
    environment = {k: v for k, v in os.environ.items() if k != HELD} | {"TCL_WORKSPACE": str(workspace()), "TCL_JOB_DIR": str(folder)}
    with (folder / "log.txt").open("ab") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "tcl.jobs.worker", str(folder)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env=environment,
        )  # fmt: skip
    _children.append(child)
    write_process(folder, child.pid)
    return folder.name


def new_job(kind: str, argv: list[str], title: str = "") -> Path:
    """The folder of a job that nobody works on yet; arguments as `submit`'s."""
    identity = f"{time.strftime('%Y%m%d-%H%M%S')}-{kind}-{secrets.token_hex(2)}"
    folder = inside(jobs_folder(), identity)
    folder.mkdir()
    about = {"id": identity, "kind": kind, "argv": list(argv), "title": title, "created": time.time(), "cwd": str(Path.cwd())}
    write_json(folder / "job.json", about)
    return folder


def write_process(folder: Path, pid: int) -> None:
    """Note who works on the job; submitter and worker both do, whoever comes first, with equal text."""
    import psutil

    with contextlib.suppress(psutil.Error):  # it ended already
        write_json(folder / "process.json", {"pid": pid, "started": psutil.Process(pid).create_time()})


def find(identity: str) -> Job:
    """The job with this id; an unambiguous end of it (the four digits that lists show) will do."""
    folder = jobs_folder()
    if (inside(folder, identity) / "job.json").exists():
        return Job(folder / identity)
    matches = [job for job in all_jobs() if job.id.endswith(identity)] if identity else []
    if len(matches) != 1:
        raise UserError(
            f"{'Several jobs end in' if matches else 'There is no job'} {identity!r} in {folder}.", hint="`tcl jobs list` shows them."
        )
    return matches[0]


def all_jobs() -> list[Job]:
    """Newest first."""
    return [Job(p.parent) for p in sorted(jobs_folder().glob("*/job.json"), reverse=True)]


def kill(job: Job) -> None:
    """End the worker and everything that carries its mark, and wait until they are gone."""
    import psutil

    victims = {}
    worker = job.process()
    if worker is not None:
        with contextlib.suppress(psutil.Error):
            victims = {p.pid: p for p in [worker, *worker.children(recursive=True)]}
    for process in psutil.process_iter():  # children whose parent died belong to nobody; their environment still tells
        with contextlib.suppress(psutil.Error):
            if process.pid != os.getpid() and process.environ().get("TCL_JOB_DIR") == str(job.path):
                victims[process.pid] = process
    for process in victims.values():
        with contextlib.suppress(psutil.Error):
            process.send_signal(signal.SIGKILL)
    psutil.wait_procs(list(victims.values()), timeout=5)
    _reap()


def read_events(path: Path, kind: str | None = None) -> list[dict[str, Any]]:
    """The events of a recording, oldest first."""
    import orjson

    try:
        lines = path.read_bytes().split(b"\n")[:-1]  # what follows the last newline is still being written
    except OSError:
        return []
    events = []
    for line in lines:
        with contextlib.suppress(orjson.JSONDecodeError):  # a line torn by a full disk
            event = orjson.loads(line)
            if kind is None or event.get("kind") == kind:
                events.append(event)
    return events


def command_line(argv: list[str]) -> str:
    """The command as a person would type it."""
    import shlex

    return shlex.join(["tcl", *argv])


def _read(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _reap() -> None:
    _children[:] = [child for child in _children if child.poll() is None]
