"""A cost model inside a search: fast drafts, careful verification, and learning from what is measured meanwhile.

A saved cost model or knowledge base (the *prior*) knows other tasks and platforms. Measurements of the task at hand correct it:
boosted trees on the flat features start from the prior's score, linearly calibrated to what was measured (xgboost's
`base_margin`), and learn the rest. With no prior they learn everything. The tasks of a network learn from each other: measurements
of the others count as well, for less (`OTHERS`). Our reconstruction; the division of labour is Pruner's draft-then-verify
(arXiv 2402.02361): a *draft* must be cheap, since it scores thousands of candidates, so there a student of the prior on the
flat features stands in for it; the few best drafts are *verified* with the prior itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tcl.features.flat import FLAT_FEATURES
from tcl.programs.types import Platform, Task
from tcl.tuning.search.footprints import COLUMNS, SPLIT_FACTORS, Footprints
from tcl.tuning.search.prior import Prior

if TYPE_CHECKING:
    from tcl.features.tokenizer import Tokens

FAILURE_PENALTY = 1.0
"""A failed program counts as e^1 times slower than the slowest that ran."""
SLOWEST = 5.0
"""Programs more than e^5 times slower than the best count as that slow: how bad a bad program is teaches nothing."""
TREES = 80
STUDENT_TREES = 80
READY = 8
"""Measured programs from which the trees alone are worth asking."""
READY_OTHERS = 16
"""Measured programs of other tasks of the same operator that are worth as much."""
OTHERS = 0.3
"""Weight of a measured program of another task."""
MOST_OTHERS = 1024
"""Programs of other tasks that are learned from."""
_INNERMOST = [factors[-1] for factors in SPLIT_FACTORS[:6]]
_REDUCED, _LIMIT = FLAT_FEATURES.index("reduction_factor1"), FLAT_FEATURES.index("value_pragma_unroll_0")


@dataclass
class Lessons:
    """What was measured of one task, as other tasks' searches read it: features float32 (n, D), goal and margin (n,)."""

    operator: str
    features: np.ndarray
    goal: np.ndarray
    margin: np.ndarray
    slope: float


@dataclass
class Pool:
    """The lessons of all tasks of a run."""

    tasks: dict[int, Lessons] = field(default_factory=dict)
    version: int = 0


