"""How a budget is split over the assignments of a pool."""

from __future__ import annotations

from typing import Literal

import numpy as np

Allocation = Literal["proportional", "equal", "sqrt", "difficulty"]
"""proportional to an assignment's programs, the same for each, proportional to the root of its programs, or proportional and
more where programs differ more and the model is less sure."""


def split_budget(
    available: np.ndarray, budget: int, *, done: np.ndarray | None = None, weights: np.ndarray | None = None, rng: np.random.Generator
) -> np.ndarray:
    """Share `budget` programs among k assignments.

    available  int (k,): candidates of each; no share exceeds it
    done       int (k,): programs measured before; they count towards the assignment's share
    weights    float (k,): how much each deserves, in any scale; default: its candidates plus what is done

    Returns int (k,) that sums to min(budget, available.sum()). An assignment without any measurement gets at least one
    program before another gets more than one; where even that is too much, `rng` chooses by weight who gets one.
    """
    available = np.asarray(available, dtype=np.int64)
    done = np.zeros_like(available) if done is None else np.asarray(done, dtype=np.int64)
    weights = np.asarray(available + done if weights is None else weights, dtype=float)
    budget = int(min(budget, available.sum()))
    shares = np.zeros_like(available)
    if len(shares) == 1:
        return np.array([budget], dtype=np.int64)
    if budget == 0:
        return shares
    needy = np.flatnonzero((available > 0) & (done == 0))
    if budget < len(needy):
        chance = weights[needy] + 1e-12
        shares[rng.choice(needy, size=budget, replace=False, p=chance / chance.sum())] = 1
        return shares
    shares[needy] = 1
    # Raise a common water level until the budget is spent: each assignment is filled up to level * weight, less what is done.
    low, high = shares.astype(float), available.astype(float)
    wanted = np.where(weights > 0, weights, 1e-12)

    def filled(level: float) -> np.ndarray:
        return np.clip(level * wanted - done, low, high)

    top = 1.0
    while filled(top).sum() < budget and top < 1e300:
        top *= 2
    bottom = 0.0
    for _ in range(200):
        middle = (bottom + top) / 2
        bottom, top = (middle, top) if filled(middle).sum() < budget else (bottom, middle)
    ideal = filled(top)
    shares = np.maximum(shares, np.floor(ideal + 1e-9).astype(np.int64))
    # Whole programs: the largest remainders first, ties in random order.
    tie = rng.random(len(shares))
    while (left := budget - int(shares.sum())) > 0:
        open_ = np.flatnonzero(shares < available)
        order = open_[np.lexsort((tie[open_], -(ideal - shares)[open_]))]
        shares[order[:left]] += 1
    while (over := int(shares.sum()) - budget) > 0:
        spare = np.flatnonzero(shares > low)
        order = spare[np.lexsort((tie[spare], (ideal - shares)[spare]))]
        shares[order[:over]] -= 1
    return shares
