"""Cutting a large assignment into blocks, so that greedy picking stays linear in the number of programs."""

from __future__ import annotations

import warnings
from itertools import pairwise

import numpy as np

BLOCK = 2048
"""At most this many programs are looked at together: distances between all of them fit in a core's cache budget (16 MB)."""


def blocks(vectors: np.ndarray, rng: np.random.Generator, size: int = BLOCK) -> list[np.ndarray]:
    """float32 (m, p) -> row numbers of blocks of at most `size` rows, near ones together.

    Mini-batch k-means, on a sample when there are many rows; a cluster that stays too large (many identical programs) is cut
    at random. Time is linear in m for a given number of clusters, of which there are at most 64 a level; larger sets are cut
    again within each cluster.
    """
    m = len(vectors)
    if m <= size:
        return [np.arange(m)]
    from sklearn.cluster import MiniBatchKMeans

    k = min(64, 2 * m // size + 1)
    sample = vectors if m <= 20_000 else vectors[rng.choice(m, 20_000, replace=False)]
    model = MiniBatchKMeans(k, n_init=1, batch_size=2048, max_iter=20, random_state=int(rng.integers(2**31)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fewer distinct programs than clusters is ordinary here
        model.fit(sample)
    cluster = model.predict(vectors)
    order = np.argsort(cluster, kind="stable")
    bounds = np.searchsorted(cluster[order], np.arange(k + 1))
    found: list[np.ndarray] = []
    for a, b in pairwise(bounds):
        rows = order[a:b]
        if len(rows) > size and len(rows) < 0.9 * m:
            found += [rows[part] for part in blocks(vectors[rows], rng, size)]
        elif len(rows) > size:
            found += np.array_split(rng.permutation(rows), -(-len(rows) // size))
        elif len(rows):
            found.append(rows)
    return found
