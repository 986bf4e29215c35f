"""Lesson 3: what two cost models made of programs they had never seen, assignment by assignment, from the tables beside them."""

from __future__ import annotations

from collections.abc import Mapping
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

MODELS = ("xgb", "mlp")
"""Boosted trees and a multilayer perceptron, trained on the same programs; their weights are not kept."""
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


def command(model: str) -> tuple[str, ...]:
    """What trains a model again, after `tcl`."""
    return ("train", "assets/builtin", "--model", model, "--platform", "xeon-2c-avx512", "--out", f"assets/lessons/{model}")


def load(folder: Path) -> Outcome:
    """Raises UserError for a folder that holds no evaluated model."""
    programs, table = outcome.read_table(folder, outcome.PREDICTIONS), outcome.read_table(folder, outcome.ASSIGNMENTS)
    if programs is None or table is None:
        raise UserError(f"{folder} holds no predictions.", hint="Train a model there with `tcl train`.")
    table = table[(table["part"] == "test") & table["best_s"].notna() & (table["programs"] > 1)]
    return Outcome(programs[programs["part"] == "test"], table.reset_index(drop=True), outcome.read_json(folder, outcome.SCORES) or {})


def both(folder: Path = DATA) -> dict[str, Outcome]:
    """The models of the lesson by name."""
    return {name: load(folder / name) for name in MODELS}


def rank_errors(found: Outcome) -> pd.DataFrame:
    """One row a program: measured (its rank as a share of its assignment, 0: the fastest) and error (|predicted - measured| rank, as a
    share)."""
    parts = []
    for row in range(len(found.assignments)):
        frame = ranks(found.programs(row))
        n = max(len(frame) - 1, 1)
        parts.append(pd.DataFrame({"measured": (frame["measured"] - 1) / n, "error": (frame["predicted"] - frame["measured"]).abs() / n}))
    return pd.concat(parts, ignore_index=True)


def questions(name: str, found: Outcome) -> list[Question]:
    """Three about one model: how far off a choice is, for which operator, and at which end of the ranking."""
    table = found.assignments
    slower = (table["picked_s"].fillna(np.inf) / table["best_s"]).to_numpy()
    middle, bad = float(np.median(slower)), int((slower >= LARGE).sum())
    operators = by_operator({name: table}, "top1")[name].dropna().sort_values()
    errors = rank_errors(found)
    fast, slow = errors[errors["measured"] <= 0.25]["error"].mean(), errors[errors["measured"] >= 0.75]["error"].mean()
    ends = ("the fast quarter", "the slow quarter", "both alike")
    end = 2 if abs(fast - slow) < 0.01 else 0 if fast > slow else 1
    worst = table.iloc[0]
    names = operators.index.tolist()
    names = sorted({names[0], names[-1], names[len(names) // 2], names[len(names) // 3]})
    return [
        how_much(
            f"{name} ranks a task's programs; you run the one it puts first. How much slower than the fastest one is that, in the middle "
            "of all tasks?", 100 * (middle - 1), (5, 15, 30, 60),
            f"{100 * (middle - 1):.0f} % in the middle of {len(table)} tasks; {bad} of them are {LARGE:g} × or more. The worst: "
            f"{worst['name']}, where its choice is at rank {worst['picked_rank']} of {worst['programs']}.", "{:g} %",
        ),
        which(
            f"Which operator does {name} choose worst for?", names, str(operators.index[0]),
            "Mean top-1 (best latency / that of its choice): " + ", ".join(f"{o} {v:.2f}" for o, v in operators.items()) + ".",
        ),
        Question(
            f"Where are the ranks of {name} further off: among the fast programs, which matter, or among the slow ones?", ends, end,
            f"Mean rank error in the fastest quarter {100 * fast:.0f} % of the list, in the slowest {100 * slow:.0f} %.",
        ),
    ]  # fmt: skip


def compared(models: Mapping[str, Outcome]) -> list[Question]:
    """Two about both models: whether the one that orders more pairs right also chooses better, and what measuring five instead of one
    changes."""
    pairs, first, five = ({n: f.scores[m] for n, f in models.items()} for m in ("pairwise", "top1_mean", "top5_mean"))
    by_pairs, by_first, by_five = (max(d, key=d.__getitem__) for d in (pairs, first, five))
    told = "; ".join(f"{n}: pairwise {pairs[n]:.3f}, top-1 {first[n]:.3f}, top-5 {five[n]:.3f}" for n in models)
    rho = {n: float(f.assignments["pairwise"].rank().corr(f.assignments["top1"].rank())) for n, f in models.items()}
    with_tasks = ", ".join(f"{r:.2f} ({n})" for n, r in rho.items())
    return [
        Question(
            f"{by_pairs} puts more pairs of programs in the right order. Is the program that it puts first the better choice, too?",
            ("yes, on average", "no, the other model's is"), int(by_first != by_pairs),
            f"{told}. Pairwise accuracy counts all pairs, a choice is one program. Across tasks the two go together with a rank "
            f"correlation of {with_tasks}.",
        ),
        which(
            "If you can measure the five programs that a model puts first, instead of one: which model serves you better?", list(models),
            by_five,
            f"Top-5: {', '.join(f'{n} {v:.3f}' for n, v in five.items())}. Which score matters depends on how many programs you measure.",
        ),
    ]  # fmt: skip
