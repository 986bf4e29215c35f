"""The RDU Sampler: representativeness, diversity and uncertainty in one choice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tcl.sampling.base import Group, Sampler
from tcl.sampling.budget import Allocation
from tcl.sampling.greedy import fade, farthest_first, rank_share, typicality

CHANCE = 0.1
"""Programs whose merits differ by less than this share are equally good: chance decides, so that seeds are independent repeats."""


@dataclass
class Rdu(Sampler):
    """Pick one program after the other within its assignment, each the best by R^(r / 2^n) * D^d * (floor + (1 - floor) U)^u.

    Our reconstruction: the paper (arXiv 2604.12891) names the three parts, its public text does not give their formulas. n is the
    number of programs of the assignment that are measured or picked already.

    R  representativeness: how typical the program is of its surroundings (rank of its k-nearest-neighbour density over that of
       its neighbours). The first program of an assignment should be one of many of its kind; with each further one R counts half as
       much: a full R throughout cost top-1, because the pool of a search log is crowded with near-equal programs that all look typical.
    D  diversity: distance to the nearest program that is measured or picked already. Keeps from asking twice; alone it is
       k-center.
    U  uncertainty: rank, within the assignment, of how fast the program may be for all that the models know: their mean plus
       `optimism` times their standard deviation. Doubt about a slow program costs a tuner nothing, doubt about a fast one does; the
       standard deviation alone, which asks about both, is the sampler `uncertainty`. `floor` keeps some slow programs among the
       picked, without which a model overestimates them (BALTO). Without a model U falls away.

    A product, and not a sum: a program that fails one of the three badly is no good choice however it does in the others; a
    duplicate has D = 0. A weight of 0 takes a part away; with all three 0 the choice is uniform.
    """

    r: float = 1.0
    d: float = 1.0
    u: float = 1.0
    optimism: float = 1.0
    floor: float = 0.25
    neighbours: int = 20
    local: bool = True
    allocation: Allocation = "proportional"
    name: ClassVar[str] = "rdu"
    judges_by = ("uncertainty", "prediction")

    def pick(self, group: Group, budget: int, rng: np.random.Generator) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        judged: dict[str, np.ndarray] = {}
        judged["representativeness"] = typicality(group.vectors, self.neighbours, bool(self.local))
        typical = judged["representativeness"] ** self.r
        merit = np.ones(len(typical), np.float32)
        if group.uncertainty is not None:
            hoped = group.uncertainty if group.prediction is None else group.prediction + self.optimism * group.uncertainty
            judged["uncertainty"] = rank_share(hoped)
            merit = (self.floor + (1 - self.floor) * judged["uncertainty"]) ** self.u
        chance = 1 + CHANCE * rng.random(len(merit))
        picked, judged["diversity"] = farthest_first(
            group.vectors, group.known, budget, (merit * chance).astype(np.float32), self.d, early=typical
        )
        merit = merit * typical ** fade(len(group.known) + len(picked))
        judged["score"] = (merit * judged["diversity"] ** self.d).astype(np.float32)
        return picked, judged
