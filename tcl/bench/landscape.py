"""`tcl bench landscape`: search strategies on a recorded landscape, over many seeds in minutes.

    tcl bench landscape --set subject=dense:128,768,768 --set 'records=["DIR","DIR"]' --set 'methods=["decisions/xgb","decisions/kb"]'

Two runs of one search differ by more than most changes to it do: a change cannot be judged by a few runs, and many cost hours. Here all
programs of a task that were measured before (`tcl tune … --out DIR`, with several strategies and seeds) become a landscape: extremely
randomised trees, grown until a leaf holds one program, so that it is as rugged as programs are. A search asks it in place of the machine.

What comes out is interpolated, not measured, and says nothing about time: it chooses between variants of a search, on operators that are
not the benchmark's; `tcl bench tuning` then measures. Our reconstruction.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tcl.bench.priors import priors
from tcl.bench.report import machine
from tcl.errors import UserError
from tcl.programs.types import Program, Task
from tcl.progress import Progress
from tcl.workspace import workspace

if TYPE_CHECKING:
    import pandas as pd

    from tcl.programs.dataset import Dataset

TREES = 6
"""Few: a mean over many would smooth what is rugged."""
MARKS = (32, 64, 128, 256)
"""Trials after which the best so far is told."""


@dataclass(frozen=True)
class Landscape:
    """The latency of every program of a task, by what was measured of some. `best_s`: of the fastest measured one."""

    trees: Any
    footprints: Any
    best_s: float
    programs: int

    @classmethod
    def of(cls, task: Task, records: Sequence[Path]) -> Landscape:
        """From all measurements of a task on one platform in these datasets; what failed counts as the slowest that ran.

        Raises:
            UserError: nothing of the task was measured, or on several platforms.
        """
        import pandas as pd
        from sklearn.ensemble import ExtraTreesRegressor

        from tcl.programs.dataset import Dataset
        from tcl.tuning.design_space import module
        from tcl.tuning.search.decisions import split
        from tcl.tuning.search.footprints import Footprints

        frame = pd.concat([_measured(Dataset.open(path), task) for path in records])
        if frame["platform"].nunique() != 1 or not frame["latency_s"].notna().any():
            platforms = ", ".join(sorted(frame["platform"].unique())) or "none"
            raise UserError(
                f"A landscape needs measurements of {task.name} on one platform; these datasets have: {platforms}.",
                hint=f"Measure some first: tcl tune {task.name} --trials 320 --out DIR",
            )
        each = frame.groupby("schedule", sort=True)["latency_s"].median()
        latencies = each.fillna(each.max()).to_numpy()
        heads = dict.fromkeys(split(text)[0] for text in each.index)
        footprints = Footprints.of_any(module(task), map(json.loads, heads))
        trees = ExtraTreesRegressor(TREES, max_features=0.6, random_state=0)
        trees.fit(_features(list(each.index), footprints), np.log(latencies))
        return cls(trees, footprints, float(latencies.min()), len(each))

    def latencies(self, programs: Sequence[Program]) -> np.ndarray:
        """float64 (n,), seconds."""
        return np.exp(self.trees.predict(_features([p.schedule for p in programs], self.footprints)))


def run(
    *,
    progress: Progress,
    subject: str,
    records: Sequence[str],
    methods: Sequence[str] = ("random/random", "tvm/xgb", "decisions/xgb"),
    seeds: int = 16,
    trials: int = 320,
) -> dict[str, Any]:
    """One row a method and seed: the best latency after so many trials (`MARKS`, and `at_end`) over the best in the records.

    subject: an operator. methods: as in `tcl bench tuning`.
    """
    from tcl.tuning.operators import operator_task

    task = operator_task(subject)
    landscape = Landscape.of(task, [Path(path) for path in records])
    known = priors(methods, [subject], workspace() / "bench" / "priors", progress)
    rows: list[dict[str, Any]] = []
    plan = [(method, seed) for seed in range(seeds) for method in methods]
    for done, (method, seed) in enumerate(plan):
        progress.step(done, len(plan), f"{method} seed {seed}")
        progress.check()
        strategy, _, model = method.partition("/")
        best = _search(landscape, task, strategy, known.get(model, model), seed, trials) / landscape.best_s
        marks = {f"at_{mark}": float(best[min(mark, len(best)) - 1]) for mark in MARKS if mark < trials}
        rows.append({"subject": subject, "method": method, "seed": seed, **marks, "at_end": float(best[-1])})
    progress.step(len(plan), len(plan), "done")
    return {"bench": "landscape", "rows": rows, "programs": landscape.programs, "goals": [], "machine": machine()}


def _search(landscape: Landscape, task: Task, strategy: str, model: str, seed: int, trials: int) -> np.ndarray:
    """float64 (trials,): the best latency so far, in seconds, of a search in batches as the tuner's."""
    from tcl.tuning.search.base import make
    from tcl.tuning.targets import platform_for
    from tcl.tuning.tune import batch_size, full_batch

    platform = platform_for("native")
    full = full_batch(strategy, trials, 1)
    search = make(strategy, task, json.loads(platform.target), model, platform=platform, seed=seed, batch=full)
    found: list[float] = []
    while len(found) < trials:
        proposals = search.propose(min(batch_size(strategy, full, len(found)), trials - len(found)))
        if not proposals:
            break
        programs = [p.program for p in proposals]
        latencies = landscape.latencies(programs)
        search.observe(programs, latencies.tolist())
        found.extend(latencies.tolist())
    return np.minimum.accumulate(found)


def _measured(dataset: Dataset, task: Task) -> pd.DataFrame:
    """schedule, platform, latency_s: a row a measurement."""
    rows = dataset.measurements(["program", "platform", "latency_s"], tasks=[task.id])
    return rows.astype({"platform": str}).merge(dataset.programs(["program", "schedule"], tasks=[task.id]), on="program")


def _features(schedules: list[str], footprints: Any) -> np.ndarray:
    from tcl.features.flat import flat_of
    from tcl.features.tokenizer import tokenize
    from tcl.tuning.search.scorer import wide

    return wide(flat_of(tokenize(schedules, "metaschedule")), footprints)
