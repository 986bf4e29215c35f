"""Samplers of scikit-activeml, applied within each assignment."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from tcl.sampling.base import Group, Sampler


class ActiveML(Sampler):
    """One of scikit-activeml's pool-based strategies that need no classifier. Named as there, in lower case."""

    strategy: str

    def pick(self, group: Group, budget: int, rng: np.random.Generator) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        import skactiveml.pool

        m = len(group.vectors)
        if budget == m:
            return rng.permutation(m), {}
        rows = np.concatenate([group.vectors, group.known])
        # These strategies only look at which labels are missing.
        labels = np.where(np.arange(len(rows)) < m, np.nan, 0.0)
        query = getattr(skactiveml.pool, self.strategy)(random_state=int(rng.integers(2**31)), **self.settings(budget, len(rows)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # fewer distinct programs than clusters is ordinary here
            found = np.asarray(query.query(rows, labels, candidates=np.arange(m), batch_size=budget), np.int64)
        # With fewer distinct programs than picks, some strategies name one twice: the rest is filled at random.
        _, first = np.unique(found, return_index=True)
        picked = found[np.sort(first)]
        rest = np.setdiff1d(np.arange(m), picked)
        return np.concatenate([picked, rng.permutation(rest)[: budget - len(picked)]]), {}

    def settings(self, budget: int, rows: int) -> dict[str, Any]:
        return {}


class TypiClust(ActiveML):
    """The most typical program of each cluster (Hacohen et al., ICML 2022)."""

    name = "typiclust"
    strategy = "TypiClust"


class ProbCover(ActiveML):
    """As many programs as possible within a fixed radius of a picked one (Yehuda et al., NeurIPS 2022)."""

    name = "probcover"
    strategy = "ProbCover"

    def settings(self, budget: int, rows: int) -> dict[str, Any]:
        # The radius is chosen by how pure k-means clusters stay; as many clusters as picks, which it is told as classes.
        return {"n_classes": int(np.clip(budget, 2, max(2, rows - 1)))}
