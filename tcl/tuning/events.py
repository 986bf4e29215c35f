"""What a tuning run tells while it works: everything that a live view, a replay or a report draws.

- "about": subject, platform, machine (its description), threads, cost_model, strategy, seed, trials (asked for), versions, dataset
  (its folder)
- "roofline": flops, bandwidth (per second), threads, machine; where programs run on this machine's CPU
- "phase": name (one of `tcl.tuning.tune.PHASES`), task (its name, or "")
- "baseline": untuned_latency_s and the rivals' latencies, of an operator; PyTorch's before the search, the others' after it
- "task": task (id), name, operator, weight, trials, best_s, flops, bytes
- "measured": trial (counts from 1), batch (counts from 1), task (id), latency_s (or null), costs_s, error, best_s (of the task),
  predicted (the model's score, or null for a random program), random, program (id), seconds (since the start), scored (candidates
  so far)
- "time": seconds (since the start), time_s (where they went, see `times`); after every batch
- "best": task (id), name, operator, extents, format, program (id), schedule, latency_s; of each task at the end
- "result": the command's JSON object
"""

from __future__ import annotations

import math
import platform
import time
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from tcl.programs.types import Measurement, Task, format_id
from tcl.tuning.allocate import Account
from tcl.tuning.journal import Trial
from tcl.tuning.search.base import Proposal

if TYPE_CHECKING:
    from tcl.tuning.tune import Run

PACKAGES = ("apache-tvm", "torch", "xgboost", "onnxruntime", "numpy")


def about(run: Run) -> None:
    """What is tuned, where, with what."""
    run.progress.event(
        "about", subject=run.subject.name, platform=run.platform.name, machine=run.platform.description, threads=run.measurer.threads,
        cost_model=run.model, strategy=run.strategy, seed=run.seed, trials=run.trials, versions=versions(),
        dataset=str(run.journal.dataset.path),
    )  # fmt: skip


def batch(run: Run, number: int, task: Task, proposals: Sequence[Proposal], measurements: Sequence[Measurement], done: int) -> None:
    """One "measured" a program of the batch; `done` trials came before it."""
    for i, (proposal, m) in enumerate(zip(proposals, measurements, strict=True)):
        run.progress.event(
            "measured", trial=done + i + 1, batch=number, task=format_id(task.id), program=format_id(m.program),
            latency_s=finite(m.latency_s), costs_s=list(m.costs_s), error=m.error, best_s=finite(run.journal.best_s(task)),
            predicted=proposal.score, random=proposal.random, seconds=time.monotonic() - run.started, scored=run.scored,
        )  # fmt: skip


def account(run: Run, of: Account) -> None:
    """A task: how often it was measured, and its best so far."""
    task = of.task
    run.progress.event(
        "task", task=format_id(task.id), name=task.name, operator=task.operator, weight=of.weight, flops=task.flops, bytes=task.bytes,
        trials=run.journal.count(task), best_s=finite(run.journal.best_s(task)),
    )  # fmt: skip


def spent(run: Run) -> None:
    """Where the time went so far."""
    run.progress.event("time", seconds=time.monotonic() - run.started, time_s=times(run))


def best(run: Run, task: Task, trial: Trial) -> None:
    """The program that a task ends with."""
    run.progress.event(
        "best", task=format_id(task.id), name=task.name, operator=task.operator, extents=list(task.extents), format=task.format,
        program=format_id(trial.program.id), schedule=trial.program.schedule, latency_s=trial.latency_s,
    )  # fmt: skip


def times(run: Run) -> dict[str, float]:
    """Seconds by what they were spent on.

    Apart from each other: "tasks" (reading the network), "roofline", "compare" (timing what the result is compared with), "space"
    (learning the design spaces), "random" (drawing programs), "search", "learn", "build", "run", "waiting" (for other work to end),
    "check", "network", "export". Within "search": "features", "model", "validate". Within all that a "measure" contains: "build", "run"
    and "waiting" of the search.
    """
    found = Counter(run.seconds)
    for made in run.searches.values():
        found.update(made.seconds)
    stats = run.measurer.stats
    found.update({"build": stats.build_s, "run": stats.run_s, "waiting": stats.waiting_s})
    return {name: round(value, 3) for name, value in found.items()}


def versions() -> dict[str, str]:
    """Of Python and of what compiles, learns and is compared with; what is not installed is left out."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def finite(value: float) -> float | None:
    """JSON has no NaN."""
    return value if math.isfinite(value) else None
