"""k-means: one program a cluster."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np

from tcl.sampling.base import Group, Sampler


class KMeans(Sampler):
    """k-means with as many clusters as the share, within each assignment; the program nearest each centre, large clusters first."""

    name = "kmeans"

    def pick(self, group: Group, budget: int, rng: np.random.Generator) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        cluster, distance = clusters(group.vectors, budget, rng)
        closeness = -distance
        picked = nearest_of_each(cluster, closeness, budget)
        largest = distance.max(initial=0.0)
        nearness = (1.0 - distance / largest if largest > 0 else np.ones(len(distance))).astype(np.float32)
        return picked, {"representativeness": nearness, "score": nearness}


def clusters(vectors: np.ndarray, k: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """k-means of (m, p) rows into at most k clusters: int (m,) cluster, float (m,) distance to its centre."""
    from sklearn.cluster import KMeans as SklearnKMeans
    from sklearn.cluster import MiniBatchKMeans

    seed = int(rng.integers(2**31))
    if k >= len(vectors):
        return np.arange(len(vectors)), np.zeros(len(vectors))
    if len(vectors) > 4096:
        model = MiniBatchKMeans(k, n_init=1, batch_size=4096, max_iter=20, random_state=seed)
    else:
        model = SklearnKMeans(k, n_init=1, max_iter=30, random_state=seed)
    # Waking two threads takes longer than clustering a hundred programs: 0.75 s in place of 5 s for 107 assignments of 96.
    with warnings.catch_warnings(), _threads().limit(limits=1 if len(vectors) <= 4096 else None):
        warnings.simplefilter("ignore")  # fewer distinct programs than clusters is ordinary here
        model.fit(vectors)
        cluster = model.predict(vectors)
    return cluster, np.linalg.norm(vectors - model.cluster_centers_[cluster], axis=1)


@cache
def _threads() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def nearest_of_each(cluster: np.ndarray, merit: np.ndarray, budget: int) -> np.ndarray:
    """The best of each cluster by `merit`, large clusters first, then the second best of each, until `budget` are picked."""
    order = np.lexsort((-merit, cluster))
    sizes = np.bincount(cluster)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    place = np.empty(len(cluster), np.int64)
    place[order] = np.arange(len(cluster)) - np.repeat(starts, sizes)
    return np.lexsort((-merit, -sizes[cluster], place))[:budget]
