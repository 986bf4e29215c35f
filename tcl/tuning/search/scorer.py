"""A cost model inside a search: fast drafts, careful verification, and learning from what is measured meanwhile.

A saved cost model (the *prior*) knows other tasks and platforms. Measurements of the task at hand correct it: boosted trees on
the flat features start from the prior's score, linearly calibrated to what was measured (xgboost's `base_margin`), and learn
the rest. With no prior they learn everything. Our reconstruction; the division of labour is Pruner's draft-then-verify
(arXiv 2402.02361): a *draft* must be cheap, since it scores thousands of candidates, so there a student of the prior on the
flat features stands in for it; the few best drafts are *verified* with the prior itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tcl.programs.types import Platform, Task

if TYPE_CHECKING:
    from tcl.features.tokenizer import Tokens
    from tcl.models.base import CostModel

FAILURE_PENALTY = 1.0
"""A failed program counts as e^1 times slower than the slowest that ran."""
SLOWEST = 5.0
"""Programs more than e^5 times slower than the best count as that slow: how bad a bad program is teaches nothing."""
TREES = 80
STUDENT_TREES = 120
READY = 8
"""Measured programs from which the trees alone are worth asking."""


class Scorer:
    """Scores programs of one task; higher is faster. `model`: "random", "xgb" (no prior) or a saved model's folder."""

    def __init__(self, task: Task, platform: Platform | None, model: str, *, seed: int = 0) -> None:
        from tcl.features.context import platform_features, task_features

        self.rng = np.random.default_rng(seed)
        self.seed = seed
        self.blind = model == "random"
        self.prior: CostModel | None = None
        if model not in ("random", "xgb"):
            from tcl.models.base import load

            self.prior = load(model)
        self._task = task_features([task])[0]
        self._platform = platform_features([platform])[0] if platform is not None else None
        self._student: Any = None
        self._trees: Any = None
        self._calibration = np.array([0.0, 0.0])  # slope and offset of the prior's score
        self._flat = np.zeros((0, 0), dtype=np.float32)
        self._prior_scores = np.zeros(0, dtype=np.float32)
        self._latency = np.zeros(0)

    @property
    def ready(self) -> bool:
        """Whether a score means anything yet."""
        return self.blind or self.prior is not None or self._trees is not None

    @staticmethod
    def tokens(schedules: Sequence[str]) -> Tokens:
        from tcl.features.tokenizer import tokenize

        return tokenize(schedules, "metaschedule")

    def score(self, tokens: Tokens) -> np.ndarray:
        """float32 (n,): the verified scores."""
        if self.blind:
            return self.rng.random(len(tokens), dtype=np.float32)
        return self._combine(_flat(tokens), self._ask_prior(tokens))

    def draft(self, tokens: Tokens) -> np.ndarray:
        """float32 (n,): cheap scores for many programs; the same as `score` where there is no prior."""
        if self.blind:
            return self.rng.random(len(tokens), dtype=np.float32)
        flat = _flat(tokens)
        if self.prior is None:
            return self._combine(flat, np.zeros(len(tokens), dtype=np.float32))
        if self._student is None:
            return self._combine(flat, self._ask_prior(tokens))
        return self._combine(flat, np.asarray(self._student.inplace_predict(flat), dtype=np.float32))

    def teach_student(self, tokens: Tokens) -> None:
        """Train the prior's stand-in for drafts on programs like those it will see (a few thousand)."""
        if self.prior is not None:
            flat, scores = _flat(tokens), self._ask_prior(tokens)
            self._student = _boost(flat, scores, np.zeros(len(flat)), STUDENT_TREES, self.seed)

    def observe(self, tokens: Tokens, latencies: np.ndarray) -> None:
        """Learn from measured programs: latencies float64 (n,), seconds, NaN for a failure."""
        if self.blind:
            return
        flat = _flat(tokens)
        self._flat = np.concatenate([self._flat, flat]) if len(self._flat) else flat
        self._prior_scores = np.concatenate([self._prior_scores, self._ask_prior(tokens)])
        self._latency = np.concatenate([self._latency, latencies])
        good = np.isfinite(self._latency)
        if good.sum() < READY:
            return
        best = self._latency[good].min()
        goal = np.where(good, -np.log(np.where(good, self._latency, best) / best), np.nan)
        goal = np.maximum(goal, -SLOWEST)
        goal = np.where(good, goal, np.nanmin(goal) - FAILURE_PENALTY)
        self._calibration = _calibrate(self._prior_scores, goal) if self.prior is not None else np.array([0.0, float(goal.mean())])
        margin = self._margin(self._prior_scores)
        # the fast programs are what the search must tell apart
        weight = 0.25 + np.exp(goal)
        self._trees = _boost(self._flat, goal, margin, TREES, self.seed, weight)

    def _combine(self, flat: np.ndarray, prior: np.ndarray) -> np.ndarray:
        if self._trees is None:
            return prior if self.prior is not None else self.rng.random(len(flat), dtype=np.float32)
        return np.asarray(self._trees.inplace_predict(flat, base_margin=self._margin(prior)), dtype=np.float32)

    def _margin(self, prior: np.ndarray) -> np.ndarray:
        return (self._calibration[0] * prior + self._calibration[1]).astype(np.float32)

    def _ask_prior(self, tokens: Tokens) -> np.ndarray:
        if self.prior is None:
            return np.zeros(len(tokens), dtype=np.float32)
        from tcl.models.base import Inputs

        return self.prior.predict(Inputs.plain(tokens, self._task, self._platform))


def _flat(tokens: Tokens) -> np.ndarray:
    from tcl.features.flat import flat_of

    return flat_of(tokens)


def _calibrate(prior: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """Slope (never negative) and offset of the least-squares line, its slope shrunk as if 4 more programs said 0."""
    x, y = prior - prior.mean(), goal - goal.mean()
    slope = max(0.0, float((x * y).sum() / ((x * x).sum() + 4 * x.var() + 1e-9)))
    return np.array([slope, float(goal.mean() - slope * prior.mean())])


def _boost(
    flat: np.ndarray, goal: np.ndarray, margin: np.ndarray, trees: int, seed: int, weight: np.ndarray | None = None
) -> Any:
    """Trees on one thread: on so few rows, a second one spends its time waiting for the first."""
    import xgboost

    data = xgboost.QuantileDMatrix(flat, goal, weight=weight, base_margin=margin, nthread=1)
    settings = {
        "objective": "reg:squarederror", "max_depth": 6, "eta": 0.12, "subsample": 0.8, "colsample_bytree": 0.6, "min_child_weight": 1.0,
        "lambda": 1.0, "tree_method": "hist", "nthread": 1, "seed": seed, "base_score": 0.0,
    }  # fmt: skip
    return xgboost.train(settings, data, trees)
