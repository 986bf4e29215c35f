"""The RDU Sampler: representativeness, diversity and uncertainty in one greedy choice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tcl.sampling.base import Group, Sampler
from tcl.sampling.budget import Allocation
from tcl.sampling.greedy import farthest_first, rank_share, typicality


@dataclass
class Rdu(Sampler):
    """Pick one program after the other, each the best by R^r * D^d * U^u within its assignment.

    Our reconstruction: the paper (arXiv 2604.12891) names the three parts, its public text does not give their formulas.

    R  representativeness: how dense the programs lie around this one (rank of the k-nearest-neighbour density within its
       assignment). Keeps away from odd programs that teach nothing about others.
    D  diversity: distance to the nearest program that is measured or picked already. Keeps from asking twice.
    U  uncertainty: rank of the model's uncertainty within the assignment. Without a model its weight falls away, which leaves
       R and D with their ratio as it was (in a product, weights renormalised and weights dropped choose the same programs).

    A product, and not a sum: a program that fails one of the three badly is no good choice however it does in the others; a
    duplicate has D = 0. A weight of 0 takes a part away. All weights 0 is uniform choice.
    """

    r: float = 1.0
    d: float = 1.0
    u: float = 1.0
    neighbours: int = 20
    allocation: Allocation = "proportional"
    name: ClassVar[str] = "rdu"
    judges_by = ("uncertainty",)

    def pick(self, group: Group, budget: int, rng: np.random.Generator) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        judged: dict[str, np.ndarray] = {}
        quality = 1.0 / rng.exponential(size=len(group.vectors))
        judged["representativeness"] = typicality(group.vectors, self.neighbours)
        quality *= judged["representativeness"] ** self.r
        if group.uncertainty is not None:
            judged["uncertainty"] = rank_share(group.uncertainty)
            quality *= judged["uncertainty"] ** self.u
        picked, diversity = farthest_first(group.vectors, group.known, budget, quality.astype(np.float32), self.d)
        judged["diversity"] = diversity
        judged["score"] = (quality * diversity**self.d).astype(np.float32)
        return picked, judged
