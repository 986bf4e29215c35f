"""Collecting a dataset: tasks -> a pool of programs -> measurements on one or more platforms, appended as they come.

Which programs of the pool are measured is said by a plan, by chance ("random": the same programs on every platform), or by a
sampler that learns from what it measured: pick, measure, train, pick again, on each platform by itself.

The order is such that a stop at any moment leaves a useful dataset: in turns of a few programs, every task. What was committed is
never lost and never measured again: a program's identity is its content, so a second run finds what is missing by asking the
dataset. A sampler's round is written down before it is measured, so that a run that was killed finishes that very round.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from tcl.errors import UserError
from tcl.machine import busy
from tcl.programs.dataset import Dataset
from tcl.programs.selection import list_selections, load_selection, save_selection
from tcl.programs.types import Measurement, Platform, Program, Task, content_id
from tcl.programs.writer import Writer
from tcl.progress import Progress, Stopped
from tcl.sampling.base import budget_of
from tcl.sampling.plan import Request, inputs_of, models_of_others, read_plan
from tcl.sampling.registry import make_sampler
from tcl.sampling.rounds import Rounds

if TYPE_CHECKING:
    from tcl.models.base import CostModel
    from tcl.tuning.measure import Measurer

TURN = 32
"""Programs of a task that are measured before the next task has its turn."""
FORMAT = "metaschedule"
"""The only format whose programs can be compiled here."""


@dataclass
class Collected:
    """What a run of `collect` did."""

    tasks: int = 0
    programs: int = 0  # in the pool of these tasks
    selected: int = 0  # programs that the budget (or the plan) covers, on each platform
    measured: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    already_there: int = 0  # (program, platform) pairs found measured
    by_platform: Counter[str] = field(default_factory=Counter)
    selections: list[str] = field(default_factory=list)  # kept in the dataset: which round picked what, with which scores
    seconds: float = 0.0
    timed_again: int = 0  # batches timed again because the machine was busy
    busy: int = 0  # batches that stayed disturbed
    stopped: bool = False


def find_tasks(names: Sequence[str]) -> list[Task]:
    """The tasks of networks and operators, one each; a task that several networks hold names them all. Tasks that compute
    nothing (transposes, reshapes) are left out: they have next to no schedules.

    Raises:
        UserError: a name is neither a network nor an operator.
    """
    from tcl.tuning.networks import NETWORKS, network_tasks
    from tcl.tuning.operators import forms, is_operator, operator_task

    found: dict[int, Task] = {}
    for name in names:
        if is_operator(name):
            tasks = [operator_task(name)]
        elif name in NETWORKS:
            tasks = [t for t in network_tasks(name) if t.flops > 0]
        else:
            raise UserError(
                f"{name!r} is neither a network nor an operator.",
                hint=f"Networks: {', '.join(NETWORKS)}. Operators: {forms()}.",
            )
        for task in tasks:
            known = found.get(task.id)
            networks = {u.network: u for u in (*(known.networks if known else ()), *task.networks)}
            found[task.id] = replace(known or task, networks=tuple(networks.values()))
    return list(found.values())


def collect(
    names: Sequence[str],
    out: str | Path,
    platforms: Sequence[Platform],
    *,
    source: str | Path | None = None,
    plan: str | Path | None = None,
    programs_per_task: int = 256,
    budget: float | str = 1.0,
    sampler: str = "random",
    rounds: int = 3,
    seed: int = 0,
    description: str = "",
    progress: Progress | None = None,
) -> Collected:
    """Fill the dataset at `out`; run it again to continue.

    Args:
        names: networks and operators, see `find_tasks`, whose pools are drawn at random.
        source: a dataset whose pool is taken instead.
        plan: a measurement plan (`tcl.sampling.plan.read_plan`): exactly its programs are measured, in its order. They come from
            `source`, or from `out` itself.
        programs_per_task: size of each task's pool; a small design space may hold fewer.
        budget: a share of the pool (0.1, "10%") or a number of programs ("500"), on each platform. What the dataset has measured of
            the pool counts, first rounds included. The rest of the pool stays in the dataset as not sampled.
        sampler: which programs are measured; "random" takes them in an order that `seed` and their ids decide.
        rounds: in how many parts the sampler spends the budget; it learns from each before it picks the next.

    Raises:
        UserError: a name, sampler, budget, plan or dataset that makes no sense; nothing was written then.
    """
    progress = progress or Progress()
    started = time.monotonic()
    result = Collected()
    make_sampler(sampler)  # a mistyped name must not cost a pool
    planned = None if plan is None else read_plan(Path(plan))
    tasks = _tasks(names, Path(source or out), planned)
    dataset = Dataset.create(out, description)
    with Writer(dataset) as writer:
        for platform in platforms:
            writer.add_platform(platform)
        writer.add_tasks(tasks)
        if source is not None and Path(source).resolve() != dataset.path.resolve():
            writer.add_programs(Dataset.open(source).table("programs", tasks=[t.id for t in tasks]))
    result.tasks = len(tasks)
    with ExitStack() as stack:
        try:
            if names:
                _fill_pools(dataset, tasks, platforms[0], programs_per_task, seed, progress)
            run = _Run(dataset, tasks, result, progress, stack)
            if planned is not None:
                run.measure_all(_rows(run.pool, planned), platforms)
            elif sampler == "random":
                run.measure_all(_by_chance(run.pool, budget_of(budget, len(run.pool)), seed), platforms)
            else:
                for platform in platforms:
                    run.in_rounds(platform, sampler, budget_of(budget, len(run.pool)), rounds, seed, source)
        except Stopped:
            result.stopped = True
        finally:
            result.seconds = time.monotonic() - started
    return result


class _Run:
    """Measuring rows of one pool into one dataset. `pool`: program, task, schedule of every program of the tasks."""

    def __init__(self, dataset: Dataset, tasks: list[Task], result: Collected, progress: Progress, stack: ExitStack) -> None:
        self.dataset, self.result, self.progress, self.stack = dataset, result, progress, stack
        self.tasks = {t.id: t for t in tasks}
        self.pool = dataset.programs(["program", "task", "schedule"], tasks=list(self.tasks))
        result.programs = len(self.pool)
        self._measurer: Measurer | None = None

    def measure_all(self, rows: np.ndarray, platforms: Sequence[Platform]) -> None:
        """What is missing of int (k,) `rows`, on every platform: the same programs on each, a task at a time."""
        done = {p.name: set(self.known(p).index) for p in platforms}
        programs = self.pool["program"].to_numpy()[rows].tolist()
        self.result.selected = len(rows)
        self.result.already_there = sum(program in there for there in done.values() for program in programs)
        left = len(rows) * len(platforms) - self.result.already_there
        finished = 0
        for part in self.turns(rows):
            for platform in platforms:
                missing = part[[p not in done[platform.name] for p in self.pool["program"].to_numpy()[part].tolist()]]
                if len(missing):
                    self.measure(missing, platform)
                    finished += len(missing)
                    self.progress.step(finished, left, f"{self.name(part)} on {platform.name}")

    def in_rounds(self, platform: Platform, sampler: str, budget: int, rounds: int, seed: int, source: str | Path | None) -> None:
        """Pick, measure, train, pick again, until `budget` programs of the pool are measured on the platform."""
        latency = self.known(platform).reindex(self.pool["program"])
        known_s = np.where(latency["error"].isna(), np.nan, latency["latency_s"].fillna(np.inf))
        spent = int((~np.isnan(known_s)).sum())
        self.result.selected = budget
        self.result.already_there += min(spent, budget)
        name = f"{sampler.partition(':')[0]}-{platform.name}"
        kept = load_selection(self.dataset, name)[0] if name in list_selections(self.dataset) else None
        if kept is not None:  # a round that was cut short comes to its end first
            asked = _rows(self.pool, kept.loc[kept["program"].isin(self.pool["program"]), "program"].to_numpy())
            known_s, spent = self.ask(platform, asked[np.isnan(known_s[asked])][: max(budget - spent, 0)], known_s, spent, budget)
        if spent >= budget:
            return
        strategy = make_sampler(sampler)
        with busy():
            inputs = inputs_of(self.dataset, self.pool, platform.name)
            cold = strategy.judges_by and not np.isfinite(known_s).any()
            others = _others(self.dataset, source, platform, seed) if cold else []
            loop = Rounds(
                inputs, self.pool["task"].to_numpy(), budget, sampler=strategy, rounds=rounds, seed=seed, others=others,
                known_s=known_s, resumed=True, progress=self.progress,
            )  # fmt: skip
        about = {"sampler": sampler, "budget": budget, "rounds": rounds, "seed": seed, "platform": platform.name, "by": "tcl collect"}
        while spent < budget:
            self.progress.check()
            with busy():
                asked = loop.ask()
            picked = pd.concat([self.pool.loc[asked, ["program", "task"]], loop.scores().loc[asked]], axis=1)
            picked["order"] = spent + np.arange(len(asked))
            picked["round"] = 0 if kept is None else int(kept["round"].max()) + 1
            kept = picked if kept is None else pd.concat([kept, picked])
            save_selection(self.dataset, name, kept.reset_index(drop=True), about)
            known_s, spent = self.ask(platform, asked, known_s, spent, budget)
            loop.tell(asked, known_s[asked])
        self.result.selections.append(name)

    def ask(self, platform: Platform, rows: np.ndarray, known_s: np.ndarray, spent: int, budget: int) -> tuple[np.ndarray, int]:
        """Measure int (k,) `rows`; returns the latencies (n,) with theirs filled in (infinite: failed), and what is spent then."""
        known_s = known_s.copy()
        for part in self.turns(rows):
            for row, measurement in zip(part, self.measure(part, platform), strict=True):
                known_s[row] = measurement.latency_s if not measurement.error else np.inf
            spent += len(part)
            self.progress.step(spent, budget, f"{self.name(part)} on {platform.name}")
        return known_s, spent

    def turns(self, rows: np.ndarray) -> list[np.ndarray]:
        """`rows` (int (k,), best first) in parts of one task each: the first few of every task, the next few of every task, …"""
        task = self.pool["task"].to_numpy()[rows]
        frame = pd.DataFrame({"row": rows, "task": task})
        frame["turn"] = frame.groupby("task").cumcount() // TURN
        place = {identity: i for i, identity in enumerate(self.tasks)}
        return [part["row"].to_numpy() for _, part in frame.groupby(["turn", frame["task"].map(place)], sort=True)]

    def measure(self, rows: np.ndarray, platform: Platform) -> list[Measurement]:
        """Measure programs of one task and commit the measurements, which come in the order of `rows`."""
        from tcl.tuning.measure import Measurer

        self.progress.check()
        if self._measurer is None:
            self._measurer = self.stack.enter_context(Measurer())
            self._measurer.best.update(_best(self.dataset))
        task = self.tasks[int(self.pool["task"].iloc[rows[0]])]
        programs = [Program(task.id, schedule) for schedule in self.pool["schedule"].iloc[rows]]
        found = self._measurer.measure(platform, task, programs, source="tcl collect")
        with Writer(self.dataset) as writer:
            writer.add_measurements(found)
        result, stats = self.result, self._measurer.stats
        result.measured += sum(not m.error for m in found)
        result.failed.update(m.error for m in found if m.error)
        result.by_platform.update(m.platform for m in found)
        result.timed_again, result.busy = stats.timed_again, stats.busy
        self.progress.event("measured", task=task.name, platform=platform.name, programs=len(found))
        return found

    def known(self, platform: Platform) -> pd.DataFrame:
        """program -> latency_s (NaN: failed), error of what was measured of the pool on the platform."""
        rows = self.dataset.refresh().labels([platform.name], tasks=list(self.tasks))
        return rows[rows["program"].isin(self.pool["program"])].set_index("program")[["latency_s", "error"]]

    def name(self, rows: np.ndarray) -> str:
        return self.tasks[int(self.pool["task"].iloc[rows[0]])].name


def _tasks(names: Sequence[str], source: Path, planned: np.ndarray | None) -> list[Task]:
    """The tasks to collect: those named, or those of the source's programs."""
    if names:
        if planned is not None:
            raise UserError("A plan says what is measured; networks and operators cannot be named beside it.")
        return find_tasks(names)
    tasks = Dataset.open(source).task_list()
    if planned is not None:
        pool = Dataset.open(source).programs(["program", "task"])
        wanted = set(pool["task"].iloc[_rows(pool, planned, source)])
        tasks = [t for t in tasks if t.id in wanted]
        foreign = [t for t in tasks if t.format != FORMAT]
        if foreign:
            raise UserError(
                f"{len(foreign)} tasks of the plan, such as {foreign[0].name!r}, come from {foreign[0].format} logs.",
                hint="Only programs collected or imported from TVM MetaSchedule can be compiled and measured here.",
            )
    tasks = [t for t in tasks if t.format == FORMAT]
    if not tasks:
        raise UserError(
            f"{source} holds no program that can be measured here.", hint="Name networks or operators, as in `tcl collect resnet18`."
        )
    return tasks


