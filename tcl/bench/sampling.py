"""`tcl bench sampling`: train the same cost model on what each sampler picked, and rank programs of tasks it has not seen.

    tcl bench sampling --set data=DIR --set model=mamba --set cells=workspace/bench/sampling

A cell is one sampler at one fraction on one platform with one seed; each finished one is a JSON file in `cells`, and a run that was
stopped, or that reaches `time_limit_s`, goes on from there. The seed decides the split of the tasks, the sampler's choices and the
model's start, and is the same for all samplers. A model sees labels of the picked programs only, computed from the picked programs
only, and stops after a fixed number of epochs, so that no label of a validation program steers it. Choices about the samplers are
made with `part="valid"`.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tcl.bench.report import goal, machine
from tcl.errors import UserError
from tcl.files import write_json
from tcl.models.base import CostModel, Examples, checked, make
from tcl.programs.dataset import Dataset
from tcl.programs.splits import split_by_task
from tcl.programs.types import content_id, format_id
from tcl.progress import Progress
from tcl.sampling.coverage import coverage
from tcl.sampling.registry import ABLATIONS, make_sampler
from tcl.sampling.rounds import Rounds
from tcl.training.data import at_most, examples_of
from tcl.training.loop import Trainer
from tcl.training.metrics import Assignments

SAMPLERS = (
    "random", "kmeans", "kcenter", "uncertainty", "cdmpp", "balto", "alt", "typiclust", "probcover", "rdu", *ABLATIONS,
)  # fmt: skip
ALL = "all"
PRUNED_LOSS = 0.005
"""How much pairwise accuracy counts as lost where the pruning claim of arXiv 2304.05430 is looked at."""


@dataclass(eq=False)  # hashable, for the caches
class _Bench:
    dataset: Dataset
    operators: list[str]
    model: str
    model_settings: dict[str, Any]
    trainer: dict[str, Any]
    rounds: int
    part: str
    per_assignment: int
    cells: Path
    progress: Progress
    _examples: dict[Any, Any] = field(default_factory=dict)

    @cached_property
    def tasks(self) -> pd.DataFrame:
        return self.dataset.tasks()

    @cache  # noqa: B019 - lives as long as the run
    def labels(self, platform: str) -> pd.DataFrame:
        rows = self.dataset.labels([platform])
        if self.operators:
            known = self.tasks.set_index("task")["operator"]
            rows = rows[rows["task"].map(known).isin(self.operators)]
        return rows.reset_index(drop=True)

    def side(self, platform: str, seed: int, part: str) -> pd.DataFrame:
        rows = self.labels(platform)
        tasks = self.tasks[self.tasks["task"].isin(rows["task"].unique())]
        rows = rows[split_by_task(tasks, seed, (0.6, 0.2, 0.2)).mask(rows, part)]
        if part == "train" and self.per_assignment:
            rows = at_most(rows, self.per_assignment, seed)
        return rows.reset_index(drop=True)

    def examples(self, platform: str, seed: int, part: str) -> Examples:
        """Only the newest few are kept: a pool of flat features is large."""
        key = (platform, seed, part)
        if key not in self._examples:
            while len(self._examples) > 3:
                del self._examples[next(iter(self._examples))]
            self._examples[key] = examples_of(self.dataset, self.side(platform, seed, part))
        return self._examples[key]

    def cell(self, platform: str, seed: int, sampler: str, fraction: float) -> dict[str, Any]:
        """Pick, train, rank; or what a former run wrote."""
        about = {
            "data": self.dataset.version, "operators": self.operators, "model": self.model, "model_settings": self.model_settings,
            "trainer": self.trainer, "rounds": self.rounds, "part": self.part, "per_assignment": self.per_assignment, "platform": platform,
            "seed": seed, "sampler": sampler, "fraction": fraction,
        }  # fmt: skip
        path = self.cells / f"{format_id(content_id(json.dumps(about, sort_keys=True)))}.json"
        if path.exists():
            return json.loads(path.read_text())
        started = time.monotonic()
        rows = self.side(platform, seed, "train")
        picked = np.arange(len(rows)) if sampler == ALL else self.pick(platform, seed, sampler, fraction, rows)
        picking = time.monotonic() - started
        learned = examples_of(self.dataset, rows.iloc[picked])
        try:
            checked(learned)
        except UserError as error:  # so few programs that no task has two to tell apart
            cell = {**about, "programs": len(picked), "pool": len(rows), "skipped": str(error)}
            write_json(path, cell)
            return cell
        model, training = self.train(learned, seed)
        judged = self.examples(platform, seed, self.part)
        scores = model.predict(judged.inputs)
        pool = self.examples(platform, seed, "train")
        cell = {
            **about, "programs": len(picked), "pool": len(rows), "pick_s": picking, "train_s": training,
            **judged.truth.evaluate(scores), **_by_assignment(judged.truth, scores),
            "coverage": coverage(pool.inputs.flat, pool.assignment, picked, rows["latency_s"].to_numpy()),
        }  # fmt: skip
        write_json(path, cell)
        return cell

    def pick(self, platform: str, seed: int, sampler: str, fraction: float, rows: pd.DataFrame) -> np.ndarray:
        name, _, with_others = sampler.partition("+")
        if with_others not in ("", "others"):
            raise UserError(f"{sampler!r} is not a sampler, nor one with +others (a cold start from models of other platforms).")
        pool = self.examples(platform, seed, "train")
        others = [self.of_all(p, seed) for p in sorted(self.dataset.platforms()) if p != platform] if with_others else []
        budget = max(1, round(fraction * len(rows)))
        loop = Rounds(pool.inputs, pool.assignment, budget, sampler=make_sampler(name), rounds=self.rounds, seed=seed, others=others)
        latency = rows["latency_s"].to_numpy()
        return loop.run(lambda asked: latency[asked])

    @cache  # noqa: B019 - lives as long as the run
    def of_all(self, platform: str, seed: int) -> CostModel:
        """The model of another platform: all measurements of its training tasks."""
        return self.train(self.examples(platform, seed, "train"), seed)[0]

    def train(self, learned: Examples, seed: int) -> tuple[CostModel, float]:
        started = time.monotonic()
        model = make(self.model, **self.model_settings)
        model.fit(learned, None, Trainer(seed=seed, **self.trainer))
        return model, time.monotonic() - started


def run(
    *,
    data: str,
    platforms: Sequence[str] = (),
    operators: Sequence[str] = ("conv2d", "depthwise", "matmul"),
    samplers: Sequence[str] = SAMPLERS,
    fractions: Sequence[float] = (0.01, 0.02, 0.05, 0.1, 0.2),
    seeds: int = 5,
    model: str = "mamba",
    model_settings: dict[str, Any] | None = None,
    trainer: dict[str, Any] | None = None,
    rounds: int = 3,
    part: str = "test",
    per_assignment: int = 0,
    cells: str = "",
    time_limit_s: float = 0.0,
    scale: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """All samplers at all fractions on all platforms.

    data           a dataset's folder, or several with commas between them
    platforms      default: all of each dataset
    operators      default: what issue-sized budgets can split (a handful of elementwise programs a task cannot); [] for all
    samplers       names (with settings, as in "rdu:r=0.5"); "+others" after one adds a cold start from models of other platforms
    seeds          a number of seeds, counted from 0
    model_settings, trainer   what the cost model and `tcl.training.loop.Trainer` are made with
    part           "test", or "valid" to choose by
    per_assignment  pools hold at most so many programs of each assignment, drawn at random (0: all); what is judged is never cut
    time_limit_s   stop starting cells after this many seconds; rows then hold what is finished
    scale          also pick 10 % of 100,000 and of 1,000,000 synthetic programs

    Rows: one a sampler and fraction over all platforms and seeds, with the spread over seeds, the difference to random with its
    95 % interval and one-sided p (paired bootstrap over assignments), and coverage.
    """
    if not data:
        raise UserError("The sampling benchmark needs a dataset.", hint="Name it with --set data=DIR.")
    progress = progress or Progress()
    folders = [part_.strip() for part_ in str(data).split(",")]
    default = Path(folders[0]).absolute().parent / "bench-sampling"
    store = Path(cells) if cells else default
    store.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + time_limit_s if time_limit_s else float("inf")
    found, wanted = [], []
    for folder in folders:
        bench = _Bench(
            Dataset.open(folder), list(operators), model, model_settings or {}, trainer or {}, rounds, part, per_assignment, store, progress
        )
        for seed in range(seeds):
            for platform in platforms or sorted(bench.dataset.platforms()):
                wanted += [(bench, platform, seed, s, f) for f in fractions if f < 1 for s in samplers if s != ALL]
                wanted.append((bench, platform, seed, ALL, 1.0))
    for done, (bench, *what) in enumerate(wanted):
        progress.check()
        if time.monotonic() > deadline:
            break
        found.append(bench.cell(*what))
        progress.step(done + 1, len(wanted), " ".join(map(str, what)))
    rows = summarise(found)
    result = {
        "bench": "sampling", "rows": rows, "goals": goals(rows), "machine": machine(), "cells": len(found), "of": len(wanted),
        "skipped": skipped(found),
    }  # fmt: skip
    if scale:
        from tcl.bench.sampling_scale import measure

        result["scale"] = measure()
        result["goals"] += [
            goal("seconds to pick 10 % of 1,000,000 programs", 300, result["scale"][-1]["seconds"], at_most=True),
            goal("gigabytes at 1,000,000 programs", 4, result["scale"][-1]["memory_gb"], at_most=True),
            goal("times the seconds for ten times the programs", 12, result["scale"][-1]["times"], at_most=True),
        ]
    return result


def _by_assignment(truth: Assignments, scores: np.ndarray) -> dict[str, Any]:
    """What the paired bootstrap compares: task -> (top-1, top-5, pairwise) of each assignment of the judged part."""
    chosen, pairwise = truth.chosen_s(scores, (1, 5)), truth.pairwise(scores)
    ratio = truth.best_s[truth.usable, None] / chosen[truth.usable]
    return {
        "assignment_scores": {
            format_id(int(task)): [float(one), float(five), float(pairs)]
            for task, (one, five), pairs in zip(truth.task[truth.usable], ratio, pairwise[truth.usable], strict=True)
        }
    }


def skipped(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Which fractions could not be trained on where, in how many cells, and why."""
    times = Counter((c["platform"], c["fraction"], c["skipped"]) for c in found if "skipped" in c)
    return [{"platform": p, "fraction": f, "why": why, "cells": n} for (p, f, why), n in sorted(times.items())]


