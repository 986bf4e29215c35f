"""From a dataset on disk to what models learn from: programs, their tokens, and labels by assignment."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from tcl.errors import UserError
from tcl.features.context import platform_features, task_features
from tcl.features.tokens import Tokens, rows_of, tokens_of
from tcl.models.base import Examples, Inputs
from tcl.programs.dataset import Dataset
from tcl.training.metrics import Assignments

IN_MEMORY = 2_000_000
"""More programs than this are read from the memory-mapped tokens batch by batch; fewer are copied once, which is faster."""


def examples_of(dataset: Dataset, rows: pd.DataFrame, relabel: bool = True) -> Examples:
    """Rows of `dataset.labels()` (any subset, in any order) with their tokens, tasks and platforms.

    With `relabel`, labels are computed from the rows at hand: who measured only a selection does not know the latency of the best
    program of the whole pool, and neither may a model trained on it.
    """
    rows = rows.reset_index(drop=True)
    tasks, platforms = dataset.task_list(), dataset.platforms()
    task_ids = np.array([t.id for t in tasks], dtype=np.int64)
    names = list(platforms)
    task = rows["task"].to_numpy(dtype=np.int64)
    place = rows["platform"].astype(str)
    unknown = sorted(set(place) - set(names))
    if unknown:
        raise UserError(f"{dataset.path} does not describe the platforms {', '.join(unknown)}.", hint="Run `tcl data validate` on it.")
    task_of = rows_of(task_ids, task).astype(np.int32)
    platform_of = place.map({n: i for i, n in enumerate(names)}).to_numpy(dtype=np.int32)
    assignment = task_of.astype(np.int64) * max(len(names), 1) + platform_of
    latency = rows["latency_s"].to_numpy(dtype=np.float64)
    truth = Assignments.of(rows, dataset.tasks())
    label = labels_of(latency, assignment) if relabel else np.nan_to_num(rows["label"].to_numpy(dtype=np.float32))
    program = rows["program"].to_numpy(dtype=np.int64)
    inputs = Inputs(_tokens(dataset, program), task_features(tasks), task_of, platform_features(list(platforms.values())), platform_of)
    return Examples(inputs, label, assignment, program, task, truth)


def labels_of(latency_s: np.ndarray, assignment: np.ndarray) -> np.ndarray:
    """float32 (n,): the assignment's best latency / this latency; 0 for a failure (a latency that is not positive and finite)."""
    count = int(assignment.max()) + 1 if len(assignment) else 0
    best = np.full(count, np.inf)
    good = np.isfinite(latency_s) & (latency_s > 0)
    np.minimum.at(best, assignment[good], latency_s[good])
    label = np.zeros(len(latency_s), dtype=np.float32)
    label[good] = best[assignment[good]] / latency_s[good]
    return label


def at_most(rows: pd.DataFrame, per_assignment: int, seed: int) -> pd.DataFrame:
    """At most so many rows of each (task, platform), drawn at random; the order is kept."""
    shuffled = rows.sample(frac=1.0, random_state=seed)
    return shuffled.groupby(["platform", "task"], observed=True, sort=False).head(per_assignment).sort_index()


def with_operators(dataset: Dataset, rows: pd.DataFrame, operators: Sequence[str]) -> pd.DataFrame:
    """The rows of tasks with one of these operators. Raises UserError for one that the dataset does not have."""
    operator = {t.id: t.operator for t in dataset.task_list()}
    missing = sorted(set(operators) - set(operator.values()))
    if missing:
        raise UserError(
            f"{dataset.path} has no operator {', '.join(missing)}.", hint=f"It has: {', '.join(sorted(set(operator.values())))}."
        )
    return rows[rows["task"].map(operator).isin(list(operators))]


def _tokens(dataset: Dataset, program: np.ndarray) -> Tokens:
    known = tokens_of(dataset)
    at = rows_of(np.asarray(known.program), program)
    if len(program) <= IN_MEMORY:
        return known.take(at)
    return Tokens(LazyRows(known.kind, at), LazyRows(known.numbers, at), np.asarray(known.length)[at], program)  # type: ignore[arg-type]


class LazyRows:
    """`array[rows]` that reads only what is asked for: array is memory-mapped and larger than memory allows."""

    def __init__(self, array: np.ndarray, rows: np.ndarray) -> None:
        self.array, self.rows = array, rows
        self.shape = (len(rows), *array.shape[1:])

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, key: object) -> np.ndarray:
        if isinstance(key, tuple):
            return self.array[(self.rows[key[0]], *key[1:])]
        return self.array[self.rows[key]]
