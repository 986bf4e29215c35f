"""What sets some programs apart from the rest: effect sizes of their parameters and primitives, in plain sentences.

Programs of different tasks differ because their tasks do. So everything is compared within tasks: a value counts as its distance
from the mean of its task, and "the rest" are the other programs of the same tasks. The effect size is the difference of the two means
in standard deviations within tasks (Cohen's d; 0.8 is what he calls large, Statistical Power Analysis, 1988, 2.2.3).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from tcl.features.flat import FLAT_FEATURES
from tcl.views.explore import parameter_name, parameter_values

FEWEST = 3
"""Fewer programs than this have nothing in common that could be told from chance."""
LARGE = 0.5
"""Effects below this are not told: the middle of Cohen's scale."""
TOLD = 4


@dataclass(frozen=True)
class Moments:
    """Means and spreads of features within tasks. task: int (n,), the place of each program's task in the other arrays; mean (T, F);
    squares (T, F), the sums of squared distances from it; count (T,)."""

    task: np.ndarray
    mean: np.ndarray
    squares: np.ndarray
    count: np.ndarray


def moments(flat: np.ndarray, task: np.ndarray) -> Moments:
    """Of features (n, F) and tasks (int64 (n,)); made once a scope, so that a selection is explained at once."""
    codes, known = pd.factorize(task)
    order = np.argsort(codes, kind="stable")
    count = np.bincount(codes, minlength=len(known))
    if not len(known):
        nothing = np.zeros((0, flat.shape[1]))
        return Moments(codes, nothing, nothing, count)
    mean, squares = np.empty((2, len(known), flat.shape[1]))
    for i, rows in enumerate(np.split(order, np.cumsum(count)[:-1])):
        part = flat[rows].astype(np.float64)
        mean[i] = part.mean(axis=0)
        squares[i] = ((part - mean[i]) ** 2).sum(axis=0)
    return Moments(codes, mean, squares, count)


def effects(flat: np.ndarray, of: Moments, chosen: np.ndarray) -> np.ndarray:
    """Effect size of each feature, float (F,): the chosen (bool (n,)) minus the other programs of the same tasks, in standard
    deviations. 0 where a feature does not vary, or nothing is left to compare with."""
    per_task = np.bincount(of.task[chosen], minlength=len(of.count))
    present = per_task > 0
    n, rest = int(per_task.sum()), int(of.count[present].sum() - per_task.sum())
    if not n or not rest:
        return np.zeros(flat.shape[1])
    # Within a task distances from the mean sum to zero: what the chosen have too much, the rest have too little.
    surplus = flat[chosen].sum(axis=0, dtype=np.float64) - per_task @ of.mean
    freedom = max(int(of.count[present].sum() - present.sum()), 1)
    spread = np.sqrt(of.squares[present].sum(axis=0) / freedom)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(spread > 1e-6, (surplus / n + surplus / rest) / np.where(spread > 1e-6, spread, 1.0), 0.0)


def strongest(effect: np.ndarray, most: int = TOLD, least: float = LARGE) -> list[str]:
    """Features of the largest effects, at most one of each that say the same: those with a name for people, `most` at most."""
    order = np.argsort(-np.abs(effect), kind="stable")
    found: dict[float, str] = {}
    for i in order:
        feature = FLAT_FEATURES[i]
        if abs(effect[i]) < least or len(found) >= most:
            break
        if parameter_name(feature):
            found.setdefault(round(abs(float(effect[i])), 6), feature)  # a split's outer part mirrors its inner one exactly
    return list(found.values())


def explain(frame: pd.DataFrame, flat: np.ndarray, of: Moments, chosen: np.ndarray) -> list[str]:
    """Sentences (Markdown) about the chosen rows (bool (n,)) of an `explore_frame`; `flat` (n, F) and `of` belong to the same rows."""
    n = int(chosen.sum())
    if n < FEWEST:
        return ["Too few programs to say what they have in common."]
    said = _where(frame, chosen, n)
    tasks = np.unique(of.task[chosen])
    rest = np.isin(of.task, tasks) & ~chosen
    if not rest.any():
        return [*said, "They are all programs of their tasks: nothing is left to compare them with."]
    effect = effects(flat, of, chosen)
    told = strongest(effect)
    if told:
        lines = []
        for feature in told:
            i = FLAT_FEATURES.index(feature)
            here, there = (float(np.median(parameter_values(flat[rows, i], feature))) for rows in (chosen, rest))
            word = "larger" if effect[i] > 0 else "smaller"
            if feature.startswith("count_"):
                word = "more" if effect[i] > 0 else "fewer"
            typical = f"typically {here:,.4g}, elsewhere {there:,.4g}; " if here != there else ""
            lines.append(f"**{parameter_name(feature)}** {word} ({typical}effect {effect[i]:+.1f})")
        said.append(f"Against the {rest.sum():,} other programs of the same tasks: " + "; ".join(lines) + ".")
    else:
        said.append(
            f"No parameter sets them apart from the {rest.sum():,} other programs of the same tasks by {LARGE} standard deviations."
        )
    label, known = frame["label"].to_numpy(float), frame["latency_s"].notna().to_numpy()
    if (chosen & known).any() and (rest & known).any():
        here, there = (float(np.median(label[rows & known])) for rows in (chosen, rest))
        word = "about as fast as" if abs(here - there) < 0.02 else "faster than" if here > there else "slower than"
        said.append(f"They are {word} the rest: {here:.0%} of the task's best speed in the median, the rest {there:.0%}.")
    return said


def _where(frame: pd.DataFrame, chosen: np.ndarray, n: int) -> list[str]:
    """Which operator or task most of them are of, where that says something."""
    for column, words in (("task_name", "of the task"), ("operator", "of the operator")):
        share = frame[column][chosen].value_counts(normalize=True)
        everywhere = float((frame[column] == share.index[0]).mean())
        if share.iloc[0] >= 0.6 and share.iloc[0] > everywhere + 0.1:
            return [f"{share.iloc[0]:.0%} of the {n:,} are {words} **{share.index[0]}** ({everywhere:.0%} of all shown)."]
    return []
