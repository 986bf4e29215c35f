"""The RDU Sampler: representativeness, diversity and uncertainty in one choice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tcl.sampling.base import Group, Sampler
from tcl.sampling.budget import Allocation
from tcl.sampling.greedy import farthest_first, rank_share, typicality


@dataclass
class Rdu(Sampler):
    """Draw one program after the other within its assignment, with a chance in proportion to R^r * D^d * U^u.

    Our reconstruction: the paper (arXiv 2604.12891) names the three parts, its public text does not give their formulas.

    R  representativeness: how typical the program is of its surroundings (rank of its k-nearest-neighbour density over that of
       its neighbours). Keeps away from odd programs that teach nothing about others.
    D  diversity: distance to the nearest program that is measured or picked already. Keeps from asking twice; with d = 2 and
       nothing else this is the seeding of k-means++.
    U  uncertainty: rank of the model's uncertainty within the assignment. Without a model it falls away, and R and D keep their
       ratio (the weights of a product need no renormalising).

    A product, and not a sum: a program that fails one of the three badly is no good choice however it does in the others; a
    duplicate has D = 0. A weight of 0 takes a part away; with all three 0 the choice is uniform. Drawn, and not the largest
    each time: the picks then still follow where the programs of the pool lie. Always taking the largest lost 0.13 to 0.17 top-1
    against uniform choice, because the pool of a search log is crowded with near-equal programs that all look representative.
    """

    r: float = 0.25
    d: float = 1.0
    u: float = 1.0
    neighbours: int = 20
    local: bool = True
    optimism: float | None = None
    drawn: bool = True
    allocation: Allocation = "proportional"
    name: ClassVar[str] = "rdu"
    judges_by = ("uncertainty", "prediction")

    def pick(self, group: Group, budget: int, rng: np.random.Generator) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        judged: dict[str, np.ndarray] = {}
        judged["representativeness"] = typicality(group.vectors, self.neighbours, bool(self.local))
        merit = judged["representativeness"] ** self.r
        if group.uncertainty is not None:
            doubt = group.uncertainty
            if self.optimism is not None and group.prediction is not None:
                doubt = group.prediction + self.optimism * doubt
            judged["uncertainty"] = rank_share(doubt)
            merit = merit * judged["uncertainty"] ** self.u
        # The largest of weight / Exp(1) falls on each row with a chance in proportion to its weight.
        lot = rng.exponential(size=len(merit)) if self.drawn else 1 + 1e-6 * rng.random(len(merit))
        drawn = (merit / lot).astype(np.float32)
        picked, judged["diversity"] = farthest_first(group.vectors, group.known, budget, drawn, self.d)
        judged["score"] = (merit * judged["diversity"] ** self.d).astype(np.float32)
        return picked, judged
