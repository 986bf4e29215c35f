"""Uncertainty alone: the programs that a model knows least about."""

from __future__ import annotations

import numpy as np

from tcl.sampling.base import Group, Sampler
from tcl.sampling.greedy import rank_share


class Uncertainty(Sampler):
    """The most uncertain programs of each assignment; uniform where no model has judged them (cold start)."""

    name = "uncertainty"
    judges_by = ("uncertainty",)

    def pick(self, group: Group, budget: int, rng: np.random.Generator) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        if group.uncertainty is None:
            return rng.choice(len(group.vectors), budget, replace=False), {}
        tie = rng.random(len(group.vectors))
        share = rank_share(group.uncertainty)
        return np.lexsort((tie, -share))[:budget], {"uncertainty": share, "score": share}