def summarise(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Cells to one row a (sampler, fraction); those that were skipped are left out. share_of_all, pairwise_lost: mean top-1 over that
    with all data, and pairwise accuracy below it, of the platforms and seeds that have both."""
    # In one order, whatever the order of the cells: the bootstrap draws by place.
    found = sorted((c for c in found if "skipped" not in c), key=lambda c: (c["platform"], c["seed"], c["sampler"], c["fraction"]))
    random = {(c["platform"], c["seed"], c["fraction"]): c for c in found if c["sampler"] == "random"}
    full = {(c["platform"], c["seed"]): c for c in found if c["sampler"] == ALL}
    groups: dict[tuple[str, float], list[dict[str, Any]]] = {}
    for cell in found:
        groups.setdefault((cell["sampler"], cell["fraction"]), []).append(cell)
    rows = []
    for (sampler, fraction), mine in sorted(groups.items(), key=lambda item: (item[0][1], item[0][0])):
        row: dict[str, Any] = {"sampler": sampler, "fraction": fraction, "cells": len(mine)}
        for name in ("top1", "top5", "top1_mean", "top5_mean", "pairwise"):
            by_seed = pd.Series([c[name] for c in mine]).groupby([c["seed"] for c in mine]).mean()
            row[name], row[f"{name}_sd"] = float(by_seed.mean()), float(by_seed.std(ddof=0))
        for column, name in enumerate(("top1", "top5", "pairwise")):
            gain, low, high, p = compare(mine, [random.get((c["platform"], c["seed"], fraction)) for c in mine], column)
            row |= {f"{name}_gain": gain, f"{name}_gain_low": low, f"{name}_gain_high": high, f"{name}_p": p}
        beside = [(c, full[key]) for c in mine if (key := (c["platform"], c["seed"])) in full]
        top1, best = (sum(pair[i]["top1_mean"] for pair in beside) for i in (0, 1))
        row["share_of_all"] = top1 / best if beside else None
        row["pairwise_lost"] = float(np.mean([b["pairwise"] - a["pairwise"] for a, b in beside])) if beside else None
        for name in ("mean_distance", "clusters", "regret"):
            row[name] = float(np.mean([c["coverage"][name] for c in mine]))
        row["pick_s"], row["train_s"] = float(np.mean([c["pick_s"] for c in mine])), float(np.mean([c["train_s"] for c in mine]))
        rows.append(row)
    return rows


def compare(
    mine: Sequence[dict[str, Any]], theirs: Sequence[dict[str, Any] | None], column: int, resamples: int = 10_000
) -> tuple[float | None, float | None, float | None, float | None]:
    """Mean difference per assignment, its 95 % interval, and the one-sided p that it is not positive (paired bootstrap).

    What is resampled is assignments (a task on a platform), each with the mean of its differences over all seeds: the seeds of
    one assignment are no independent witnesses. None without pairs.
    """
    gaps: dict[tuple[str, str], list[float]] = {}
    for a, b in zip(mine, theirs, strict=True):
        if b is None:
            continue
        for task, scores in a["assignment_scores"].items():
            gap = scores[column] - b["assignment_scores"][task][column]
            if np.isfinite(gap):
                gaps.setdefault((a["platform"], task), []).append(gap)
    if not gaps:
        return None, None, None, None
    value = np.array([np.mean(g) for g in gaps.values()])
    rng = np.random.default_rng(0)
    means = value[rng.integers(len(value), size=(resamples, len(value)))].mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return float(value.mean()), float(low), float(high), float((means <= 0).mean())


def goals(rows: Sequence[dict[str, Any]], at: float = 0.1) -> list[dict[str, Any]]:
    """The goals of the sampler, from the rows at 10 %. Top-1 is the mean over networks or operators: the pooled score is all but
    decided by the one assignment whose first program failed."""
    here = {r["sampler"]: r for r in rows if r["fraction"] == at}
    full = next((r for r in rows if r["sampler"] == ALL), None)
    rdu = here.get("rdu")
    if rdu is None:
        return []
    baselines = {n: r for n, r in here.items() if not n.startswith("rdu")}
    best = max((r["top1_mean"] for r in baselines.values()), default=None)
    found = [
        goal("RDU's top-1 at 10 % / top-1 of all data", 0.98, rdu["share_of_all"]),
        goal("p that RDU is no better than random (top-1)", 0.05, rdu["top1_p"], at_most=True),
        goal("RDU's top-1 less the best baseline's", 0.0, None if best is None else rdu["top1_mean"] - best),
    ]
    for name in ABLATIONS:
        if name in here:
            found.append(goal(f"top-1 lost without {name[-1].upper()}", 1e-3, rdu["top1_mean"] - here[name]["top1_mean"]))
    if full is not None:
        for name in ("random", "rdu"):
            lost = {r["fraction"]: r["pairwise_lost"] for r in rows if r["sampler"] == name and r["pairwise_lost"] is not None}
            enough = [fraction for fraction, pairwise in lost.items() if pairwise <= PRUNED_LOSS]
            pruned = 1 - min(enough, default=1.0) if lost else None  # nothing of what was measured: 0
            found.append(goal(f"share that {name} can prune within {PRUNED_LOSS} of the pairwise accuracy (theirs: 0.45)", 0.45, pruned))
    return found
