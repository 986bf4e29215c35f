"""Lesson 3: what a cost model made of programs it had never seen, assignment by assignment, from the tables beside its model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tcl.errors import UserError
from tcl.lessons import DATA
from tcl.lessons.question import Question, how_much, which
from tcl.training import outcome
from tcl.views.training import by_operator, ranks

FOLDER = DATA / "xgb"
COMMAND = ("train", "assets/builtin", "--model", "xgb", "--platform", "xeon-2c-avx512", "--out", "assets/lessons/xgb")
"""What trains it again, after `tcl`."""
LARGE = 1.5
"""A choice so many times slower than the fastest counts as a bad one here."""


@dataclass(frozen=True)
class Outcome:
    """The test part of a model (`tcl.training.outcome`): its predictions, its assignments (worst first) and its scores."""

    predictions: pd.DataFrame
    assignments: pd.DataFrame
    scores: dict[str, Any]

    def programs(self, row: int) -> pd.DataFrame:
        """The predictions of one of `assignments`."""
        one = self.assignments.iloc[row]
        mine = (self.predictions["task"] == one["task"]) & (self.predictions["platform"] == one["platform"])
        return self.predictions[mine].reset_index(drop=True)


def load(folder: Path = FOLDER) -> Outcome:
    """Raises UserError for a folder that holds no evaluated model."""
    programs, table = outcome.read_table(folder, outcome.PREDICTIONS), outcome.read_table(folder, outcome.ASSIGNMENTS)
    if programs is None or table is None:
        raise UserError(f"{folder} holds no predictions.", hint="Train a model there with `tcl train`.")
    table = table[(table["part"] == "test") & table["best_s"].notna() & (table["programs"] > 1)]
    return Outcome(programs[programs["part"] == "test"], table.reset_index(drop=True), outcome.read_json(folder, outcome.SCORES) or {})


def rank_errors(found: Outcome) -> pd.DataFrame:
    """One row a program: measured (its rank as a share of its assignment, 0: the fastest) and error (|predicted - measured| rank, as a
    share)."""
    parts = []
    for row in range(len(found.assignments)):
        frame = ranks(found.programs(row))
        n = max(len(frame) - 1, 1)
        parts.append(pd.DataFrame({"measured": (frame["measured"] - 1) / n, "error": (frame["predicted"] - frame["measured"]).abs() / n}))
    return pd.concat(parts, ignore_index=True)


def questions(found: Outcome) -> list[Question]:
    """Four: how far off a choice is, where, at which end, and what a good average hides."""
    table = found.assignments
    slower = (table["picked_s"].fillna(np.inf) / table["best_s"]).to_numpy()
    middle, bad = float(np.median(slower)), int((slower >= LARGE).sum())
    operators = by_operator({"xgb": table}, "top1")["xgb"].dropna().sort_values()
    errors = rank_errors(found)
    fast, slow = errors[errors["measured"] <= 0.25]["error"].mean(), errors[errors["measured"] >= 0.75]["error"].mean()
    ends = ("the fast quarter", "the slow quarter", "both alike")
    end = 2 if abs(fast - slow) < 0.01 else 0 if fast > slow else 1
    rho = float(table["pairwise"].rank().corr(table["top1"].rank()))
    worst = table.iloc[0]
    good = table.sort_values("pairwise", ascending=False).head(max(len(table) // 2, 1))
    missed = int((good["picked_s"].fillna(np.inf) / good["best_s"] >= LARGE).sum())
    names = operators.index.tolist()
    names = sorted({names[0], names[-1], names[len(names) // 2], names[len(names) // 3]})
    return [
        how_much(
            "The model ranks a task's programs; you run the one it puts first. How much slower than the fastest one is that, in the middle "
            "of all tasks?", 100 * (middle - 1), (5, 15, 30, 60),
            f"{100 * (middle - 1):.0f} % in the middle of {len(table)} tasks; {bad} of them are {LARGE:g} × or more. The worst: "
            f"{worst['name']}, where its choice is at rank {worst['picked_rank']} of {worst['programs']}.", "{:g} %",
        ),
        which(
            "Which operator does it choose worst for?", names, str(operators.index[0]),
            "Mean top-1 (best latency / that of its choice): " + ", ".join(f"{o} {v:.2f}" for o, v in operators.items()) + ".",
        ),
        Question(
            "Where are its ranks further off: among the fast programs, which matter, or among the slow ones?", ends, end,
            f"Mean rank error in the fastest quarter {100 * fast:.0f} % of the list, in the slowest {100 * slow:.0f} %.",
        ),
        Question(
            "Take the half of the tasks with the best pairwise accuracy. Does it always choose well there?",
            ("yes, always", f"no: some choices are {LARGE:g} × slower or more"), int(missed > 0),
            f"{missed} of these {len(good)} choices are {LARGE:g} × slower or more. Pairwise accuracy counts all pairs, a choice is "
            f"one program: across tasks the two go together with a rank correlation of {rho:.2f}.",
        ),
    ]  # fmt: skip