def _rows(pool: pd.DataFrame, programs: np.ndarray, source: Path | None = None) -> np.ndarray:
    """Where each of `programs` (int64 (k,)) is in the pool."""
    rows = pd.Index(pool["program"]).get_indexer(programs)
    if (rows < 0).any():
        raise UserError(
            f"{(rows < 0).sum()} of the plan's {len(programs)} programs are not in {source or 'the pool'}.",
            hint="Name the dataset that the plan was made from with --from.",
        )
    return rows


def _by_chance(pool: pd.DataFrame, budget: int, seed: int) -> np.ndarray:
    """int (budget,): rows in an order that only the programs' ids and the seed decide; each task in proportion to its pool."""
    chance = np.array([content_id(str(seed), str(p)) for p in pool["program"]], np.int64)
    frame = pd.DataFrame({"task": pool["task"].to_numpy(), "chance": chance}).sort_values("chance")
    tasks = frame.groupby("task")
    share = tasks.cumcount() / tasks["chance"].transform("size")
    return share.sort_values(kind="stable").index.to_numpy()[:budget]


def _fill_pools(dataset: Dataset, tasks: list[Task], platform: Platform, size: int, seed: int, progress: Progress) -> None:
    """Add new random programs to the dataset until each task has `size`, where its design space holds as many."""
    from tcl.tuning.design_space import sample_programs

    there = dataset.programs(["program", "task"], tasks=[t.id for t in tasks])
    target = json.loads(platform.target)
    for index, task in enumerate(tasks):
        pool = there.loc[there["task"] == task.id, "program"].tolist()
        if len(pool) < size:
            progress.check()
            with busy():
                # a pool that was filled in two runs must not draw the same candidates twice
                fresh = sample_programs(task, target, size - len(pool), seed=seed + 7919 * len(pool), exclude=pool)
            with Writer(dataset) as writer:
                writer.add_programs(fresh)
        progress.step(index + 1, len(tasks), f"pool of {task.name}")


def _others(dataset: Dataset, source: str | Path | None, platform: Platform, seed: int) -> list[CostModel]:
    """Models of the other platforms that this dataset, and the one the pool came from, have measurements of."""
    models: list[CostModel] = []
    for folder in dict.fromkeys([dataset.path.resolve(), *([Path(source).resolve()] if source else [])]):
        models += models_of_others(Dataset.open(folder), Request(folder, platform=platform.name, seed=seed))
    return models


def _best(dataset: Dataset) -> dict[tuple[str, int], float]:
    rows = dataset.measurements(["platform", "task", "latency_s"]).dropna()
    best = rows.groupby([rows["platform"].astype(str), "task"])["latency_s"].min()
    return {(str(p), int(t)): float(v) for (p, t), v in best.items()}
