"""Lesson 2: a tenth of a task's programs, picked by a person, by RDU or by chance, and what they tell about all the others."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tcl.errors import UserError
from tcl.features.flat import flat_features
from tcl.features.map import load_map, task_scope
from tcl.lessons import DATA
from tcl.lessons.question import Question, how_much, which
from tcl.programs.dataset import Dataset
from tcl.sampling.base import Pool, budget_of
from tcl.sampling.coverage import spread
from tcl.sampling.embedding import embed, squared_distances
from tcl.sampling.random import Random
from tcl.sampling.rdu import Rdu
from tcl.views.sampling import curve_rows
from tcl.workspace import BUILT_IN

TASK, PLATFORM = "conv2d 1x56x56x64 3x3x64x64 -> 1x56x56x64 +add+relu", "xeon-2c-avx512"
SHARE = "10%"
DRAWS = 200
"""Random selections that a selection is compared with."""
COMMAND = (
    "bench", "sampling", "--set", "data=assets/builtin", "--set", f'platforms=["{PLATFORM}"]', "--set",
    'samplers=["random","kmeans","rdu"]', "--set", "fractions=[0.05,0.1,0.2,0.5]", "--set", "seeds=3", "--set", "model=xgb", "--out",
    "assets/lessons/tenth.json",
)  # fmt: skip
"""What measures the learning curves again, after `tcl`."""


@dataclass(frozen=True)
class OneTask:
    """The measured programs of one task (its name and id) on one platform. frame: program, x, y (its map), latency_s; space float32 (n, p):
    where samplers take distances; budget: a tenth of them."""

    name: str
    task: int
    platform: str
    frame: pd.DataFrame
    space: np.ndarray
    budget: int


@dataclass(frozen=True)
class Told:
    """What a selection tells about the programs that it left out, each taken to be as fast as the nearest picked one.

    distance: mean distance of all programs to a picked one, as a share of the task's spread (0: all picked). spearman: of guessed and
    measured latency over the programs not picked (NaN: cannot be told). best_s: the fastest picked; regret: 1 - best of all / that.
    """

    distance: float
    spearman: float
    best_s: float
    regret: float


def load(dataset: Dataset | None = None, task: str = TASK, platform: str = PLATFORM) -> OneTask:
    """The programs of a task (by name) that were measured on `platform` without failing. Where no map of the task is stored, its first
    two principal components are drawn. Raises UserError where there is no such task, or none of its programs succeeded there."""
    dataset = dataset or Dataset.open(BUILT_IN)
    tasks = dataset.tasks()
    found = tasks.loc[tasks["name"] == task, "task"]
    if found.empty:
        raise UserError(f"{dataset.path} has no task {task!r}.", hint="`tcl data stats` lists the tasks.")
    identity = int(found.iloc[0])
    labels = dataset.labels([platform], [identity])
    frame = labels.loc[labels["latency_s"].notna(), ["program", "latency_s"]].reset_index(drop=True)
    if frame.empty:
        raise UserError(f"{dataset.path} has no latency of {task!r} on {platform!r}.", hint=f"Platforms: {', '.join(dataset.platforms())}.")
    space = embed(flat_features(dataset, frame["program"].to_numpy(), tasks=False))
    stored = load_map(dataset, task_scope(identity))
    if stored is not None:
        frame = frame.merge(stored.coordinates, on="program", how="left")
    else:
        frame["x"], frame["y"] = space[:, 0], space[:, 1 % space.shape[1]]
    return OneTask(task, identity, platform, frame, space, max(1, budget_of(SHARE, len(frame))))


def picked_by_rdu(one: OneTask, seed: int = 0, budget: int | None = None) -> np.ndarray:
    """Rows, int (budget,), that RDU picks without any latency known: representative and diverse."""
    return Rdu().query(_pool(one), budget or one.budget, seed=seed)


def picked_by_chance(one: OneTask, seed: int = 0, budget: int | None = None) -> np.ndarray:
    return Random().query(_pool(one), budget or one.budget, seed=seed)


def told(one: OneTask, picked: np.ndarray) -> Told:
    """Judge a selection: rows, int (k,), at least one."""
    picked = np.asarray(picked, dtype=np.int64)
    latency = one.frame["latency_s"].to_numpy(dtype=float)
    gaps = np.sqrt(squared_distances(one.space, one.space[picked]))
    nearest = gaps.argmin(axis=1)
    left = np.setdiff1d(np.arange(len(latency)), picked)
    guess, truth = pd.Series(latency[picked[nearest[left]]]), pd.Series(latency[left])
    # Ranks of equal guesses are shared; Pearson's correlation of ranks is Spearman's rho.
    rho = float(guess.rank().corr(truth.rank())) if guess.nunique() > 1 else float("nan")
    gap = gaps.min(axis=1)
    gap[picked] = 0.0
    best = float(latency[picked].min())
    return Told(float(gap.mean()) / spread(one.space), rho, best, 1.0 - float(latency.min()) / best)


def draws(one: OneTask, budget: int | None = None, n: int = DRAWS) -> pd.DataFrame:
    """`told` of `n` random selections, one row each: distance, spearman, best_s, regret."""
    return pd.DataFrame([vars(told(one, picked_by_chance(one, seed, budget))) for seed in range(n)])


def table(one: OneTask, picks: dict[str, np.ndarray], chance: pd.DataFrame) -> pd.DataFrame:
    """Selections side by side, one row each, and the median of the random ones."""
    rows = {name: vars(told(one, rows)) | {"picked": len(rows)} for name, rows in picks.items() if len(rows)}
    rows["by chance (median)"] = dict(chance.median()) | {"picked": one.budget}
    frame = pd.DataFrame(rows).T[["picked", "distance", "spearman", "best_s", "regret"]]
    return frame.astype({"picked": int})


def curves(path: Path = DATA / "tenth.json") -> tuple[pd.DataFrame, dict[str, Any]]:
    """Learning curves of `tcl bench sampling` (see `tcl.views.sampling.curve_rows`) and the machine they were measured on."""
    result = json.loads(path.read_text())
    return curve_rows(result), result["machine"]


def questions(one: OneTask, chance: pd.DataFrame, curve: pd.DataFrame) -> list[Question]:
    """Three: what RDU's tenth tells, whether chance does as well, and what a model makes of a tenth."""
    mine = told(one, picked_by_rdu(one))
    n, left = one.budget, len(one.frame) - one.budget
    worse = float((chance["distance"] > mine.distance).mean())
    options = (
        "it leaves larger gaps than most random ones",
        "about as good as a random one",
        "it leaves smaller gaps than most random ones",
    )
    rows = curve[curve["sampler"] != "all"].set_index(["sampler", "fraction"])
    full = float(curve.loc[curve["sampler"] == "all", "top1_mean"].iloc[0])
    share = 100 * float(rows.loc[("rdu", 0.1), "top1_mean"]) / full
    whole = float(curve.loc[curve["sampler"] == "all", "pairwise"].iloc[0])
    pairs = 100 * float(rows.loc[("rdu", 0.1), "pairwise"]) / whole
    by = ", ".join(f"{s} {rows.loc[(s, 0.1), 'top1_mean']:.3f} ± {rows.loc[(s, 0.1), 'top1_mean_sd']:.3f}"
                   for s in dict.fromkeys(curve["sampler"]) if (s, 0.1) in rows.index)  # fmt: skip
    return [
        how_much(
            f"Take each of the other {left} programs to be as fast as the nearest of RDU's {n}. How well does that rank them? "
            "(Spearman's rho: 0 is guessing, 1 is perfect)", mine.spearman, (0.2, 0.4, 0.6, 0.8),
            f"{mine.spearman:.2f}, from {n} measurements and no model at all: programs that are near each other on the map share "
            "much of their schedule, and with it some of their latency.", "{:.1f}",
        ),
        Question(
            f"How does RDU's selection cover the map, against {len(chance)} random ones of the same size?", options,
            2 if worse >= 0.75 else 0 if worse <= 0.25 else 1,
            f"The mean distance to a picked program is {mine.distance:.2f} of the task's spread; {100 * worse:.0f} % of the random "
            f"selections leave more (their median: {chance['distance'].median():.2f}). The random ones' rho has a median of "
            f"{chance['spearman'].median():.2f}: covering well is not the same as ranking well.",
        ),
        how_much(
            "A cost model that learns from the tenth that RDU picks: how much of the top-1 score of one that saw everything does it "
            "keep, on tasks that neither has seen?", share, (80, 90, 95, 100),
            f"{share:.1f} %: top-1 at 10 % is {by}; with all data {full:.3f} (± is the spread over seeds). "
            f"Of the pairwise accuracy it keeps {pairs:.1f} %. A tenth of a pool as small as this one's is a handful a task; the "
            "larger the pool, the more of it repeats itself.", "{:g} %",
        ),
        which(
            "Which sampler has the best mean at 10 %?", sorted(s for s, f in rows.index if f == 0.1),
            str(rows.xs(0.1, level="fraction")["top1_mean"].idxmax()),
            f"{by}. Where the ± overlap, the order may be luck: look at the curves.",
        ),
    ]  # fmt: skip


def _pool(one: OneTask) -> Pool:
    return Pool(one.space, np.zeros(len(one.frame), dtype=np.int64), space=one.space)