class Scorer:
    """Scores programs of one task; higher is faster. `model`: "random", "xgb" (no prior) or a saved model's folder.

    shared: one dict for all searches of a run, through which they learn from each other and share what they read.
    """

    def __init__(self, task: Task, platform: Platform | None, model: str, *, seed: int = 0, shared: dict[str, Any] | None = None) -> None:
        from tcl.features.context import task_features

        shared = {} if shared is None else shared
        self.rng = np.random.default_rng(seed)
        self.seed = seed
        self.blind = model == "random"
        self.prior = Prior.of(model, platform, shared) if model not in ("random", "xgb") else None
        self.voice = self.prior.start if self.prior is not None else ""
        self._pool: Pool = shared.setdefault("lessons", Pool())
        self._task, self._id, self._operator = task_features([task])[0], task.id, task.operator
        self._student: Any = None
        self._trees: Any = None
        self.footprints: Footprints | None = None  # of the task's tiled block, where the search knows it
        self.doubting = False  # score by what was measured alone, as if there were no prior
        self._learned = (-1, False)  # the version of the pool that the trees have seen, and whether doubting
        self._alone = True  # the trees read no task features: there is no other task
        self._usual = 0.0  # the mean of what was learned
        self._calibration = np.array([0.0, 0.0])  # slope and offset of the prior's score
        self._flat = np.zeros((0, 0), dtype=np.float32)
        self._voices = np.zeros((0, 1), dtype=np.float32)  # each voice's scores of the measured programs
        self._latency = np.zeros(0)

    @property
    def ready(self) -> bool:
        """Whether a score means anything yet."""
        if self.blind or self.prior is not None:
            return True
        others = sum(len(x.goal) for i, x in self._pool.tasks.items() if i != self._id and x.operator == self._operator)
        return int(np.isfinite(self._latency).sum()) >= READY or others >= READY_OTHERS

    @property
    def needs_student(self) -> bool:
        """Whether drafts would have to ask a prior that is too slow for them."""
        return self.prior is not None and self._student is None and not self.doubting

    @staticmethod
    def tokens(schedules: Sequence[str]) -> Tokens:
        from tcl.features.tokenizer import tokenize

        return tokenize(schedules, "metaschedule")

    def score(self, tokens: Tokens, flat: np.ndarray | None = None) -> np.ndarray:
        """float32 (n,): the verified scores. `flat`: the tokens' flat features, where the caller has them."""
        if self.blind:
            return self.rng.random(len(tokens), dtype=np.float32)
        return self._combine(_flat(tokens) if flat is None else flat, self._ask_prior(tokens))

    def draft(self, flat: np.ndarray) -> np.ndarray:
        """float32 (n,): cheap scores for many programs, given by their flat features; as `score` where there is no prior."""
        if self.blind:
            return self.rng.random(len(flat), dtype=np.float32)
        asked = self._student is not None and not self.doubting
        prior = np.asarray(self._student.inplace_predict(flat)) if asked else np.zeros(len(flat), dtype=np.float32)
        return self._combine(flat, prior)

    def teach_student(self, tokens: Tokens, flat: np.ndarray) -> None:
        """Train the prior's stand-in for drafts on programs like those it will see (a few thousand)."""
        if self.prior is not None:
            self._student = _boost(flat, self._ask_prior(tokens), np.zeros(len(flat)), STUDENT_TREES, self.seed)

    def observe(self, tokens: Tokens, latencies: np.ndarray) -> None:
        """Learn from measured programs: latencies float64 (n,), seconds, NaN for a failure."""
        if self.blind or not len(latencies):
            return
        flat = _flat(tokens)
        voices = self.prior.all_scores(tokens, self._task) if self.prior is not None else np.zeros((len(flat), 1), dtype=np.float32)
        self._flat = np.concatenate([self._flat, flat]) if len(self._flat) else flat
        self._voices = np.concatenate([self._voices, voices]) if len(self._voices) else voices
        self._latency = np.concatenate([self._latency, latencies])
        good = np.isfinite(self._latency)
        if not good.any():
            return
        goal = self._goal()
        if self.prior is not None and good.sum() >= READY:
            voice = self.prior.best_voice(self._voices, goal, self.voice)
            if voice != self.voice:
                self.voice, self._student = voice, None
        self._calibrate(goal)
        features, margin = flat_task(wide(self._flat, self.footprints), self._task), self._margin(self._prior_scores)
        self._pool.tasks[self._id] = Lessons(self._operator, features, goal, margin, float(self._calibration[0]))
        self._pool.version += 1

    # -- learning ------------------------------------------------------------------------------------------------------

    @property
    def _prior_scores(self) -> np.ndarray:
        """float32 (measured,): what the current voice said of them."""
        return self._voices[:, list(self.prior.voices).index(self.voice)] if self.prior is not None else self._voices[:, 0]

    def _goal(self) -> np.ndarray:
        """float64 (measured,): -log(latency / best), cut at -SLOWEST; failures below the slowest."""
        good = np.isfinite(self._latency)
        best = self._latency[good].min()
        goal = np.where(good, -np.log(np.where(good, self._latency, best) / best), np.nan)
        goal = np.maximum(goal, -SLOWEST)
        return np.where(good, goal, np.nanmin(goal) - FAILURE_PENALTY)

    def _calibrate(self, goal: np.ndarray) -> None:
        if self.prior is None:
            self._calibration = np.array([0.0, float(goal.mean())])
        elif len(goal) >= READY:
            self._calibration = _line(self._prior_scores, goal)
        else:  # too few of its own: the slope that other tasks found
            slopes = [x.slope for i, x in self._pool.tasks.items() if i != self._id]
            slope = float(np.median(slopes)) if slopes else 0.0
            self._calibration = np.array([slope, float((goal - slope * self._prior_scores).mean())])

    def _learn(self) -> None:
        """Boosted trees on everything measured so far, where there is enough of it; only when something was added."""
        if self._learned == (self._pool.version, self.doubting):
            return
        self._learned = (self._pool.version, self.doubting)
        others = [x for i, x in self._pool.tasks.items() if i != self._id]
        own = self._pool.tasks.get(self._id)
        self._alone = not others
        parts = ([own] if own is not None else []) + others
        if sum(len(x.goal) for x in parts) < READY:
            self._trees = None
            return
        features = np.concatenate([x.features for x in parts])
        goal = np.concatenate([x.goal for x in parts])
        self._usual = float(goal.mean())
        margin = np.full(len(goal), self._usual) if self.doubting else np.concatenate([x.margin for x in parts])
        # the fast programs are what the search must tell apart
        weight = 0.25 + np.exp(goal)
        mine = len(own.goal) if own is not None else 0
        weight[mine:] *= OTHERS
        if len(goal) - mine > MOST_OTHERS:
            keep = np.concatenate([np.arange(mine), mine + self.rng.permutation(len(goal) - mine)[:MOST_OTHERS]])
            features, goal, margin, weight = features[keep], goal[keep], margin[keep], weight[keep]
        if self._alone:
            features = features[:, : features.shape[1] - len(self._task)]
        if own is None:
            self._calibration = np.array([float(np.median([x.slope for x in others])), float(goal.mean())])
        self._trees = _boost(features, goal, margin, TREES, self.seed, weight)

    def _combine(self, flat: np.ndarray, prior: np.ndarray) -> np.ndarray:
        self._learn()
        if self._trees is None:
            return prior if self.prior is not None else self.rng.random(len(flat), dtype=np.float32)
        features = wide(flat, self.footprints)
        features = features if self._alone else flat_task(features, self._task)
        margin = np.full(len(flat), self._usual, dtype=np.float32) if self.doubting else self._margin(prior)
        return np.asarray(self._trees.inplace_predict(features, base_margin=margin), dtype=np.float32)

    def _margin(self, prior: np.ndarray) -> np.ndarray:
        return (self._calibration[0] * prior + self._calibration[1]).astype(np.float32)

    def _ask_prior(self, tokens: Tokens) -> np.ndarray:
        if self.prior is None or self.doubting:
            return np.zeros(len(tokens), dtype=np.float32)
        return self.prior.scores(tokens, self._task, self.voice)


