"""Playing a recorded job as if it were live: the same events, in the same order, at any speed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tcl.errors import UserError
from tcl.jobs.store import Job, find, read_events
from tcl.progress import Progress

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
