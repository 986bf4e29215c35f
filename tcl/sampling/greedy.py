"""Greedy picking by distance: the core that k-center and RDU share."""

from __future__ import annotations

import numpy as np

from tcl.sampling.embedding import squared_distances


def distance_to(vectors: np.ndarray, known: np.ndarray) -> np.ndarray:
    """float32 (m, p), (k, p) -> float32 (m,): each row's squared distance to the nearest known one; infinite if k is 0."""
    nearest = np.full(len(vectors), np.inf, np.float32)
    for start in range(0, len(known), 4096):
        nearest = np.minimum(nearest, squared_distances(vectors, known[start : start + 4096]).min(axis=1))
    return nearest


def fade(n: int) -> float:
    """How much of `farthest_first`'s `early` counts once n rows are known or picked: half as much with each."""
    return 0.5**n


def farthest_first(
    vectors: np.ndarray, known: np.ndarray, budget: int, quality: np.ndarray, power: float = 1.0, early: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Pick `budget` of m rows, one after the other, each the best by quality * distance ** `power`.

    early: float (m,), positive, or None; quality is multiplied by early ** `fade(n)` where n rows are known or picked already: what
    matters for the first rows, and little later.

    distance is the Euclidean distance to the nearest row that is known or was picked before; quality is float (m,), positive.
    With all qualities equal this is the greedy 2-approximation of the k-center problem (Gonzalez 1985), the core-set of Sener
    and Savarese (2018). Where every remaining distance is 0 (identical programs), quality decides.

    Returns int (budget,) positions in pick order, and float (m,) the distance of each row at the moment it was picked (of
    those not picked: in the end) as a share of the largest distance at that moment. O(m * budget * p).
    """
    m = len(vectors)
    nearest = distance_to(vectors, known)
    norms = (vectors**2).sum(axis=1)
    # Rounding leaves up to this much between equal rows; without it the greedy would chase noise among identical programs.
    noise = np.float32(1e-6) * (norms.max(initial=0.0) + 1.0)
    open_ = np.ones(m, bool)
    relative = np.zeros(m, np.float32)
    picked = np.empty(budget, np.int64)
    for step in range(budget):
        largest = nearest[open_].max()
        if not np.isfinite(largest):  # nothing known yet: all are equally far
            share = np.ones(m, np.float32)
        elif largest > noise:
            share = np.sqrt(np.where(nearest > noise, nearest, 0.0) / largest, dtype=np.float32)
        else:
            share = np.zeros(m, np.float32)
        now = quality if early is None else quality * early ** fade(len(known) + step)
        merit = now * share**power if power else now
        if power and not merit[open_].max() > 0:
            merit = now
        best = int(np.argmax(np.where(open_, merit, -np.inf)))
        picked[step], open_[best], relative[best] = best, False, share[best]
        gap = np.maximum(norms + norms[best] - 2.0 * (vectors @ vectors[best]), 0.0)
        np.minimum(nearest, gap, out=nearest)
    if budget < m:
        largest = nearest[open_].max()
        relative[open_] = np.sqrt(nearest[open_] / largest) if largest > noise else 0.0
    return picked, relative


def typicality(vectors: np.ndarray, neighbours: int = 20, local: bool = True) -> np.ndarray:
    """float32 (m, p) -> float32 (m,) in (0, 1]: how typical each program is, by rank within the group.

    The density at a program is 1 / mean distance to its nearest `neighbours` others (TypiClust, Hacohen et al. 2022). With `local`
    it is divided by the mean density at those neighbours (as in the local outlier factor, Breunig et al. 2000): programs in the
    middle of a sparse region are then as typical as those in the middle of a crowd. Ranks make groups of different spread
    comparable; equal programs are equally typical. O(m^2 p), so groups come in blocks.
    """
    m = len(vectors)
    if m == 1:
        return np.ones(1, np.float32)
    k = min(neighbours, m - 1)
    squares = squared_distances(vectors, vectors)
    np.fill_diagonal(squares, np.inf)
    near = np.argpartition(squares, k - 1, axis=1)[:, :k]
    gap = np.sqrt(np.take_along_axis(squares, near, axis=1)).mean(axis=1)
    if local:
        around = gap[near].mean(axis=1)
        gap = np.where(around > 0, gap / np.where(around > 0, around, 1.0), 1.0)
    return rank_share(-gap)


def rank_share(values: np.ndarray) -> np.ndarray:
    """float (m,) -> float32 (m,) in (0, 1]: the share of rows that are not larger; equal values get equal shares."""
    rounded = np.round(np.asarray(values, dtype=np.float64), 6)
    _, codes, counts = np.unique(rounded, return_inverse=True, return_counts=True)
    return (np.cumsum(counts)[codes] / len(values)).astype(np.float32)
