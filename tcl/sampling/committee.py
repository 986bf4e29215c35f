"""A committee: a few small models that say how fast programs are, and how far they disagree about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tcl.errors import UserError
from tcl.models.base import CostModel, Examples, Inputs, make
from tcl.progress import Progress, Stopped
from tcl.sampling.greedy import rank_share
from tcl.training.data import labels_of
from tcl.training.metrics import Assignments


@dataclass
class _Seeded:
    """What tree models ask of a trainer: a seed, and whom to tell."""

    seed: int
    progress: Progress = field(default_factory=Progress)

    def train(self, model: Any, train: Examples, valid: Examples | None) -> dict[str, Any]:
        raise NotImplementedError("a committee is made of models that train themselves")


class Committee:
    """`members` cost models, each trained on its own bootstrap sample of what is measured (query by committee).

    inputs: the whole pool, n programs. assignment: int (n,). The default member is a small xgboost regression of the label: it
    trains in a second on thousands of programs, so that measuring stays the expensive part.
    """

    def __init__(
        self, inputs: Inputs, assignment: np.ndarray, *, members: int = 4, model: str = "xgb", settings: dict[str, Any] | None = None
    ) -> None:
        self.inputs, self.assignment, self.members, self.model = inputs, np.asarray(assignment), members, model
        self.settings = settings if settings is not None else ({"trees": 80, "depth": 6} if model == "xgb" else {})
        self.inputs.flat  # noqa: B018 - computed once here, and handed on by `take`

    def judge(self, latency_s: np.ndarray, seed: int, progress: Progress | None = None) -> tuple[np.ndarray, np.ndarray] | None:
        """Learn from what is measured and judge the pool.

        latency_s: float (n,), NaN where nothing was measured, infinite for a failure. Returns float32 (n,) predicted labels (the
        members' mean) and float32 (n,) uncertainty (their standard deviation), or None where nothing can be learnt yet.
        """
        rows = np.flatnonzero(~np.isnan(latency_s))
        _, dense = np.unique(self.assignment, return_inverse=True)
        label = labels_of(latency_s[rows], dense[rows])
        rng = np.random.default_rng([seed, 1])
        guesses = []
        for member in range(self.members):
            taken = rng.integers(len(rows), size=len(rows)) if len(rows) else rows
            at = rows[taken]
            truth = Assignments(dense[at], np.where(np.isfinite(latency_s[at]), latency_s[at], np.nan))
            examples = Examples(self.inputs.take(at), label[taken], dense[at], at, dense[at], truth)
            model = make(self.model, **self.settings)
            try:
                if model.fit(examples, None, _Seeded(seed * 100 + member, progress or Progress())).get("stopped"):
                    raise Stopped  # half a committee would pick what no rerun picks again
            except UserError:  # one program an assignment, or nothing but failures: there is no order to learn
                return None
            guesses.append(model.predict(self.inputs))
        stacked = np.stack(guesses)
        return stacked.mean(axis=0), stacked.std(axis=0)


def judge_by_others(models: Sequence[CostModel], inputs: Inputs, assignment: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """What models of other platforms say about a pool on a platform where nothing was measured.

    Their scores have scales of their own, so each is turned into a rank within its assignment first. Returns float32 (n,) the mean
    rank (higher is faster) and float32 (n,) the standard deviation between the models, or None for a single model.
    """
    ranks = np.empty((len(models), len(inputs)), np.float32)
    for row, model in zip(ranks, models, strict=True):
        score = model.predict(inputs)
        for name in np.unique(assignment):
            rows = np.flatnonzero(assignment == name)
            row[rows] = rank_share(score[rows])
    return ranks.mean(axis=0), ranks.std(axis=0) if len(models) > 1 else None