def flat_task(flat: np.ndarray, task: np.ndarray) -> np.ndarray:
    """float32 (n, D + T): flat features beside those of the task."""
    return np.concatenate([flat, np.repeat(task[None], len(flat), axis=0)], axis=1)


def wide(flat: np.ndarray, footprints: Footprints | None) -> np.ndarray:
    """float32 (n, D + …): what the trees see of programs: their flat features, the loop bodies left to LLVM, the data their tiles touch."""
    extra = footprints.columns(flat) if footprints is not None else np.zeros((len(flat), COLUMNS), dtype=np.float32)
    return np.concatenate([with_body(flat), extra], axis=1)


def with_body(flat: np.ndarray) -> np.ndarray:
    """float32 (n, D + B): flat features, and what MetaSchedule's tiling (SSRSRS) leaves to LLVM: the size of the innermost loop nest over
    the unrolling limit, whole and without each of its loops (one of them becomes a vector). A body just small enough to be unrolled is
    far faster than the next larger one, and trees that see only its factors would need hundreds of programs to find that cliff."""
    factors = flat[:, _INNERMOST]
    body = factors.sum(axis=1) + flat[:, _REDUCED] - flat[:, _LIMIT]
    return np.column_stack([flat, body, body[:, None] - factors])


def _flat(tokens: Tokens) -> np.ndarray:
    from tcl.features.flat import flat_of

    return flat_of(tokens)


def _line(prior: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """Slope (never negative) and offset of the least-squares line, its slope shrunk as if 4 more programs said 0."""
    x, y = prior - prior.mean(), goal - goal.mean()
    slope = max(0.0, float((x * y).sum() / ((x * x).sum() + 4 * x.var() + 1e-9)))
    return np.array([slope, float(goal.mean() - slope * prior.mean())])


def _boost(flat: np.ndarray, goal: np.ndarray, margin: np.ndarray, trees: int, seed: int, weight: np.ndarray | None = None) -> Any:
    """Trees on one thread: on so few rows, a second one spends its time waiting for the first."""
    import xgboost

    data = xgboost.QuantileDMatrix(flat, goal, weight=weight, base_margin=margin, nthread=1)
    settings = {
        "objective": "reg:squarederror", "max_depth": 6, "eta": 0.12, "subsample": 0.8, "colsample_bytree": 0.6, "min_child_weight": 1.0,
        "lambda": 1.0, "tree_method": "hist", "nthread": 1, "seed": seed, "base_score": 0.0,
    }  # fmt: skip
    return xgboost.train(settings, data, trees)
