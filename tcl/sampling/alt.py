"""An ALT-like sampler: rounds that ask in turn about the uncertain and about the promising."""

from __future__ import annotations

import numpy as np

from tcl.sampling.base import Group, Sampler
from tcl.sampling.greedy import rank_share


class Alt(Sampler):
    """One half the most uncertain programs, the other half those predicted to be fastest, taken in turn.

    After ALT (Zeng et al., ICCD 2020), which trains an uncertainty predictor and a score predictor in turn ("ping-pong") and
    lets them choose what to measure; taking turns within a round is our reconstruction. Uniform before any model exists.
    """

    name = "alt"
    judges_by = ("uncertainty", "prediction")

    def pick(self, group: Group, budget: int, rng: np.random.Generator) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        if group.uncertainty is None or group.prediction is None:
            return rng.choice(len(group.vectors), budget, replace=False), {}
        unsure, fast = rank_share(group.uncertainty), rank_share(group.prediction)
        tie = rng.random(len(unsure))
        turns = np.empty(2 * len(unsure), np.int64)
        turns[0::2], turns[1::2] = np.lexsort((tie, -unsure)), np.lexsort((tie, -fast))
        _, first = np.unique(turns, return_index=True)
        picked = turns[np.sort(first)][:budget]
        return picked, {"uncertainty": unsure, "score": np.maximum(unsure, fast)}
