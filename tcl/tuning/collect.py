"""Collecting a dataset: tasks -> a pool of random programs -> measurements on one or more platforms, appended as they come.

The order is such that a stop at any moment leaves a useful dataset: in rounds of a few programs, every task; within a task,
the same programs on every platform. What was committed is never lost and never measured again: a program's identity is
its content, so a second run finds what is missing by asking the dataset.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from tcl.errors import UserError
from tcl.machine import busy
from tcl.programs.dataset import Dataset
from tcl.programs.types import Measurement, Platform, Program, Task, content_id
from tcl.programs.writer import Writer
from tcl.progress import Progress, Stopped

ROUND = 32
"""Programs of a task that are measured before the next task has its turn."""


@dataclass
class Collected:
    """What a run of `collect` did."""

    tasks: int = 0
    programs: int = 0  # in the pool of these tasks
    selected: int = 0  # programs that the budget covers
    measured: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    already_there: int = 0  # (program, platform) pairs found measured
    by_platform: Counter[str] = field(default_factory=Counter)
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
    programs_per_task: int = 256,
    budget: float = 1.0,
    sampler: str = "random",
    seed: int = 0,
    description: str = "",
    progress: Progress | None = None,
) -> Collected:
    """Fill the dataset at `out`; run it again to continue.

    Args:
        names: networks and operators, see `find_tasks`.
        programs_per_task: size of each task's pool; a small design space may hold fewer.
        budget: the share of the pool, in [0, 1], that is measured; the rest stays in the dataset as not sampled.
        sampler: which programs are measured; "random" takes them in an order that depends on `seed` and their ids only.
    """
    from tcl.tuning.measure import Measurer

    if sampler != "random":
        raise UserError(f"{sampler!r} is not a sampler that can collect from nothing.", hint="Use --sampler random.")
    progress = progress or Progress()
    started = time.monotonic()
    result = Collected()
    tasks = find_tasks(names)
    dataset = Dataset.create(out, description)
    with Writer(dataset) as writer:
        for platform in platforms:
            writer.add_platform(platform)
        writer.add_tasks(tasks)
    result.tasks = len(tasks)
    try:
        pools = _fill_pools(dataset, tasks, platforms[0], programs_per_task, seed, progress)
        order = {t.id: _selection(pools[t.id], budget, seed) for t in tasks}
        done = _measured(dataset, [p.name for p in platforms])
        result.programs = sum(len(p) for p in pools.values())
        result.selected = sum(len(p) for p in order.values())
        total = result.selected * len(platforms)
        result.already_there = sum((p.id, f.name) in done for s in order.values() for p in s for f in platforms)
        if result.already_there == total:
            return result
        with Measurer() as measurer:
            for (platform, task), best in _best(dataset).items():
                measurer.best[platform, task] = best
            finished, missing_in_all = 0, total - result.already_there
            for begin in range(0, max(len(s) for s in order.values()), ROUND):
                for task in tasks:
                    chosen = order[task.id][begin : begin + ROUND]
                    for platform in platforms:
                        missing = [p for p in chosen if (p.id, platform.name) not in done]
                        if not missing:
                            continue
                        progress.check()
                        rows = measurer.measure(platform, task, missing, source="tcl collect")
                        with Writer(dataset) as writer:
                            writer.add_measurements(rows)
                        finished += len(rows)
                        _count(result, rows, measurer.stats.timed_again, measurer.stats.busy)
                        progress.event("measured", task=task.name, platform=platform.name, programs=len(rows))
                        progress.step(finished, missing_in_all, f"{task.name} on {platform.name}")
    except Stopped:
        result.stopped = True
    finally:
        result.seconds = time.monotonic() - started
    return result


def _fill_pools(
    dataset: Dataset, tasks: list[Task], platform: Platform, size: int, seed: int, progress: Progress
) -> dict[int, list[Program]]:
    """Each task's pool, `size` programs where its design space holds as many; new ones are added to the dataset."""
    from tcl.tuning.design_space import sample_programs

    frame = dataset.programs(["program", "task", "schedule"], tasks=[t.id for t in tasks])
    pools: dict[int, list[Program]] = {t.id: [] for t in tasks}
    for task, schedule in zip(frame["task"], frame["schedule"], strict=True):
        pools[int(task)].append(Program(int(task), schedule))
    target = json.loads(platform.target)
    for index, task in enumerate(tasks):
        pool = pools[task.id]
        if len(pool) < size:
            progress.check()
            with busy():
                # a pool that was filled in two runs must not draw the same candidates twice
                fresh = sample_programs(task, target, size - len(pool), seed=seed + 7919 * len(pool), exclude=[p.id for p in pool])
            pool.extend(fresh)
            with Writer(dataset) as writer:
                writer.add_programs(fresh)
        progress.step(index + 1, len(tasks), f"pool of {task.name}")
    return pools


def _selection(pool: list[Program], budget: float, seed: int) -> list[Program]:
    """The first `budget` of the pool in an order that only the programs' ids and the seed decide."""
    order = sorted(pool, key=lambda p: content_id(str(seed), str(p.id)))
    return order[: int(np.ceil(budget * len(order)))]


def _measured(dataset: Dataset, platforms: list[str]) -> set[tuple[int, str]]:
    rows = dataset.measurements(["program", "platform"], platforms=platforms)
    return set(zip(rows["program"].tolist(), rows["platform"].astype(str), strict=True))


def _best(dataset: Dataset) -> dict[tuple[str, int], float]:
    rows = dataset.measurements(["platform", "task", "latency_s"]).dropna()
    best = rows.groupby([rows["platform"].astype(str), "task"])["latency_s"].min()
    return {(str(p), int(t)): float(v) for (p, t), v in best.items()}


def _count(result: Collected, rows: list[Measurement], timed_again: int, disturbed: int) -> None:
    result.measured += sum(not r.error for r in rows)
    result.failed.update(r.error for r in rows if r.error)
    result.by_platform.update(r.platform for r in rows)
    result.timed_again, result.busy = timed_again, disturbed
