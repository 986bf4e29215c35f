"""What every sampler works on and answers: a pool of programs, a budget, indices.

The interface follows scikit-activeml (one strategy a file, `query` returns indices and, on request, the utilities it judged
by), with what tensor programs need beside it: a pool falls into *assignments* (one task on one platform), each of which
gets its share of the budget, and programs that were measured before are never picked again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Literal, overload

import numpy as np
import pandas as pd

from tcl.errors import UserError
from tcl.sampling.budget import Allocation, split_budget
from tcl.sampling.embedding import embed
from tcl.sampling.partition import blocks

SCORES = ("representativeness", "diversity", "uncertainty", "score")
"""The columns every scores table has beside `round` and `order`; NaN where a sampler does not judge by it."""


@dataclass(frozen=True)
class Pool:
    """The programs that may be measured, as plain arrays of n rows.

    vectors      float32 (n, d), any scale; rows that are equal are the same program to a sampler
    assignment   int (n,): which assignment a program belongs to; any numbers
    labels       float (n,) or None: what is known so far, best latency of the assignment / this latency, 0 for a failed
                 measurement, NaN where nothing was measured. Measured programs are never picked again.
    uncertainty  float (n,) or None: a model's uncertainty about each program, any positive scale
    prediction   float (n,) or None: a model's predicted label, higher is faster
    space        float32 (n, p) or None: `embed(vectors)`, where it is at hand
    """

    vectors: np.ndarray
    assignment: np.ndarray
    labels: np.ndarray | None = None
    uncertainty: np.ndarray | None = None
    prediction: np.ndarray | None = None
    space: np.ndarray | None = None

    def __post_init__(self) -> None:
        if self.vectors.ndim != 2:
            raise ValueError(f"vectors have the shape (n, d), not {self.vectors.shape}")
        for name in ("assignment", "labels", "uncertainty", "prediction"):
            column = getattr(self, name)
            if column is not None and column.shape != (len(self),):
                raise ValueError(f"{name} has the shape ({len(self)},), not {column.shape}")

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def embedded(self) -> np.ndarray:
        """float32 (n, p): the space of the samplers."""
        return embed(self.vectors) if self.space is None else self.space

    @property
    def measured(self) -> np.ndarray:
        """bool (n,): which programs have been measured."""
        return np.zeros(len(self), bool) if self.labels is None else ~np.isnan(self.labels)


@dataclass(frozen=True)
class Group:
    """One assignment's part of a pool, as `Sampler.pick` sees it: m candidates that may be picked, and what is known. A large
    assignment comes in blocks of near programs (`tcl.sampling.partition`).

    vectors (m, p) are embedded: standardised over the whole pool and, where that is shorter, rotated onto its principal
    components. `known` (k, p) are the embedded vectors of the programs measured before.
    """

    vectors: np.ndarray
    known: np.ndarray
    uncertainty: np.ndarray | None
    prediction: np.ndarray | None


class Sampler(ABC):
    """A strategy. Subclasses implement `pick` for one assignment; `query` is the same for all of them."""

    name: ClassVar[str]
    """How the command line, the app and the benchmarks call it."""
    judges_by: ClassVar[tuple[str, ...]] = ()
    """Of "labels", "prediction", "uncertainty": what of the pool it needs to be more than its cold start."""
    allocation: Allocation = "proportional"

    @overload
    def query(self, pool: Pool, budget: int, *, seed: int, return_scores: Literal[False] = False) -> np.ndarray: ...
    @overload
    def query(self, pool: Pool, budget: int, *, seed: int, return_scores: Literal[True]) -> tuple[np.ndarray, pd.DataFrame]: ...

    def query(self, pool: Pool, budget: int, *, seed: int, return_scores: bool = False) -> Any:
        """Pick `budget` programs to measure next.

        Returns int64 (budget,) row numbers of `pool`, none twice, none measured before, in the order in which a measurement
        that may be interrupted should take them: every assignment's first pick, then every second one, and so on. Every
        assignment gets at least one program when the budget allows. The same seed gives the same answer.

        With `return_scores` also one row a program of the pool: representativeness, diversity, uncertainty and score (see
        the sampler; NaN where it does not judge by that), order (place in the answer, -1 if not picked), round (0 for what
        was picked now, -1 for the rest; a loop of several rounds renumbers them).

        Raises UserError for a budget below 0 or above the number of unmeasured programs.
        """
        candidates = np.flatnonzero(~pool.measured)
        if not 0 <= budget <= len(candidates):
            raise UserError(f"The budget is {budget}, and {len(candidates)} programs can still be measured.")
        rng = np.random.default_rng(seed)
        scores = pd.DataFrame({column: np.full(len(pool), np.nan, np.float32) for column in SCORES})
        picked, turn = self.pick_all(pool, candidates, budget, rng, scores)
        indices = picked[np.lexsort((rng.permutation(len(picked)), turn))]
        if not return_scores:
            return indices
        scores["order"] = np.int64(-1)
        scores.loc[indices, "order"] = np.arange(len(indices))
        scores["round"] = np.where(scores["order"] >= 0, 0, -1)
        return indices, scores

    def pick_all(
        self, pool: Pool, candidates: np.ndarray, budget: int, rng: np.random.Generator, scores: pd.DataFrame
    ) -> tuple[np.ndarray, np.ndarray]:
        """Split the budget over the assignments and pick within each. Returns the picked row numbers and each one's turn
        within its assignment; fills `scores`. Overridden by the samplers that look across assignments."""
        vectors = pool.embedded
        measured = pool.measured
        columns = {name: scores[name].to_numpy(copy=True) for name in SCORES}
        picked, turns = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for rows, known, share in self.shares(pool, vectors, candidates, measured, budget, rng):
            if not share:
                continue
            parts = blocks(vectors[rows], rng)
            for part, count in zip(parts, split_budget(np.array([len(p) for p in parts]), share, rng=rng), strict=True):
                if not count:
                    continue
                block = rows[part]
                group = Group(vectors[block], vectors[known], _take(pool.uncertainty, block), _take(pool.prediction, block))
                chosen, judged = self.pick(group, int(count), rng)
                picked.append(block[chosen])
                turns.append(np.arange(len(chosen)))
                for name, values in judged.items():
                    columns[name][block] = values
        for name, values in columns.items():
            scores[name] = values
        return np.concatenate(picked), np.concatenate(turns)

    def shares(
        self, pool: Pool, vectors: np.ndarray, candidates: np.ndarray, measured: np.ndarray, budget: int, rng: np.random.Generator
    ) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
        """For every assignment: its candidates, its measured programs (row numbers), its share of the budget."""
        names, codes = np.unique(pool.assignment, return_inverse=True)
        order = np.argsort(codes, kind="stable")
        bounds = np.searchsorted(codes[order], np.arange(len(names) + 1))
        parts = [order[a:b] for a, b in pairwise(bounds)]
        sizes = np.bincount(codes[candidates], minlength=len(names))
        done = np.bincount(codes[measured], minlength=len(names))
        weights = self.weights(pool, vectors, parts)
        for rows, share in zip(parts, split_budget(sizes, budget, done=done, weights=weights, rng=rng), strict=True):
            yield rows[~measured[rows]], rows[measured[rows]], int(share)

    def weights(self, pool: Pool, vectors: np.ndarray, parts: list[np.ndarray]) -> np.ndarray:
        """float (assignments,): how much of the budget each assignment deserves (see `tcl.sampling.budget`)."""
        sizes = np.array([len(rows) for rows in parts], dtype=float)
        if self.allocation == "equal":
            return np.minimum(sizes, 1.0)
        if self.allocation == "sqrt":
            return np.sqrt(sizes)
        if self.allocation == "difficulty":
            # An assignment whose programs differ more, or that the model knows less about, needs more of them.
            spread = np.array([vectors[rows].std(axis=0).sum() for rows in parts]) if len(parts) else sizes
            unsure = np.ones(len(parts)) if pool.uncertainty is None else np.array([pool.uncertainty[rows].mean() for rows in parts])
            return sizes * np.sqrt(_relative(spread) * _relative(unsure))
        return sizes

    @abstractmethod
    def pick(self, group: Group, budget: int, rng: np.random.Generator) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Pick `budget` >= 1 of the group's m >= `budget` candidates. Returns int (budget,) positions in pick order, and what
        it judged by: some of `SCORES`, each float (m,)."""


def _take(column: np.ndarray | None, rows: np.ndarray) -> np.ndarray | None:
    return None if column is None else np.asarray(column[rows], dtype=np.float32)


def _relative(values: np.ndarray) -> np.ndarray:
    """`values` / their mean, kept within a factor of four of it."""
    mean = values.mean() if len(values) else 0.0
    return np.clip(values / mean, 0.25, 4.0) if mean > 0 else np.ones(len(values))


def budget_of(text: str | float | int, total: int) -> int:
    """A budget for `total` programs from what a person writes: 0.1, "10%" (a share) or 500 (programs)."""
    try:
        share = str(text).strip()
        value = float(share[:-1]) / 100 * total if share.endswith("%") else float(share)
        if not share.endswith("%") and (0 < value < 1 or (isinstance(text, float) and value == 1.0) or share == "1.0"):
            value *= total
    except ValueError:
        raise UserError(f"{text!r} is not a budget.", hint="Write a share (0.1 or 10%) or a number of programs (500).") from None
    if not 0 <= value <= total:
        raise UserError(f"The budget {text} is not between 0 and the {total} programs of the pool.")
    return round(value)
