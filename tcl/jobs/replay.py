"""Playing a recorded job as if it were live: the same events, in the same order, at any speed."""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from tcl.errors import UserError
from tcl.jobs.store import DONE, ENDED, RUNNING, Job, all_jobs, find, read_events
from tcl.progress import Progress
from tcl.workspace import ASSETS

TICK_S = 0.1


def recording(name: str) -> Path:
    """The folder of a recording: a path that holds `events.jsonl` (or that file itself), or a job's id."""
    path = Path(name)
    path = path.parent if path.name == "events.jsonl" else path
    folder = path if (path / "events.jsonl").exists() else find(name).path
    if not (folder / "events.jsonl").exists():
        raise UserError(f"{folder} holds no recording: it has no events.jsonl.", hint="A job writes one once it has something to tell.")
    return folder


def play(folder: Path, progress: Progress, speed: float = 1.0) -> dict[str, Any]:
    """Report the recording's events through `progress`, `speed` recorded seconds a second; returns the recorded result.

    Raises:
        tcl.progress.Stopped: from `progress.check`, when the user asked to stop.
    """
    if speed <= 0:
        raise UserError(f"The speed must be above 0, not {speed:g}.")
    played = 0.0
    before = time.monotonic()
    for event in read_events(folder / "events.jsonl"):
        data = {k: v for k, v in event.items() if k not in ("t", "kind")}
        while played < event["t"]:
            progress.check()
            time.sleep(min(TICK_S, (event["t"] - played) / speed))
            now = time.monotonic()
            # A pause waits inside check(): it must not count as played time.
            played += min(now - before, 2 * TICK_S) * speed
            before = now
        if event["kind"] == "step":
            progress.step(data["done"], data["total"], data["message"])
        else:
            progress.event(event["kind"], **data)
    return Job(folder).result or {}


# -- at any moment ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Moment(Job):
    """A recorded job as it was `at` seconds at work: to live views a job like any other, read from the recording alone."""

    at: float = math.inf

    @property
    def state(self) -> str:
        """`RUNNING` before the recording's end; then how it ended."""
        if self.at < length(self.path):
            return RUNNING
        written = super().state
        return written if written in ENDED else DONE

    @property
    def asked(self) -> str:
        return ""

    @property
    def result(self) -> dict[str, Any] | None:
        return super().result if self.at >= length(self.path) else None

    @property
    def progress(self) -> dict[str, Any]:
        found: dict[str, Any] = {"done": 0.0, "total": 0.0, "message": "", "active_s": min(self.at, length(self.path)), "latest": {}}
        for event in self.events():
            data = {k: v for k, v in event.items() if k not in ("t", "kind")}
            if event["kind"] == "step":
                found |= data
            else:
                found["latest"][event["kind"]] = data
        return found

    def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        known = _events(self.path)
        return [e for e in known[: bisect_right(known, self.at, key=lambda e: e["t"])] if kind is None or e["kind"] == kind]


def length(folder: Path) -> float:
    """Seconds at work that a recording lasts."""
    known = _events(folder)
    return float(known[-1]["t"]) if known else 0.0


def recordings(*more: Path) -> list[Job]:
    """What can be replayed: recordings that ship with the project, then ended jobs of the workspace (replays left out), newest first;
    `more` folders come first."""
    shipped = [p.parent for p in sorted((ASSETS / "recorded").glob("*/events.jsonl"))]
    ended = [job.path for job in all_jobs() if job.kind != "replay" and job.state in ENDED]
    unique = dict.fromkeys(p.resolve() for p in [*more, *shipped, *ended])
    return [Job(p) for p in unique if length(p) > 0]


def _events(folder: Path) -> list[dict[str, Any]]:
    path = folder / "events.jsonl"
    try:
        stamp = path.stat().st_mtime_ns
    except OSError:
        return []
    return _read(path, stamp)


@lru_cache(maxsize=16)
def _read(path: Path, stamp: int) -> list[dict[str, Any]]:
    """In order of their moments: a job that was taken up again tells some seconds twice."""
    return sorted((e for e in read_events(path) if isinstance(e.get("t"), int | float) and "kind" in e), key=lambda e: e["t"])
