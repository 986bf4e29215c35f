"""How good a ranking of programs is, exactly as DESIGN.md defines it.

    truth = Assignments(assignment, latency_s)       # once a dataset
    metrics = truth.evaluate(scores)                  # once an epoch: top1, top5, top1_mean, top5_mean, pairwise, spearman

Scores are the model's: higher means faster. Everything is vectorised over all assignments.

Two variants of the top-k score are published. TenSet sums latencies over everything and divides once ("pooled"); others report
the mean of the scores of the networks. They differ, and we report both. A failed program among the k counts, as in TLP's
evaluation, as `1 / FLOOR` times the best latency, so that a model that picks only failures gets a score near 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

FLOOR = 1e-5
"""No program counts as slower than 1 / FLOOR times the best of its assignment; a failure counts as just that."""


@dataclass(frozen=True)
class Use:
    """That a slice (a network on a platform, or an operator) holds assignments with weights: arrays of shape (uses,)."""

    slice: np.ndarray  # codes
    assignment: np.ndarray  # index into `Assignments.codes`
    weight: np.ndarray  # how often the network holds the task
    names: tuple[str, ...]  # of the slice codes


class Assignments:
    """What was measured, grouped by assignment. Arrays of shape (programs,), in any order:

    assignment: integers, equal for programs of one task on one platform; latency_s: seconds, NaN for a failure.
    """

    def __init__(self, assignment: np.ndarray, latency_s: np.ndarray, use: Use | None = None) -> None:
        latency = np.asarray(latency_s, dtype=np.float64)
        self.codes, self.member = np.unique(np.asarray(assignment), return_inverse=True)
        if latency.shape != self.member.shape or latency.ndim != 1:
            raise ValueError(f"assignment and latency_s must be of one shape (programs,), not {np.shape(assignment)} and {latency.shape}")
        self.size = np.bincount(self.member, minlength=len(self.codes))
        self.start = np.cumsum(self.size) - self.size
        usable = np.isfinite(latency) & (latency > 0)
        self.latency_s = np.where(usable, latency, np.inf)
        best = np.full(len(self.codes), np.inf)
        np.minimum.at(best, self.member, self.latency_s)
        self.best_s = best  # (assignments,), inf where every program failed
        self.usable = np.isfinite(best)
        with np.errstate(invalid="ignore"):
            self.label = np.where(usable, best[self.member] / self.latency_s, 0.0)
        everything = np.arange(len(self.codes))
        self.use = use or Use(everything, everything, np.ones(len(self.codes)), tuple(map(str, self.codes.tolist())))
        # Equal scores are put in an order that knows nothing: the order of the file may well be that of a search.
        self._shuffle = np.random.default_rng(0).permutation(len(latency))

    @classmethod
    def of(cls, labels: pd.DataFrame, tasks: pd.DataFrame | None = None) -> Assignments:
        """From `Dataset.labels()` (columns task, platform, latency_s) and `Dataset.tasks()` (task, operator, networks).

        Slices for the mean are networks, weighted as the networks hold their tasks; a task of no network counts once, in the slice
        of its operator. On several platforms each has slices of its own. Without `tasks`, each assignment is a slice.
        """
        platform_code, platforms = pd.factorize(labels["platform"].astype(str))
        task_code, task_ids = pd.factorize(labels["task"])
        made = cls(platform_code * max(len(task_ids), 1) + task_code, labels["latency_s"].to_numpy())
        made.platform = np.asarray(platforms, dtype=object)[made.codes // max(len(task_ids), 1)]
        made.task = np.asarray(task_ids)[made.codes % max(len(task_ids), 1)] if len(task_ids) else np.empty(0, np.int64)
        made.operator = np.full(len(made.codes), "", dtype=object)
        if tasks is not None:
            known = tasks.set_index("task")[["operator", "networks"]]
            rows: list[tuple[str, int, float]] = []
            for i, (platform, task) in enumerate(zip(made.platform, made.task, strict=True)):
                operator, networks = known.loc[task] if task in known.index else ("", {})
                made.operator[i] = operator
                uses = networks or {f"operator {operator}": 1.0}
                rows += [(f"{name} on {platform}", i, weight) for name, weight in uses.items()]
            code, names = pd.factorize(pd.Series([r[0] for r in rows], dtype=object))
            made.use = Use(code, np.array([r[1] for r in rows], np.int64), np.array([r[2] for r in rows]), tuple(names))
        return made

    platform: np.ndarray  # (assignments,) names; set by `of`
    task: np.ndarray
    operator: np.ndarray

    # -- the metrics ---------------------------------------------------------------------------------------------------

    def order(self, scores: np.ndarray) -> np.ndarray:
        """int (programs,): the programs assignment by assignment (as `codes` has them), the highest score first.

        A NaN score ranks last; equal scores stand in an order that knows nothing. `start` says where each assignment begins.
        """
        return np.lexsort((self._shuffle, -self._clean(scores), self.member))

    def chosen_s(self, scores: np.ndarray, ks: Sequence[int] = (1, 5)) -> np.ndarray:
        """Best latency among the k highest-ranked programs of each assignment; shape (assignments, len(ks)).

        A NaN score ranks last. All-failed assignments give inf.
        """
        order = self.order(scores)
        slowest = self.best_s / FLOOR
        latency = np.minimum(self.latency_s, slowest[self.member])[order]
        rank = np.arange(len(order)) - self.start[self.member[order]]
        result = np.full((len(self.codes), len(ks)), np.inf)
        for column, k in enumerate(ks):
            if k < 1:
                raise ValueError("k is at least 1")
            if len(order):
                result[:, column] = np.minimum.reduceat(np.where(rank < k, latency, np.inf), self.start)
        return result

    def top_k(self, scores: np.ndarray, ks: Sequence[int] = (1, 5)) -> tuple[np.ndarray, np.ndarray]:
        """(pooled, mean) top-k scores, each of shape (len(ks),); NaN where no assignment has a success."""
        chosen = self.chosen_s(scores, ks)
        use = self.use
        keep = self.usable[use.assignment]
        part, which, weight = use.slice[keep], use.assignment[keep], use.weight[keep]
        if not len(which):
            return np.full(len(ks), np.nan), np.full(len(ks), np.nan)
        best = weight * self.best_s[which]
        pooled, mean = np.empty(len(ks)), np.empty(len(ks))
        best_by_slice = np.bincount(part, best, minlength=len(use.names))
        for column in range(len(ks)):
            mine = weight * chosen[which, column]
            by_slice = np.bincount(part, mine, minlength=len(use.names))
            pooled[column] = best.sum() / mine.sum()
            mean[column] = np.mean(best_by_slice[by_slice > 0] / by_slice[by_slice > 0])
        return pooled, mean

    def slice_scores(self, scores: np.ndarray, k: int = 1) -> dict[str, float]:
        """The top-k score of each slice."""
        chosen = self.chosen_s(scores, (k,))[:, 0]
        keep = self.usable[self.use.assignment]
        part, which, weight = self.use.slice[keep], self.use.assignment[keep], self.use.weight[keep]
        best = np.bincount(part, weight * self.best_s[which], minlength=len(self.use.names))
        mine = np.bincount(part, weight * chosen[which], minlength=len(self.use.names))
        return {name: float(b / m) for name, b, m in zip(self.use.names, best, mine, strict=True) if m > 0}

    def spearman(self, scores: np.ndarray) -> np.ndarray:
        """Spearman's rho of scores and labels in each assignment, failures being tied last; shape (assignments,).

        NaN for fewer than two programs, for a constant label, and for all-failed ones. A constant score gives 0: it ranks nothing.
        """
        clean = self._clean(scores)
        if not len(clean):
            return np.full(len(self.codes), np.nan)
        x, y = self._ranks(clean), self._label_ranks
        n = np.maximum(self.size, 1)
        x = x - (np.bincount(self.member, x) / n)[self.member]
        y = y - (np.bincount(self.member, y) / n)[self.member]
        xx, yy, xy = (np.bincount(self.member, v) for v in (x * x, y * y, x * y))
        with np.errstate(invalid="ignore", divide="ignore"):
            rho = np.where(xx > 1e-12, xy / np.sqrt(xx * yy), 0.0)
        return np.where((yy > 1e-12) & self.usable, rho, np.nan)

    def pairwise(self, scores: np.ndarray) -> np.ndarray:
        """Pairwise comparison accuracy (arXiv 2304.05430) of each assignment; shape (assignments,).

        Of the pairs of programs with different labels, the share that the scores order correctly; equal scores count one half. NaN
        where no pair differs.
        """
        from tcl.training.pair_counts import pair_counts

        clean = self._clean(scores)
        order = np.lexsort((clean, self.member))
        labels = self._label_ranks[order].astype(np.int64)  # equal labels share a mean rank, so its floor tells them apart
        correct, different = pair_counts(self.start, self.size, clean[order], labels)
        with np.errstate(invalid="ignore"):
            return np.where(self.usable & (different > 0), correct / different, np.nan)

    def evaluate(self, scores: np.ndarray, ks: Sequence[int] = (1, 5)) -> dict[str, float]:
        """top{k} (pooled), top{k}_mean, pairwise and spearman (means over assignments), assignments (with at least one success).

        `scores`: shape (programs,), higher is faster. NaN where a metric is not defined.
        """
        pooled, mean = self.top_k(scores, ks)
        result = {f"top{k}": float(v) for k, v in zip(ks, pooled, strict=True)}
        result |= {f"top{k}_mean": float(v) for k, v in zip(ks, mean, strict=True)}
        result["pairwise"] = _mean(self.pairwise(scores))
        result["spearman"] = _mean(self.spearman(scores))
        result["assignments"] = int(self.usable.sum())
        return result

    def by(self, names: np.ndarray, scores: np.ndarray, ks: Sequence[int] = (1, 5)) -> dict[str, dict[str, float]]:
        """`evaluate` for each value of `names` (assignments,), such as `self.platform` or `self.operator`."""
        chosen, pairwise, spearman = self.chosen_s(scores, ks), self.pairwise(scores), self.spearman(scores)
        use, result = self.use, {}
        for name in sorted(set(names.tolist())):
            mine = (names == name) & self.usable
            keep = mine[use.assignment]
            part, which, weight = use.slice[keep], use.assignment[keep], use.weight[keep]
            row: dict[str, float] = {}
            for column, k in enumerate(ks):
                best, got = weight * self.best_s[which], weight * chosen[which, column]
                best_by, got_by = np.bincount(part, best), np.bincount(part, got)
                row[f"top{k}"] = float(best.sum() / got.sum()) if len(which) else float("nan")
                row[f"top{k}_mean"] = _mean(best_by[got_by > 0] / got_by[got_by > 0])
            row |= {"pairwise": _mean(pairwise[mine]), "spearman": _mean(spearman[mine]), "assignments": int(mine.sum())}
            result[str(name)] = row
        return result

    # -- inner workings ------------------------------------------------------------------------------------------------

    def _clean(self, scores: np.ndarray) -> np.ndarray:
        values = np.asarray(scores, dtype=np.float64).reshape(-1)
        if len(values) != len(self.member):
            raise ValueError(f"{len(values)} scores for {len(self.member)} programs")
        return np.where(np.isnan(values), -np.inf, values)

    def _ranks(self, values: np.ndarray) -> np.ndarray:
        """Rank of each value in its assignment from 0, equal values sharing their mean rank; shape (programs,)."""
        order = np.lexsort((values, self.member))
        member, sorted_values = self.member[order], values[order]
        first = np.ones(len(order), dtype=bool)
        first[1:] = (member[1:] != member[:-1]) | (sorted_values[1:] != sorted_values[:-1])
        run = np.cumsum(first) - 1
        begin = np.flatnonzero(first)
        length = np.diff(np.append(begin, len(order)))
        ranks = np.empty(len(order))
        ranks[order] = (begin + (length - 1) / 2)[run] - self.start[member]
        return ranks

    @cached_property
    def _label_ranks(self) -> np.ndarray:
        return self._ranks(self.label)


def _mean(values: np.ndarray) -> float:
    values = values[~np.isnan(values)]
    return float(values.mean()) if len(values) else float("nan")


# -- learning platform after platform ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Continual:
    """What a sequence of platforms left behind. All differences are in top-1 score; a drop is positive."""

    average_accuracy: float  # mean over platforms after the last one was learned
    backward_transfer: float  # mean change of the earlier platforms since each was learned (Lopez-Paz and Ranzato, GEM)
    forgetting: float  # mean drop of the earlier platforms from their best (Chaudhry et al., RWalk)
    worst_slice_drop: float  # largest drop of any (platform, slice)
    worst_slice: tuple[str, str]  # which: platform and slice; ("", "") where there are no slices


def continual(
    r: np.ndarray,
    slices: Mapping[str, np.ndarray] | None = None,
    platforms: Sequence[str] = (),
) -> Continual:
    """`r[i, j]`: top-1 on platform j after learning platform i, shape (T, T), in the order of learning; NaN where not measured.

    slices: operator (or any other slice) -> an array like `r` for it alone, NaN where a platform has no such slice. An average can hide
    that a slice was forgotten; the worst slice cannot: it is the largest max over i in [j, T) of s[i, j] minus s[T-1, j].
    """
    r = np.asarray(r, dtype=np.float64)
    if r.ndim != 2 or r.shape[0] != r.shape[1] or not len(r):
        raise ValueError(f"r must be a square matrix, not {r.shape}")
    last = len(r) - 1
    earlier = np.arange(last)
    names = list(platforms) or [str(j) for j in range(len(r))]
    backward = _mean(r[last, earlier] - r[earlier, earlier]) if last else float("nan")
    forgetting = _mean(_drops(r)[:last]) if last else float("nan")
    worst, where = float("nan"), ("", "")
    for name, matrix in (slices or {}).items():
        drops = _drops(np.asarray(matrix, dtype=np.float64))
        for j, drop in enumerate(drops[:last]):
            if not np.isnan(drop) and not drop <= worst:
                worst, where = float(drop), (names[j], name)
    return Continual(_mean(r[last]), backward, forgetting, worst, where)


def _drops(r: np.ndarray) -> np.ndarray:
    """For each platform the best score between learning it and the step before last, minus the last score; shape (T,)."""
    last = len(r) - 1
    result = np.full(len(r), np.nan)
    for j in range(last):
        seen = r[j:last, j]
        if not np.isnan(seen).all() and not np.isnan(r[last, j]):
            result[j] = np.nanmax(seen) - r[last, j]
    return result


def report(truth: Assignments, scores: np.ndarray, ks: Sequence[int] = (1, 5)) -> dict[str, Any]:
    """The metrics of a whole evaluation, with by_platform and by_operator: what `tcl evaluate` prints. `truth` from `Assignments.of`."""
    whole: dict[str, Any] = dict(truth.evaluate(scores, ks))
    whole["by_platform"] = truth.by(truth.platform, scores, ks)
    whole["by_operator"] = truth.by(truth.operator, scores, ks)
    return whole
