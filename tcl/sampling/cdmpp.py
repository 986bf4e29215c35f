"""A sampler after CDMPP's: clusters over the whole pool, not one assignment at a time."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tcl.sampling.base import Group, Pool, Sampler
from tcl.sampling.budget import split_budget
from tcl.sampling.kmeans import clusters, nearest_of_each

_CLUSTERS = 256


class Cdmpp(Sampler):
    """k-means over all programs; large clusters first, the programs nearest to a cluster's centre.

    After the k-means sampler of CDMPP (EuroSys 2024), which picks *tasks* to profile on a new device: it clusters the features
    of all tasks' programs and takes, from the largest cluster down, the task whose programs lie nearest to its centre. Our
    reading for budgets that count programs: at most 256 clusters share the budget in proportion to their size. One program of
    each assignment is set aside first (its nearest to a centre), the rule that all samplers here obey.
    """

    name = "cdmpp"

    def pick_all(
        self, pool: Pool, candidates: np.ndarray, budget: int, rng: np.random.Generator, scores: pd.DataFrame
    ) -> tuple[np.ndarray, np.ndarray]:
        if budget == 0:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        vectors = pool.embedded[candidates]
        cluster, distance = clusters(vectors, min(budget, _CLUSTERS), rng)
        closeness = -distance
        first = self._one_each(pool, candidates, closeness, budget, rng)
        rest = np.setdiff1d(np.arange(len(candidates)), first)
        names, codes = np.unique(cluster[rest], return_inverse=True)
        shares = split_budget(np.bincount(codes, minlength=len(names)), budget - len(first), rng=rng)
        picked = [first]
        for name, share in enumerate(shares):
            rows = rest[codes == name]
            picked.append(rows[nearest_of_each(np.zeros(len(rows), np.int64), closeness[rows], int(share))])
        chosen = np.concatenate(picked)
        largest = distance.max(initial=0.0)
        scores.loc[candidates, "representativeness"] = 1.0 - distance / largest if largest > 0 else 1.0
        scores["score"] = scores["representativeness"]
        return candidates[chosen], np.concatenate([np.zeros(len(first)), np.ones(len(chosen) - len(first))])

    @staticmethod
    def _one_each(pool: Pool, candidates: np.ndarray, closeness: np.ndarray, budget: int, rng: np.random.Generator) -> np.ndarray:
        """Positions in `candidates`: the one nearest to its centre of each assignment that has no measurement yet."""
        covered = np.unique(pool.assignment[pool.measured])
        order = np.argsort(-closeness, kind="stable")
        order = order[~np.isin(pool.assignment[candidates[order]], covered)]
        _, first = np.unique(pool.assignment[candidates[order]], return_index=True)
        return rng.permutation(order[first])[:budget]

    def pick(self, group: Group, budget: int, rng: np.random.Generator) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        raise NotImplementedError("this sampler looks across assignments")
