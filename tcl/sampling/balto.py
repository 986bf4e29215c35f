"""A BALTO-like sampler: diversity, biased towards programs that are predicted to be fast."""

from __future__ import annotations

import numpy as np

from tcl.sampling.base import Group, Sampler
from tcl.sampling.greedy import farthest_first, rank_share


class Balto(Sampler):
    """Greedy k-center in which a distance counts more for programs that are predicted to be fast.

    After BALTO (Bi et al., ICLR 2023), whose insight is that random sampling measures too many slow programs, and that picking
    only fast ones makes a model overestimate; it biases a diversity sampler instead. The exact weighting is our
    reconstruction: distance * (1/4 + 3/4 * rank of the prediction). Before any model exists it is k-center.
    """

    name = "balto"
    judges_by = ("prediction",)

    def pick(self, group: Group, budget: int, rng: np.random.Generator) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        quality = 1.0 + 1e-6 * rng.random(len(group.vectors))
        if group.prediction is not None:
            quality *= 0.25 + 0.75 * rank_share(group.prediction)
        picked, diversity = farthest_first(group.vectors, group.known, budget, quality.astype(np.float32))
        return picked, {"diversity": diversity, "score": (diversity * quality).astype(np.float32)}
