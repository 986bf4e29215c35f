"""Train a model on a dataset and score a saved one: what `tcl train`, `tcl evaluate`, the Train page and the benchmarks share.

A model folder holds model.json and weights (`tcl.models.base`), split.json (who was trained on), history.json (one entry an
epoch) and predictions.parquet (valid and test programs with what the model thinks of them).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tcl.errors import UserError
from tcl.files import write_json
from tcl.machine import busy
from tcl.models.base import CostModel, Examples, load, make, read_card
from tcl.programs.dataset import Dataset, write_parquet
from tcl.programs.splits import KINDS, Split, split_by_network, split_by_platform, split_by_task, split_within_task
from tcl.training.data import at_most, examples_of, with_operators
from tcl.training.metrics import report

WORST = 20
"""Assignments listed as the worst ones of an evaluation."""


@dataclass(frozen=True)
class Choice:
    """Which measured programs a model learns from.

    split: "task", "network", "within-task", "platform:NAME" (that platform is the test) or a split's JSON file. platforms, operators:
    only these. programs: int64 ids of a selection, or None; only they count as measured, for training and validation. fraction:
    the share of each assignment's programs that is measured, drawn at random, unless `programs` says which. per_assignment: at
    most so many of each assignment (bounds the time of a training; recorded in the model's card).
    """

    split: str = "task"
    seed: int = 0
    platforms: Sequence[str] | None = None
    operators: Sequence[str] | None = None
    programs: np.ndarray | None = None
    fraction: float = 1.0
    per_assignment: int | None = None


@dataclass
class Parts:
    """train, valid and test of one dataset. valid is None where the split leaves none."""

    train: Examples
    valid: Examples | None
    test: pd.DataFrame
    split: Split


def make_split(dataset: Dataset, kind: str, seed: int) -> Split:
    """The split that `Choice.split` names. Raises UserError for one that is not known."""
    if kind == "task":
        return split_by_task(dataset.tasks(), seed)
    if kind == "network":
        return split_by_network(dataset.tasks(), seed=seed)
    if kind == "within-task":
        return split_within_task(seed)
    if kind.startswith("platform:"):
        return split_by_platform(list(dataset.platforms()), [kind.partition(":")[2]], seed=seed)
    if Path(kind).is_file():
        return Split.load(kind)
    raise UserError(f"There is no split {kind!r}.", hint=f"Choose one of: {', '.join(KINDS[:3])}, platform:NAME, or a split's JSON file.")


def rows_of_choice(dataset: Dataset, choice: Choice) -> pd.DataFrame:
    """`dataset.labels()` of the chosen platforms and operators. Raises UserError where nothing was measured."""
    if choice.platforms:
        missing = sorted(set(choice.platforms) - set(dataset.platforms()))
        if missing:
            raise UserError(f"{dataset.path} has no platform {', '.join(missing)}.", hint=f"It has: {', '.join(dataset.platforms())}.")
    rows = dataset.labels(choice.platforms)
    if choice.operators:
        rows = with_operators(dataset, rows, choice.operators)
    if not len(rows):
        raise UserError(f"{dataset.path} holds no measured program of this choice.", hint="Measure some with `tcl collect`.")
    return rows.reset_index(drop=True)


def parts_of(dataset: Dataset, choice: Choice) -> Parts:
    """Split the measured programs; see `Choice`."""
    if not 0 < choice.fraction <= 1:
        raise UserError(f"A fraction is more than 0 and at most 1, not {choice.fraction}.")
    rows = rows_of_choice(dataset, choice)
    split = make_split(dataset, choice.split, choice.seed)
    part = split.parts(rows)
    measured = rows[part != "test"]
    if choice.programs is not None:
        measured = measured[measured["program"].isin(choice.programs)]
    elif choice.fraction < 1:
        measured = _share(measured, choice.fraction, choice.seed)
    if choice.per_assignment:
        measured = at_most(measured, choice.per_assignment, choice.seed)
    side = part[measured.index.to_numpy()]
    valid = measured[side == "valid"]
    train = measured[side == "train"]
    if not len(train):
        raise UserError("No measured program is left to train on.", hint="Choose another split, selection or fraction.")
    return Parts(examples_of(dataset, train), examples_of(dataset, valid) if len(valid) else None, rows[part == "test"], split)


def train(
    dataset: Dataset, model: CostModel | str, trainer: Any, choice: Choice, out: str | Path | None = None, test: bool = True
) -> tuple[CostModel, dict[str, Any]]:
    """Train, score on the test part, and save to `out`.

    trainer: a `tcl.training.loop.Trainer`. Returns the model and plain JSON with the keys of `tcl train` (see docs of DESIGN's command
    line): model, parameters, the metrics, seconds, by_platform, by_operator, and how training went.
    """
    parts = parts_of(dataset, choice)
    if isinstance(model, str):
        model = make(model, **({} if model == "xgb" else {"seed": trainer.seed}))
    began = time.perf_counter()
    went = model.fit(parts.train, parts.valid, trainer)
    seconds = time.perf_counter() - began
    result: dict[str, Any] = {"model": model.name, "parameters": model.parameters(), "train_programs": len(parts.train),
                              "valid_programs": len(parts.valid) if parts.valid else 0}  # fmt: skip
    tables = []
    if parts.valid is not None:
        tables.append(_predictions(model, parts.valid, "valid"))
    if test and len(parts.test):
        examples = examples_of(dataset, parts.test, relabel=False)
        scores, table = _scored(model, examples, dataset, "test")
        result |= scores
        tables.append(table)
    else:
        result |= {"programs": 0} | dict.fromkeys(("top1", "top5", "top1_mean", "top5_mean", "pairwise", "spearman"), float("nan"))
        result |= {"by_platform": {}, "by_operator": {}, "worst": []}
    result |= {"seconds": seconds, **{k: v for k, v in went.items() if k not in ("history", "seconds")}}
    if out is not None:
        out = Path(out)
        about = {
            "dataset": str(dataset.path), "version": dataset.version, "split": choice.split, "seed": choice.seed,
            "fraction": choice.fraction,
            "platforms": list(choice.platforms or dataset.platforms()), "operators": list(choice.operators or []),
            "per_assignment": choice.per_assignment, "selection": choice.programs is not None,
            "result": {k: v for k, v in result.items() if not isinstance(v, dict | list)},
        }  # fmt: skip
        model.save(out, _plain(about))
        parts.split.save(out / "split.json")
        write_json(out / "history.json", _plain(model.history))
        if tables:
            import pyarrow as pa

            write_parquet(pa.Table.from_pandas(pd.concat(tables), preserve_index=False), out / "predictions.parquet")
    return model, result


def evaluate(
    folder: str | Path,
    dataset: Dataset,
    split: str = "test",
    platforms: Sequence[str] | None = None,
    operators: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Score the model saved in `folder` on a dataset, also one with operators and platforms it never saw.

    split: "test", "valid" or "train" (by the model's own split.json), or "all". A dataset of which the split knows no task is scored
    whole. Returns the keys of `tcl evaluate`: model, parameters, metrics, seconds, by_platform, by_operator, worst (assignments).
    """
    if split not in ("train", "valid", "test", "all"):
        raise UserError(f"A model is evaluated on train, valid, test or all, not {split!r}.")
    card, model = read_card(folder), load(folder)
    rows = rows_of_choice(dataset, Choice(platforms=platforms, operators=operators))
    used = "all"
    path = Path(folder) / "split.json"
    if split != "all" and path.exists():
        part = Split.load(path).parts(rows)
        if (part != "").any():
            rows, used = rows[part == split], split
            if not len(rows):
                raise UserError(
                    f"{dataset.path} has no measured program in the {split} part of this model's split.", hint="Use --split all."
                )
    began = time.perf_counter()
    scores, _ = _scored(model, examples_of(dataset, rows, relabel=False), dataset, used)
    return {"model": card["model"], "parameters": model.parameters(), "split": used, **scores, "seconds": time.perf_counter() - began}


def _scored(model: CostModel, examples: Examples, dataset: Dataset, part: str) -> tuple[dict[str, Any], pd.DataFrame]:
    table = _predictions(model, examples, part)
    prediction = table["prediction"].to_numpy()
    truth: Any = examples.truth
    result = {"programs": len(examples), **report(truth, prediction)}
    chosen, accuracy = truth.chosen_s(prediction, (1,))[:, 0], truth.pairwise(prediction)
    names = {t.id: t.name for t in dataset.task_list()}
    with np.errstate(invalid="ignore"):
        top1 = np.where(truth.usable, truth.best_s / chosen, np.nan)
    order = [i for i in np.argsort(np.where(np.isnan(top1), 2, top1)) if truth.usable[i]][:WORST]
    result["worst"] = [
        {"task": names[int(truth.task[i])], "operator": str(truth.operator[i]), "platform": str(truth.platform[i]), "top1": float(top1[i]),
         "pairwise": float(accuracy[i]), "programs": int(truth.size[i])}
        for i in order
    ]  # fmt: skip
    return result, table


def _predictions(model: CostModel, examples: Examples, part: str) -> pd.DataFrame:
    truth: Any = examples.truth
    with busy():
        prediction = model.predict(examples.inputs)
    return pd.DataFrame(
        {
            "program": examples.program, "task": examples.task, "platform": truth.platform[truth.member].astype(str), "part": part,
            "label": truth.label.astype(np.float32), "prediction": prediction,
        }
    )  # fmt: skip


def _share(rows: pd.DataFrame, fraction: float, seed: int) -> pd.DataFrame:
    """A random share of each assignment's rows, at least one."""
    shuffled = rows.sample(frac=1.0, random_state=seed)
    grouped = shuffled.groupby(["platform", "task"], observed=True, sort=False)
    keep = grouped.cumcount() < np.maximum(1, np.ceil(grouped["task"].transform("size") * fraction))
    return shuffled[keep].sort_index()


def _plain(value: Any) -> Any:
    """JSON without NaN, which it does not have, and without numpy's numbers."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not np.isfinite(value) else value
