"""The process of one job: `python -m tcl.jobs.worker FOLDER` runs the job's `tcl` command and writes down what happens."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from tcl.errors import UserError
from tcl.files import write_json
from tcl.jobs.store import DONE, FAILED, PAUSED, RUNNING, STOPPED, STOPPING, Job, write_process
from tcl.progress import Progress, Stopped

PROGRESS_S = 0.25
"""progress.json is written at most this often; the page polls about once a second."""
RECORDED_S = 1.0
"""Steps enter the recording at most this often."""
POLL_S = 0.2

_reporting: list[JobProgress] = []
"""What this process reports through: flushed when the job ends."""


class JobProgress(Progress):
    """Writes events and progress into a job's folder, and obeys its control file.

    Seconds are counted at work: a pause does not move them, so that charts against time and estimates stay right. Safe to
    use from several threads.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._job = Job(folder)
        self._started = time.monotonic()
        self._paused_s = 0.0
        self._state = {"done": 0.0, "total": 0.0, "message": ""}
        self._latest: dict[str, Any] = {}
        self._written = self._recorded = -1e9
        self._lock = threading.Lock()
        self._events = (folder / "events.jsonl").open("a", encoding="utf-8", buffering=1)
        _reporting.append(self)

    @property
    def active_s(self) -> float:
        return time.monotonic() - self._started - self._paused_s

    def event(self, kind: str, **data: Any) -> None:
        with self._lock:
            self._record({"t": round(self.active_s, 4), "kind": kind, **data})
            self._latest[kind] = data
            self._write(force=False)

    def step(self, done: float, total: float, message: str = "") -> None:
        with self._lock:
            self._state = {"done": float(done), "total": float(total), "message": message}
            if self.active_s - self._recorded >= RECORDED_S or done == total:
                self._recorded = self.active_s
                self._record({"t": round(self.active_s, 4), "kind": "step", **self._state})
            self._write(force=done == total)

    def check(self) -> None:
        asked = self._job.asked
        if asked == "pause":
            began = time.monotonic()
            self.flush()
            set_state(self.folder, PAUSED)
            while (asked := self._job.asked) == "pause":
                time.sleep(POLL_S)
            with self._lock:
                self._paused_s += time.monotonic() - began
            set_state(self.folder, RUNNING)
        if asked == "stop":
            set_state(self.folder, STOPPING)
            raise Stopped

    def flush(self) -> None:
        with self._lock:
            self._write(force=True)

    def close(self) -> None:
        """Nothing is told after this."""
        with self._lock:
            self._events.close()

    @property
    def asked(self) -> str:
        """What whoever watches has asked for: "", "pause" or "stop"."""
        return self._job.asked

    def _record(self, event: dict[str, Any]) -> None:
        import orjson

        line = orjson.dumps(event, default=_plain, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)
        self._events.write(line.decode() + "\n")

    def _write(self, force: bool) -> None:
        now = time.monotonic()
        if force or now - self._written >= PROGRESS_S:
            self._written = now
            progress = {**self._state, "active_s": round(self.active_s, 3), "latest": self._latest}
            with contextlib.suppress(OSError):  # a full disk must not end the work that this only describes
                import orjson

                text = orjson.loads(orjson.dumps(progress, default=_plain, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS))
                write_json(self.folder / "progress.json", text, durable=False)


def set_state(folder: Path, state: str, **more: Any) -> None:
    write_json(folder / "state.json", {"state": state, "at": time.time(), **more})


def run(folder: Path) -> int:
    """Run the job's command here; returns the exit status. Its last act is to write how it ended."""
    job = Job(folder)
    write_process(folder, os.getpid())
    os.environ["TCL_JOB_DIR"] = str(folder)
    set_state(folder, RUNNING)
    output = io.StringIO()
    status, error, stopped = 0, "", False
    try:
        with contextlib.redirect_stdout(output):
            status = _tcl(list(job.about["argv"]))
    except Stopped:
        stopped = True
    except UserError as problem:
        status, error = problem.exit_status, str(problem)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as problem:
        traceback.print_exc()
        status, error = 1, f"{type(problem).__name__}: {problem}"
    if error:
        print(f"tcl: {error}", file=sys.stderr, flush=True)
    stopped = stopped or _said(folder) == STOPPING  # the command heard the stop, and ended with what it had
    for progress in _reporting:
        progress.flush()
    _keep_result(folder, output.getvalue())
    if stopped:
        set_state(folder, STOPPED)
    elif status:
        set_state(folder, FAILED, status=status, error=error or f"The command ended with status {status}; its log tells more.")
    else:
        set_state(folder, DONE)
    return status


def _tcl(argv: list[str]) -> int:
    from typer.main import get_command

    from tcl.cli import cli

    try:
        ended = get_command(cli).main(argv, prog_name="tcl", standalone_mode=False)
    except Exception as problem:
        if not hasattr(problem, "format_message"):  # click's own exceptions, whichever copy of click typer carries
            raise
        raise UserError(problem.format_message(), exit_status=problem.exit_code) from None
    return ended if isinstance(ended, int) else 0


def _keep_result(folder: Path, output: str) -> None:
    """The command's JSON object, or what it printed instead."""
    import orjson

    text = output.strip()
    if not text:
        return
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        value = {"text": text}
    write_json(folder / "result.json", value if isinstance(value, dict) else {"value": value})


def _said(folder: Path) -> str:
    import json

    try:
        return str(json.loads((folder / "state.json").read_text())["state"])
    except (OSError, ValueError, KeyError):
        return ""


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, set | frozenset | tuple):
        return list(value)
    raise TypeError(f"{type(value).__name__} cannot be part of an event")


if __name__ == "__main__":
    from tcl.jobs import worker  # noqa: PLW0406  by its own name, under which commands report

    sys.exit(worker.run(Path(sys.argv[1])))
