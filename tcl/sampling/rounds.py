"""Measure, train, pick again: a sampler's budget spent in rounds.

loop = Rounds(inputs, assignment, budget=500, sampler=make_sampler("rdu"), rounds=3, seed=0)
for indices in loop:                       # int (k,): programs to measure now
    loop.tell(indices, measure(indices))   # seconds; NaN or infinite for a failed one
loop.selection()                           # what was picked, in which round, with which scores
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pandas as pd

from tcl.errors import UserError
from tcl.models.base import CostModel, Inputs
from tcl.progress import Progress
from tcl.sampling.base import SCORES, Pool, Sampler
from tcl.sampling.committee import Committee, judge_by_others
from tcl.sampling.embedding import embed
from tcl.training.data import labels_of

Judgement = tuple["np.ndarray | None", "np.ndarray | None"]
"""What models think of n programs: prediction and uncertainty, float (n,) each; None where they cannot tell."""
FIRST_SHARE = 0.5
"""How much of the budget goes to the first round, which has no model of this platform: half leaves the committee enough to
learn from, and as much again to ask about."""


class Rounds:
    """The loop around a sampler. Iterating yields the next row numbers to measure; each answer must be told before the next.

    inputs       n programs, the pool; their flat features are the space of the sampler
    assignment   int (n,)
    budget       programs to measure in all, first round included
    rounds       how many; 1 asks for everything at once
    others       models of other platforms, for the first round (cold start)
    cold         what they say, (prediction, uncertainty) of the pool (float (n,) or None each), where that is at hand
    vectors      float32 (n, d), what the sampler measures distance by, where it is not the flat features
    space        `embed` of that, where it is at hand; otherwise computed once for all rounds
    known_s      float (n,) or None: latencies measured before (NaN: not measured, infinite: failed). They teach the committee. With
                 `resumed` they were paid from this budget by a loop with the same arguments that was cut short.

    The same arguments and the same answers give the same questions. `judged` is what the models said of the pool when the newest
    round was picked.
    """

    def __init__(
        self,
        inputs: Inputs,
        assignment: np.ndarray,
        budget: int,
        *,
        sampler: Sampler,
        rounds: int = 3,
        seed: int = 0,
        others: Sequence[CostModel] = (),
        cold: Judgement | None = None,
        vectors: np.ndarray | None = None,
        space: np.ndarray | None = None,
        known_s: np.ndarray | None = None,
        resumed: bool = False,
        committee: Committee | None = None,
        progress: Progress | None = None,
    ) -> None:
        n = len(inputs)
        if rounds < 1:
            raise UserError(f"A selection takes at least 1 round, not {rounds}.")
        self.assignment = np.asarray(assignment)
        _, self._dense = np.unique(self.assignment, return_inverse=True)
        self.latency_s = np.full(n, np.nan) if known_s is None else np.array(known_s, dtype=np.float64)
        self._before = np.zeros(n, bool) if resumed else ~np.isnan(self.latency_s)
        if not 0 <= budget <= n - int(self._before.sum()):
            raise UserError(f"The budget is {budget}, and {n - int(self._before.sum())} programs can still be measured.")
        self.inputs, self.budget, self.sampler, self.seed, self.others = inputs, budget, sampler, seed, list(others)
        self.vectors, self._space = vectors, space
        self.judged: Judgement | None = cold
        self._cold = cold
        self.progress = progress or Progress()
        self._checks = _Checks(self.progress)
        self._committee = committee
        self._ends = np.cumsum(round_sizes(budget, rounds, len(np.unique(self.assignment))))
        self._waiting = np.empty(0, np.int64)
        self._round = np.full(n, -1)
        self._order = np.full(n, -1)
        self._scores = pd.DataFrame({name: np.full(n, np.nan, np.float32) for name in SCORES})

    @property
    def spent(self) -> int:
        """How much of the budget has been measured."""
        return int((~np.isnan(self.latency_s) & ~self._before).sum())

    def __iter__(self) -> Iterator[np.ndarray]:
        while self.spent < self.budget:
            self.progress.check()
            asked = self.ask()
            yield asked
            if len(self._waiting):
                raise RuntimeError(f"{len(self._waiting)} of the programs asked for were not told")

    def ask(self) -> np.ndarray:
        """int64 (k,): the rest of the current round, best first."""
        spent = self.spent
        at = int(np.searchsorted(self._ends, spent, side="right"))
        count = int(self._ends[at]) - spent
        pool = self.pool(at)
        picked, scores = self.sampler.query(pool, count, seed=self.seed * 1009 + at, return_scores=True)
        self._round[picked], self._order[picked] = at, spent + np.arange(len(picked))
        # A program's scores are those of the round that picked it; the rest keep the newest ones.
        open_ = (self._round < 0) | (self._round == at)
        for name in SCORES:
            self._scores.loc[open_, name] = scores.loc[open_, name]
        self._waiting = picked
        self.progress.event("picked", round=at, programs=len(picked), spent=spent, budget=self.budget)
        return picked

    def tell(self, indices: np.ndarray, latency_s: np.ndarray) -> None:
        """Latencies in seconds of the programs `indices` (k,): NaN or infinite for a failure. May come in parts."""
        indices = np.asarray(indices)
        if not np.isin(indices, self._waiting).all():
            raise ValueError("these programs were not asked for")
        self.latency_s[indices] = np.where(np.isfinite(latency_s), latency_s, np.inf)
        self._waiting = self._waiting[~np.isin(self._waiting, indices)]

    def pool(self, at: int | None = None) -> Pool:
        """The pool as the sampler sees it now: labels from what is measured, and the judgement of a committee trained on it."""
        labels = np.full(len(self.inputs), np.nan)
        rows = np.flatnonzero(~np.isnan(self.latency_s))
        labels[rows] = labels_of(self.latency_s[rows], self._dense[rows])
        judged = None
        if self.sampler.judges_by and len(rows):
            self._committee = self._committee or Committee(self.inputs, self.assignment)
            judged = self._committee.judge(self.latency_s, self.seed + 7919 * (at or 0), self._checks)
        if judged is None and self.sampler.judges_by:
            if self._cold is None and self.others:
                self._cold = judge_by_others(self.others, self.inputs, self.assignment)
            judged = self._cold
        self.judged = judged
        prediction, uncertainty = judged or (None, None)
        vectors = self.inputs.flat if self.vectors is None else self.vectors
        self._space = embed(vectors) if self._space is None else self._space
        return Pool(vectors, self.assignment, labels, uncertainty, prediction, self._space)

    def selection(self) -> pd.DataFrame:
        """One row a measured program that this loop asked for, in order: row (in the pool), round, order and the scores."""
        rows = np.flatnonzero((self._round >= 0) & ~np.isnan(self.latency_s))
        rows = rows[np.argsort(self._order[rows])]
        frame = pd.DataFrame({"row": rows, "round": self._round[rows], "order": self._order[rows]})
        return pd.concat([frame, self._scores.iloc[rows].reset_index(drop=True)], axis=1)

    def scores(self) -> pd.DataFrame:
        """One row a program of the pool: representativeness, diversity, uncertainty, score, order and round (-1: not picked)."""
        return self._scores.assign(order=self._order, round=self._round)

    def run(self, measure: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """Spend the whole budget: `measure` maps int (k,) row numbers to float (k,) seconds. Returns the row numbers in order."""
        for indices in self:
            self.tell(indices, measure(indices))
        return self.selection()["row"].to_numpy()


class _Checks(Progress):
    """Lets the committee hear a stop; its training steps are no steps of the loop."""

    def __init__(self, progress: Progress) -> None:
        self.check = progress.check  # type: ignore[method-assign]


def round_sizes(budget: int, rounds: int, assignments: int = 1) -> np.ndarray:
    """int (rounds,) that sums to `budget`: half first (and at least two programs an assignment, if there is that much: one alone
    ranks nothing), the rest evenly."""
    if rounds == 1 or budget == 0:
        return np.array([budget] + [0] * (rounds - 1), dtype=np.int64)
    first = min(budget, max(round(FIRST_SHARE * budget), 2 * assignments))
    rest = np.full(rounds - 1, (budget - first) // (rounds - 1), dtype=np.int64)
    rest[: (budget - first) % (rounds - 1)] += 1
    return np.concatenate([[first], rest])
