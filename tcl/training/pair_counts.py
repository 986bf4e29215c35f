"""Counting the pairs that a ranking orders correctly, in O(n log n), compiled by numba on first use and cached on disk."""

from __future__ import annotations

import numba
import numpy as np


@numba.njit(cache=True)
def pair_counts(start: np.ndarray, size: np.ndarray, score: np.ndarray, label: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each group: (pairs with different labels ordered correctly, equal scores counting one half; pairs with different labels).

    start, size: shape (groups,); score, label: shape (n,), group by group; within a group sorted by score, ascending; label holds whole
    numbers in [0, size). A Fenwick tree over the labels counts those that came before with a lower one.
    """
    correct, different = np.zeros(len(start)), np.zeros(len(start))
    for g in range(len(start)):
        n, first = size[g], start[g]
        tree = np.zeros(n + 1, np.int64)
        of_label = np.zeros(n, np.int64)
        i = 0
        while i < n:
            j = i
            while j < n and score[first + j] == score[first + i]:
                j += 1
            for a in range(i, j):  # pairs with a strictly lower score
                k = label[first + a]
                below = 0
                while k > 0:
                    below += tree[k]
                    k -= k & -k
                correct[g] += below
                different[g] += i - of_label[label[first + a]]
            equal = np.float64(j - i) * (j - i - 1) / 2
            for a in range(i, j):
                value = label[first + a]
                of_label[value] += 1
                k = value + 1
                while k <= n:
                    tree[k] += 1
                    k += k & -k
            if j - i > 1:  # pairs with equal scores: those of them with equal labels tell nothing
                block = np.sort(label[first + i : first + j])
                run = 1
                for a in range(1, len(block) + 1):
                    if a < len(block) and block[a] == block[a - 1]:
                        run += 1
                    else:
                        equal -= np.float64(run) * (run - 1) / 2
                        run = 1
                correct[g] += equal / 2
                different[g] += equal
            i = j
    return correct, different
