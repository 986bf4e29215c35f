"""The tuning loop: propose, measure, learn, until the trials are spent.

    result = tune("matmul:256,256,256", trials=64, model="xgb", out=Path("out"))

Everything that is measured is in the dataset `out` before the next batch is proposed: a run that is stopped or killed goes on
from there when it is started again with the same `out`, to the same total number of trials.

What it tells while it works: `tcl.tuning.events`.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tcl.errors import UserError
from tcl.machine import busy
from tcl.programs.types import Measurement, Platform, Task, format_id
from tcl.progress import Progress, Stopped
from tcl.tuning import events
from tcl.tuning import journal as sources
from tcl.tuning.allocate import Account, next_task
from tcl.tuning.baseline import check_rivals, rival_latencies, untuned_latency
from tcl.tuning.best import best_trial
from tcl.tuning.cuda import COMPILE_TIMEOUT_S, missing
from tcl.tuning.export import export_network, export_task
from tcl.tuning.journal import Journal, Trial
from tcl.tuning.measure import Measurer
from tcl.tuning.operators import is_operator
from tcl.tuning.remote import RemoteMeasurer, Tracker
from tcl.tuning.roofline import Roofline, roofline
from tcl.tuning.search import base as strategies
from tcl.tuning.subject import Subject, check_name, subject
from tcl.tuning.targets import platform_for, remote_platform
from tcl.workspace import workspace

PHASES = ("tasks", "baselines", "search", "final", "network", "export")
BATCH = 16
"""Programs a batch of a single operator, unless its strategy wants more. A network's batches are smaller: see `full_batch`."""
FIRST = ("pytorch",)
"""Timed before the search, so that its charts have them; others after it: compiling with `torch.compile` alone takes a while, and
a person waits for the first result."""
BUILD_PATIENCE = 8.0
"""A candidate whose build takes this many times the median of its task is given up; see `Measurer`."""
RUN_CUTOFF = 2.0
"""A candidate this many times slower than the task's best so far is timed by one repeat: how slow it is matters to nobody."""


@dataclass
class Run:
    """One tuning run in progress."""

    subject: Subject
    platform: Platform
    journal: Journal
    trials: int
    model: str
    strategy: str
    seed: int
    progress: Progress
    measurer: Measurer | RemoteMeasurer
    rivals: Sequence[str] = ("pytorch",)
    cc: str = ""
    started: float = field(default_factory=time.monotonic)
    seconds: Counter[str] = field(default_factory=Counter)
    scored: int = 0
    batches: int = 0
    shared: dict[str, Any] = field(default_factory=dict)
    searches: dict[int, strategies.Search] = field(default_factory=dict)
    roofline: Roofline | None = None
    stopped: bool = False

    @property
    def target(self) -> dict[str, Any]:
        return json.loads(self.platform.target)

    @property
    def full_batch(self) -> int:
        return full_batch(self.strategy, self.trials, len(self.subject.tasks))

    def phase(self, name: str, task: str = "") -> None:
        self.progress.event("phase", name=name, task=task)

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[part] += time.monotonic() - started


