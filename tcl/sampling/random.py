"""Uniform choice: what every other sampler must beat."""

from __future__ import annotations

import numpy as np

from tcl.sampling.base import Group, Sampler


class Random(Sampler):
    """Uniform within each assignment, each with its proportional share."""

    name = "random"

    def pick(self, group: Group, budget: int, rng: np.random.Generator) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        return rng.choice(len(group.vectors), budget, replace=False), {}
