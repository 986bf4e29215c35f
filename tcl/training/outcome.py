"""What a model made of measured programs: its score of each, and how it ranked each assignment. Kept as tables, so that whoever
draws them needs no model.

    predictions.parquet   one row a program and platform
    assignments.parquet   one row a (task, platform), with the program that the model ranks first and the one that is
    scores.json           the metrics over all of them, as `tcl train --json` and `tcl evaluate --json` print them
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tcl.errors import UserError
from tcl.models.base import Examples

PREDICTIONS, ASSIGNMENTS, SCORES = "predictions.parquet", "assignments.parquet", "scores.json"
WORST = 20
"""Assignments listed as the worst ones of an evaluation."""


def predictions(examples: Examples, prediction: np.ndarray, part: str) -> pd.DataFrame:
    """One row a program on a platform: program, task (int64 ids), platform, part, latency_s (NaN for a failure), label (best latency of
    the part's assignment / latency, 0 for a failure), prediction (higher is faster)."""
    truth: Any = examples.truth
    return pd.DataFrame(
        {
            "program": examples.program, "task": examples.task, "platform": truth.platform[truth.member].astype(str), "part": part,
            "latency_s": np.where(np.isfinite(truth.latency_s), truth.latency_s, np.nan), "label": truth.label.astype(np.float32),
            "prediction": np.asarray(prediction, dtype=np.float32),
        }
    )  # fmt: skip


def assignments(examples: Examples, prediction: np.ndarray, names: dict[int, str], part: str) -> pd.DataFrame:
    """One row an assignment, the worst top-1 first, those without any success last.

    part, task (int64), name, operator, platform; programs, failed (counts); top1, top5, pairwise, spearman (NaN where not defined);
    best_s, picked_s (seconds: the fastest program's and that of the one ranked first, NaN for a failure); picked_rank (measured rank of
    the one ranked first; 1: the fastest); best_program, picked_program (int64).
    """
    truth: Any = examples.truth
    failed = ~np.isfinite(truth.latency_s)
    chosen = truth.chosen_s(prediction, (1, 5))
    if not len(truth.codes):
        first = fastest = np.zeros(0, dtype=np.int64)
    else:
        first = truth.order(prediction)[truth.start]
        fastest = np.lexsort((truth.latency_s, truth.member))[truth.start]
    with np.errstate(invalid="ignore"):
        top = np.where(truth.usable[:, None], truth.best_s[:, None] / chosen, np.nan)
    faster = truth.latency_s < truth.latency_s[first][truth.member]
    frame = pd.DataFrame(
        {
            "part": part, "task": truth.task.astype(np.int64), "name": [names.get(int(t), "") for t in truth.task],
            "operator": truth.operator.astype(str), "platform": truth.platform.astype(str), "programs": truth.size,
            "failed": np.bincount(truth.member, failed, minlength=len(truth.codes)).astype(np.int64),
            "top1": top[:, 0], "top5": top[:, 1], "pairwise": truth.pairwise(prediction), "spearman": truth.spearman(prediction),
            "best_s": np.where(truth.usable, truth.best_s, np.nan), "picked_s": np.where(failed[first], np.nan, truth.latency_s[first]),
            "picked_rank": 1 + np.bincount(truth.member, faster, minlength=len(truth.codes)).astype(np.int64),
            "best_program": examples.program[fastest], "picked_program": examples.program[first],
        }
    )  # fmt: skip
    return frame.sort_values("top1", kind="stable", na_position="last", ignore_index=True)


def worst(table: pd.DataFrame, n: int = WORST) -> list[dict[str, Any]]:
    """The first `n` rows of `assignments` that have a success: task (name), operator, platform, top1, pairwise, programs."""
    rows = table[table["best_s"].notna()].head(n)
    columns = ["name", "operator", "platform", "top1", "pairwise", "programs"]
    return rows[columns].rename(columns={"name": "task"}).to_dict("records")


# -- read again, without a model -----------------------------------------------------------------------------------------------


def read_table(folder: str | Path, name: str) -> pd.DataFrame | None:
    """`PREDICTIONS` or `ASSIGNMENTS` of a folder; None where it has none. Raises UserError for one that cannot be read."""
    path = Path(folder) / name
    if not path.exists():
        return None
    try:
        return pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}.", hint="Train or evaluate the model again.") from None


def read_json(folder: str | Path, name: str) -> Any:
    """The value of a JSON file in a model's folder (`SCORES`, history.json); None where it is missing or half of one."""
    try:
        return json.loads((Path(folder) / name).read_text())
    except (OSError, ValueError):
        return None
