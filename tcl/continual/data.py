"""What continual learning reads of one platform, and nothing of any other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from tcl.errors import UserError
from tcl.features.flat import flat_features
from tcl.models.base import Examples, Inputs
from tcl.programs.dataset import Dataset
from tcl.programs.splits import Split
from tcl.sampling.base import Pool, budget_of
from tcl.sampling.registry import make_sampler
from tcl.training.data import at_most, examples_of, with_operators


@dataclass
class PlatformData:
    """One platform's part of the training tasks.

    train: the programs that were paid for (the selection), labelled by what was measured of them alone. pool: n programs of the same
    tasks, measured or not, and pool_assignment, int (n,): features only, so a program that was never run may be among them. test:
    programs of tasks that are never trained on; only `evaluate` reads it. about: plain JSON for the history.
    """

    platform: str
    kind: str
    train: Examples
    pool: Inputs
    pool_assignment: np.ndarray
    test: Examples | None = None
    about: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Choice:
    """How a platform's programs are chosen. fraction: of the programs of the training tasks, measured for learning. per_assignment: at
    most so many programs of each task exist at all (None: all), drawn before anything else: bounds the cost of a benchmark.
    pool_per_assignment: programs of each task that consolidation reads. operators: only these (None: all)."""

    fraction: float = 0.1
    sampler: str = "rdu"
    seed: int = 0
    per_assignment: int | None = None
    pool_per_assignment: int = 200
    test_per_assignment: int | None = None
    operators: Sequence[str] | None = None


def platform_data(dataset: Dataset, platform: str, split: Split, choice: Choice, test_part: str = "test") -> PlatformData:
    """Read one platform of `dataset`. Raises UserError for a platform that it does not have or that has no training program."""
    rows = platform_rows(dataset, platform, choice)
    part = split.parts(rows)
    train = rows[part == "train"].reset_index(drop=True)
    if not len(train):
        raise UserError(f"{platform} has no program of the training tasks.", hint="Choose another split or other operators.")
    picked = select(dataset, train, choice)
    pool = examples_of(dataset, at_most(train, choice.pool_per_assignment, choice.seed))
    test = rows[part == test_part]
    if choice.test_per_assignment:
        test = at_most(test, choice.test_per_assignment, 0)
    about = {
        "platform": platform, "programs": len(train), "measured": len(picked),
        "tasks": int(train["task"].nunique()),
        "fraction": choice.fraction, "sampler": choice.sampler, "seed": choice.seed,
        "dataset": dataset.path.name, "version": dataset.version,
        "split": {"kind": split.kind, "seed": split.seed}, "pool": len(pool),
    }  # fmt: skip
    examples = examples_of(dataset, picked)
    test_examples = examples_of(dataset, test) if len(test) else None
    return PlatformData(platform, dataset.platforms()[platform].kind, examples, pool.inputs, pool.assignment, test_examples, about)


def platform_rows(dataset: Dataset, platform: str, choice: Choice) -> pd.DataFrame:
    """`dataset.labels()` of one platform, bounded as `choice` says."""
    if platform not in dataset.platforms():
        known = ", ".join(dataset.platforms()) or "none"
        raise UserError(f"{dataset.path} has no platform {platform!r} (it has: {known}).")
    rows = dataset.labels([platform])
    if choice.operators:
        rows = with_operators(dataset, rows, choice.operators)
    if choice.per_assignment:
        rows = at_most(rows, choice.per_assignment, 0)
    return rows.reset_index(drop=True)


def select(dataset: Dataset, rows: pd.DataFrame, choice: Choice) -> pd.DataFrame:
    """The rows of the programs that a sampler picks before anything is measured: it sees features, never labels."""
    if choice.fraction >= 1:
        return rows
    budget = max(1, budget_of(float(choice.fraction), len(rows)))
    if choice.sampler == "random":
        vectors = np.zeros((len(rows), 1), np.float32)
    else:
        vectors = flat_features(dataset, rows["program"].to_numpy(np.int64), tasks=False)
    picked = make_sampler(choice.sampler).query(Pool(vectors, rows["task"].to_numpy(np.int64)), budget, seed=choice.seed)
    return rows.iloc[np.sort(picked)].reset_index(drop=True)
