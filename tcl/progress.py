"""How long work tells what it is doing, and hears that it should pause or stop.

Every long function takes a `Progress`. On the command line it draws on standard error; in a background job it appends
events to the job's folder and reads its control file (`tcl.jobs`). The events are also the recording that a replay plays,
so an event must hold everything that a live view draws.
"""

from __future__ import annotations

import sys
import time
from typing import Any


class Stopped(Exception):
    """Raised by `Progress.check` when the user asked to stop: keep what is there and end."""


class Progress:
    """The base: silent and never interrupted. Subclasses override `event` and `check`."""

    def event(self, kind: str, **data: Any) -> None:
        """Report something a view can draw: `kind` is a word ("measured", "epoch", "best"), `data` is plain JSON data."""

    def step(self, done: float, total: float, message: str = "") -> None:
        """Report how far the work is. `total` 0 means unknown."""

    def check(self) -> None:
        """Called between steps: waits while the job is paused; raises `Stopped` when it should finish here."""


class ConsoleProgress(Progress):
    """One line on standard error, rewritten a few times a second, with the time left."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self._last = 0.0
        self._tty = sys.stderr.isatty()
        self._phase = ""

    def event(self, kind: str, **data: Any) -> None:
        """A phase that begins is told at once: its first step may be a while away."""
        if kind == "phase" and data.get("name", "") != self._phase:
            self._phase = data["name"]
            start, end = ("\r\x1b[2K", "") if self._tty else ("", "\n")
            print(f"{start}{self._phase} …", end=end, file=sys.stderr, flush=True)

    def step(self, done: float, total: float, message: str = "") -> None:
        now = time.monotonic()
        if now - self._last < (0.2 if self._tty else 10.0) and done != total:
            return
        self._last = now
        left = f", {format_seconds((now - self.started) / done * (total - done))} left" if total and 0 < done < total else ""
        share = f"{done:g}/{total:g}" if total else f"{done:g}"
        text = f"{message} {share}{left}".strip()
        print(f"\r\x1b[2K{text}" if self._tty else text, end="" if self._tty and done != total else "\n", file=sys.stderr, flush=True)


def format_seconds(seconds: float) -> str:
    """A duration for people: 0.4 ms, 12 s, 3 min 20 s, 1 h 5 min."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.3g} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"
