"""A tuning job, a replay of one or a recording, as the views want it: its events on the run's own clock, and what a report says of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tcl.errors import UserError
from tcl.jobs.replay import Moment, recording
from tcl.jobs.store import Job, command_line, read_events
from tcl.views.recorded import TUNE, kind_of
from tcl.views.tuning_report import Recorded


def title_of(subject: str, strategy: str, model: str, trials: int | str) -> str:
    """What lists call a run: subject (an operator's text, a network or a file), method, size."""
    name = subject if ":" in subject else Path(subject).stem
    method = strategy if strategy == "random" else f"{strategy}/{Path(model).name}"
    return f"{name}, {method}, {trials} trials"


def speed_of(job: Job) -> float:
    """Recorded seconds a second: of a replay its speed, else 1."""
    about = job.about
    argv = list(about.get("argv", []))
    return float(argv[argv.index("--speed") + 1]) if about.get("kind") == "replay" and "--speed" in argv[:-1] else 1.0


def events_of(job: Job) -> list[dict[str, Any]]:
    """Its events; `t` in seconds of the run itself, though it be replayed at another speed."""
    speed = speed_of(job)
    return [e | {"t": float(e.get("t", 0.0)) * speed} for e in read_events(job.path / "events.jsonl")]


def is_tuning(job: Job) -> bool:
    """Whether it tunes, or replays a tuning run: that one is known by its recording before it has told anything itself."""
    return job.kind == "tune" or kind_of(job.progress["latest"]) == TUNE or kind_of(_recorded_latest(job)) == TUNE


def _recorded_latest(job: Job) -> dict[str, Any]:
    """The latest events of what a job replays, by kind; empty for any other job, or where the recording is gone."""
    argv = list(job.about.get("argv", []))
    if job.kind != "replay" or argv[:2] != ["jobs", "replay"] or len(argv) < 3:
        return {}
    try:
        return Moment(recording(argv[2])).progress["latest"]
    except UserError:
        return {}


def several(jobs: Sequence[Job]) -> list[Recorded]:
    """`recorded` of each, the end of its id behind names that would be the same."""
    titles = Counter(job.about.get("title") or job.id for job in jobs)
    return [recorded(job, f"{title} · {job.id[-4:]}" if titles[title := job.about.get("title") or job.id] > 1 else "") for job in jobs]


def recorded(job: Job, name: str = "") -> Recorded:
    """What a report says of a job. name: for people; its title when empty.

    Raises:
        UserError: it is no tuning run.
    """
    if not is_tuning(job):
        raise UserError(f"{job.id} is a job of kind {job.kind or 'unknown'}: reports are made of tuning runs.")
    about = job.about
    argv = [a for a in about.get("argv", []) if a != "--json"]
    return Recorded(
        name=name or about.get("title") or job.id, command=command_line(argv), events=events_of(job), result=job.result or {},
        created=float(about.get("created") or 0.0),
    )  # fmt: skip