def tune(
    text: str,
    *,
    trials: int,
    out: Path,
    model: str = "xgb",
    strategy: str = "decisions",
    profile: str = "native",
    seed: int = 0,
    warm_start: Path | None = None,
    export: bool = True,
    rivals: Sequence[str] = ("pytorch",),
    tracker: Tracker | None = None,
    cc: str = "",
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Tune an operator or a network; returns the command's JSON object (see DESIGN.md's keys).

    Args:
        text: `matmul:256,256,256` or `resnet18`.
        trials: programs to measure in all, those of earlier runs into `out` included.
        model: "random", "xgb" or the folder of a saved cost model.
        strategy: a name of `tcl.tuning.search.base.STRATEGIES`.
        profile: "native" or an instruction-set profile of this machine.
        warm_start: a dataset whose measurements of the same tasks on the same platform are used as well.
        rivals: what the result is compared with, names of `tcl.tuning.baseline.RIVALS`; nothing where programs run elsewhere.
        tracker: programs run on its devices instead of this machine; their platform is called like the tracker's key, and
            `profile` may be TVM's description of them (`tcl.tuning.targets.remote_platform`).
        cc: the compiler that links for those devices; "" for this machine's.

    Raises:
        UserError: unknown subject, model, strategy or target; a folder that is no dataset.
    """
    started = time.monotonic()
    progress = progress or Progress()
    if trials < 1:
        raise UserError(f"{trials} trials are too few.", hint="Measure at least one program: --trials 64.")
    strategies.strategy_of(strategy)
    check_name(text)
    check_rivals(rivals)
    if model not in ("random", "xgb"):
        from tcl.models.base import read_card

        read_card(model)
    platform = platform_for(profile) if tracker is None else remote_platform(tracker.key, profile)
    gpu = platform.kind != "cpu"
    if gpu and (why := missing(json.loads(platform.target))):
        raise UserError(f"{platform.name} cannot be tuned here: {why}")
    if gpu and not is_operator(text):
        raise UserError("Whole networks are tuned for CPUs only.", hint="For a GPU, tune an operator such as matmul:256,256,256.")
    progress.event("phase", name="tasks", task="")
    with busy():
        what = subject(text)
    if tracker is not None:
        tracker.devices()  # nothing is written before it is known to answer
    journal = Journal(out, platform, what.tasks)
    if warm_start is not None:
        journal.warm_start(warm_start)
    with _measurer(platform, tracker, cc) as measurer:
        beside = rivals if tracker is None and not gpu else ()  # they run on this machine's CPU
        run = Run(what, platform, journal, trials, model, strategy, seed, progress, measurer, beside, cc, started)
        run.seconds["tasks"] = time.monotonic() - started
        events.about(run)
        _measure_roofline(run)
        result = _tune_operator(run, export) if what.operator else _tune_network(run, export)
    result["seconds"] = time.monotonic() - run.started
    result["time_s"] = events.times(run)  # exporting included
    progress.event("result", **result)
    return result


def _measurer(platform: Platform, tracker: Tracker | None, cc: str) -> Measurer | RemoteMeasurer:
    if tracker is not None:
        return RemoteMeasurer(tracker, cc=cc)
    if platform.kind == "cpu":
        return Measurer(build_patience=BUILD_PATIENCE, cutoff=RUN_CUTOFF)
    # CUDA maps far more address space than it uses, and its compiler takes seconds
    return Measurer(memory_bytes=1 << 46, build_timeout_s=COMPILE_TIMEOUT_S)


# -- the loop ----------------------------------------------------------------------------------------------------------


def search(run: Run) -> None:
    """Measure until `run.trials` programs are measured, the design spaces are exhausted or the user stops."""
    journal, platform = run.journal, run.platform
    accounts = [Account(t, w) for t, w in zip(run.subject.tasks, run.subject.weights, strict=True)]
    for account in accounts:
        best = journal.best_s(account.task)
        if math.isfinite(best):
            run.measurer.best[platform.name, account.task.id] = best
        if journal.trials[account.task.id]:
            account.add(journal.count(account.task), best)
        events.account(run, account)
    run.phase("search")
    events.spent(run)
    done = journal.count()
    while done < run.trials:
        try:
            run.progress.check()
        except Stopped:
            run.stopped = True
            return
        account = next_task(accounts)
        if account is None:
            return
        proposals = _propose(
            run, account.task, min(batch_size(run.strategy, run.full_batch, run.journal.count(account.task)), run.trials - done)
        )
        if not proposals:
            account.exhausted = True
            continue
        programs = [p.program for p in proposals]
        with run.timed("measure"):
            measurements = _measure(run, account.task, proposals)
        journal.add(programs, measurements)
        run.batches += 1
        events.batch(run, run.batches, account.task, proposals, measurements, done)
        done += len(programs)
        with busy():
            run.searches[account.task.id].observe(programs, [m.latency_s for m in measurements])
        account.add(journal.count(account.task), journal.best_s(account.task))
        events.account(run, account)
        events.spent(run)
        run.progress.step(done, run.trials, "trials")


def _propose(run: Run, task: Task, n: int) -> list[strategies.Proposal]:
    with busy():
        if task.id not in run.searches:
            made = strategies.make(
                run.strategy, task, run.target, run.model, platform=run.platform, seed=run.seed, shared=run.shared, batch=run.full_batch
            )
            run.searches[task.id] = made
            past = [t for t in run.journal.trials[task.id].values() if t.costs or t.error]
            made.observe([t.program for t in past], [t.latency_s for t in past])
        current = run.searches[task.id]
        proposals = current.propose(n)
    run.scored = sum(s.scored for s in run.searches.values())
    return proposals


def _measure(run: Run, task: Task, proposals: list[strategies.Proposal]) -> list[Measurement]:
    """One measurement a proposal, in order; random and chosen programs carry different sources."""
    measured = run.measurer.measure(run.platform, task, [p.program for p in proposals], source=sources.SEARCH)
    return [replace(m, source=sources.RANDOM) if p.random else m for p, m in zip(proposals, measured, strict=True)]


def batch_size(strategy: str, full: int, measured: int) -> int:
    """Programs of the next batch of a task of which so many were measured: until a batch has its full size, it is as large as that."""
    return min(full, max(strategies.strategy_of(strategy).first_batch or full, measured))


def full_batch(strategy: str, trials: int, tasks: int) -> int:
    """Programs a batch. Each task of a network should be served at least twice, and no batch be so small that building in parallel is
    lost."""
    if tasks == 1:
        return max(BATCH, min(strategies.strategy_of(strategy).largest_batch, trials // 8))
    return max(2, min(BATCH, trials // (2 * tasks)))


# -- what comes out ----------------------------------------------------------------------------------------------------


def _tune_operator(run: Run, export: bool) -> dict[str, Any]:
    (task,) = run.subject.tasks
    run.phase("baselines", task.name)
    # an unscheduled program binds no threads: a GPU cannot run it
    untuned = untuned_latency(run.measurer, run.platform, task) if run.platform.kind == "cpu" else math.nan
    run.measurer.best.pop((run.platform.name, task.id), None)  # the cut-off compares with tuned programs
    rivals = _compare(run, [name for name in run.rivals if name in FIRST])
    run.progress.event("baseline", untuned_latency_s=events.finite(untuned), **rivals)
    search(run)
    run.phase("final", task.name)
    trial, verdict = best_trial(run, task)
    later = [] if run.stopped else [name for name in run.rivals if name not in FIRST]
    if later:
        more = _compare(run, later)
        rivals |= {f"{name}_latency_s": more[f"{name}_latency_s"] for name in later}
        rivals["rivals_failed"] |= more["rivals_failed"]
        run.progress.event("baseline", untuned_latency_s=events.finite(untuned), **rivals)
    result = _common(run) | {
        "untuned_latency_s": events.finite(untuned),
        **rivals,
        "best_latency_s": trial.latency_s if trial else None,
        "median_latency_s": events.finite(run.journal.median_s(task, random_only=True)),
        "median_measured_latency_s": events.finite(run.journal.median_s(task, random_only=False)),
        "correct": trial is not None,
        "max_error": max(verdict.unscheduled, verdict.pytorch or 0.0) if verdict else None,
        "best_program": format_id(trial.program.id) if trial else None,
        "gflops": task.flops / trial.latency_s / 1e9 if trial else None,
    }
    if run.roofline:
        result["roofline_share"] = run.roofline.share(task, result["best_latency_s"])
    if trial and export:
        run.phase("export", task.name)
        with busy(), run.timed("export"):
            result["export"] = export_task(run.journal.dataset.path / "export", run.subject.operator, task, trial, run.platform, run.cc)
    return result


def _compare(run: Run, rivals: Sequence[str]) -> dict[str, Any]:
    with run.timed("compare"):
        return rival_latencies(run.subject.operator, rivals, run.measurer.threads)


def _measure_roofline(run: Run) -> None:
    """Where programs run on this machine's CPU."""
    if not isinstance(run.measurer, Measurer) or run.platform.kind != "cpu":
        return
    with run.timed("roofline"):
        run.roofline = roofline(run.measurer.threads)
    if run.roofline:
        run.progress.event("roofline", **run.roofline.told())


