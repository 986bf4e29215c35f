"""Which schedule primitives a trained model's ranking rests on: permutation importance (Breiman 2001, section 10).

For one kind of primitive at a time, the numbers of its tokens (`tcl.features.vocabulary.NUMBERS`) are swapped among the programs of one
assignment that have equally many of them; the model ranks the changed programs, and what its ranking loses in pairwise accuracy
and top-1 is the kind's importance. Swapping within an assignment keeps what the numbers of a task look like, so that only the order
among its programs is asked for; all tokens of the kind move together, as they belong together in a program.

What to keep in mind: kinds that repeat each other's numbers (a split, the split that follows it, a loop annotated with its extent)
share their importance, so that each alone looks small. That a primitive is there or not is never changed, only its numbers are.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from tcl.errors import UserError
from tcl.features.tokens import Tokens
from tcl.features.vocabulary import KIND, KINDS, REDUCTION, ROLE, SPATIAL
from tcl.machine import busy
from tcl.models.base import CostModel, Examples, Inputs
from tcl.progress import Progress

REPEATS = 3
PROGRAMS = 1024
"""Test programs the importance is measured on, at most: it costs a prediction of each, for every kind and repeat."""
COLUMNS = ("primitive", "changed", "pairwise_drop", "pairwise_drop_sd", "top1_drop", "top1_drop_sd", "repeats")


def permutation_importance(
    model: CostModel, examples: Examples, repeats: int = REPEATS, seed: int = 0, progress: Progress | None = None
) -> pd.DataFrame:
    """What each kind of primitive is worth to `model` on `examples`.

    Returns one row a kind that occurs, the most important first, and one more for the spatial and the reduction loops of a kind that
    has both: primitive ("split", "split (spatial)", …); changed (share of the programs whose numbers a swap changed, mean over
    repeats); pairwise_drop and top1_drop (accuracy and mean top-1 before minus after, mean over repeats; about 0: not used, below 0:
    noise) with their standard deviations over repeats (NaN for one); repeats. Empty where no assignment can be ranked (one program, or
    all failed).
    """
    if repeats < 1:
        raise UserError(f"Importance is measured with at least 1 repeat, not {repeats}.")
    progress = progress or Progress()
    truth: Any = examples.truth
    tokens = examples.inputs.tokens.take(np.arange(len(examples)))
    with busy():
        scores = np.asarray(model.predict(examples.inputs), dtype=np.float64)
    before = truth.evaluate(scores)
    if not np.isfinite(before["pairwise"]):
        return pd.DataFrame(columns=list(COLUMNS))
    rows = []
    for number, (name, here) in enumerate(groups(tokens)):
        drops, changed = [], []
        for repeat in range(repeats):
            progress.check()
            numbers, rows_changed = permuted(tokens, here, examples.assignment, np.random.default_rng([seed, number, repeat]))
            changed.append(len(rows_changed) / len(examples))
            after = before
            if len(rows_changed):
                with busy():
                    part = _with(examples.inputs, replace(tokens, numbers=numbers)).take(rows_changed)
                    new = scores.copy()
                    new[rows_changed] = model.predict(part)
                after = truth.evaluate(new)
            drops.append((before["pairwise"] - after["pairwise"], before["top1_mean"] - after["top1_mean"]))
        mean = np.mean(drops, axis=0)
        sd = np.std(drops, axis=0, ddof=1) if repeats > 1 else np.full(2, np.nan)
        rows.append((name, float(np.mean(changed)), mean[0], sd[0], mean[1], sd[1], repeats))
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    return frame.sort_values("pairwise_drop", ascending=False, kind="stable", ignore_index=True)


def groups(tokens: Tokens) -> list[tuple[str, np.ndarray]]:
    """What is permuted together: names, and bool (n, L) which tokens they are. Kinds in the vocabulary's order."""
    found = []
    role = tokens.numbers[:, :, ROLE]
    for kind in np.unique(tokens.kind).tolist():
        if kind == KIND["padding"]:
            continue
        here = tokens.kind == kind
        found.append((KINDS[kind], here))
        parts = [(word, here & (role == value)) for word, value in (("spatial", SPATIAL), ("reduction", REDUCTION))]
        if all(part.any() for _, part in parts):
            found += [(f"{KINDS[kind]} ({word})", part) for word, part in parts]
    return found


def permuted(tokens: Tokens, here: np.ndarray, assignment: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The numbers (n, L, P) of `tokens` with those of the tokens `here` swapped among programs, and int (m,): the programs that changed.

    here: bool (n, L). assignment: int (n,). Programs swap with others of their assignment that have equally many such tokens; a
    program alone in that keeps its own.
    """
    count = here.sum(axis=1)
    has = np.flatnonzero(count)
    numbers = tokens.numbers.copy()
    # Programs in their groups, once in the order they stand in and once shuffled within each group: the second gives to the first.
    order = has[np.lexsort((count[has], assignment[has]))]
    shuffled = random.permutation(has)
    giver = shuffled[np.lexsort((count[shuffled], assignment[shuffled]))]
    row, place = np.nonzero(here[order])
    given_row, given_place = np.nonzero(here[giver])  # equal counts in equal order: token by token
    numbers[order[row], place] = tokens.numbers[giver[given_row], given_place]
    return numbers, has[(numbers[has] != tokens.numbers[has]).any(axis=(1, 2))]


def thinned(rows: pd.DataFrame, programs: int = PROGRAMS, seed: int = 0) -> pd.DataFrame:
    """At most about `programs` rows of `Dataset.labels()`: so many of each (task, platform) that all of them are there still."""
    if len(rows) <= programs:
        return rows
    groups = rows.groupby(["platform", "task"], observed=True, sort=False)
    each = max(2, programs // max(groups.ngroups, 1))
    shuffled = rows.sample(frac=1.0, random_state=seed)
    return shuffled.groupby(["platform", "task"], observed=True, sort=False).head(each).sort_index()


def _with(inputs: Inputs, tokens: Tokens) -> Inputs:
    """`inputs` with other tokens; what was computed from the old ones is computed anew."""
    return Inputs(tokens, inputs.task, inputs.task_of, inputs.platform, inputs.platform_of)