def _tune_network(run: Run, export: bool) -> dict[str, Any]:
    from tcl.tuning.network_result import finish_network

    search(run)
    bests: dict[int, Trial] = {}
    for task in run.subject.tasks:
        run.phase("final", task.name)
        trial, _ = best_trial(run, task)
        if trial is not None:
            bests[task.id] = trial
    run.phase("network")
    with run.timed("network"):
        outcome = finish_network(run, bests)
    result = _common(run) | outcome
    if export:
        run.phase("export")
        with busy(), run.timed("export"):
            result["export"] = export_network(run.journal.dataset.path / "export", run.subject.name, run.subject.tasks, bests, run.platform)
    return result


def _common(run: Run) -> dict[str, Any]:
    counted = [t for group in run.journal.trials.values() for t in group.values() if t.counted]
    return {
        "subject": run.subject.name,
        "platform": run.platform.name,
        "strategy": run.strategy,
        "cost_model": run.model,
        "seed": run.seed,
        "trials": len(counted),
        "measured": sum(math.isfinite(t.latency_s) for t in counted),
        "failed": dict(run.journal.failures()),
        "stopped": run.stopped,
        "scored": run.scored,
        "machine": run.platform.description,
        "threads": run.measurer.threads,
        "versions": events.versions(),
        "dataset": str(run.journal.dataset.path),
    } | ({"roofline": run.roofline.told()} if run.roofline else {})


def default_folder(text: str, model: str, strategy: str, profile: str, seed: int, key: str = "") -> Path:
    """Where a run goes when the user names no folder: the same for the same settings, so that it goes on where it was. `key`: of
    the devices that programs run on, "" for this machine."""
    name = "-".join([text, Path(model).name, strategy, key or profile, f"s{seed}"])
    return workspace() / "tuning" / re.sub(r"[^A-Za-z0-9_.-]+", "-", name)
