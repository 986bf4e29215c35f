"""Train a model on a dataset and score a saved one: what `tcl train`, `tcl evaluate`, the Train page and the benchmarks share.

A model folder holds model.json and weights (`tcl.models.base`), split.json (who was trained on), history.json (one entry an
epoch), and what the model made of its valid and test programs (`tcl.training.outcome`): all that the Train page draws.
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
from tcl.progress import Progress, Stopped
from tcl.training import outcome
from tcl.training.data import at_most, examples_of, with_operators
from tcl.training.importance import permutation_importance, thinned
from tcl.training.metrics import report

METRICS = ("top1", "top5", "top1_mean", "top5_mean", "pairwise", "spearman")


@dataclass(frozen=True)
class Choice:
    """Which measured programs a model learns from.

    split: "task", "network", "within-task", "platform:NAME" (that platform is the test) or a split's JSON file. platforms, operators:
    only these. programs: int64 ids of a selection, or None; only they count as measured, for training and validation. fraction:
    the share of each assignment's programs that is measured, drawn at random, unless `programs` says which. per_assignment: at
    most so many of each assignment (bounds the time of a training; recorded in the model's card). task_fraction: the share of the
    training tasks that is kept, drawn at random: what a learning curve over tasks is made of.
    """

    split: str = "task"
    seed: int = 0
    platforms: Sequence[str] | None = None
    operators: Sequence[str] | None = None
    programs: np.ndarray | None = None
    fraction: float = 1.0
    per_assignment: int | None = None
    task_fraction: float = 1.0


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
    for share in (choice.fraction, choice.task_fraction):
        if not 0 < share <= 1:
            raise UserError(f"A fraction is more than 0 and at most 1, not {share}.")
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
    if choice.task_fraction < 1:
        tasks = np.random.default_rng(choice.seed).permutation(np.sort(train["task"].unique()))
        train = train[train["task"].isin(tasks[: max(1, round(choice.task_fraction * len(tasks)))])]
    if not len(train):
        raise UserError("No measured program is left to train on.", hint="Choose another split, selection or fraction.")
    return Parts(examples_of(dataset, train), examples_of(dataset, valid) if len(valid) else None, rows[part == "test"], split)


def train(
    dataset: Dataset,
    model: CostModel | str,
    trainer: Any,
    choice: Choice,
    out: str | Path | None = None,
    test: bool = True,
    importance: int = 0,
) -> tuple[CostModel, dict[str, Any]]:
    """Train, score on the test part, and save to `out`.

    trainer: a `tcl.training.loop.Trainer`. importance: repeats of permutation importance on the test part (0: not measured; nor is
    it after a stop). Returns the model and plain JSON with the keys of `tcl train` (see docs of DESIGN's command
    line): model, parameters, the metrics, seconds, by_platform, by_operator, importance, and how training went.
    """
    parts = parts_of(dataset, choice)
    if isinstance(model, str):
        model = make(model, **({} if model == "xgb" else {"seed": trainer.seed}))
    began = time.perf_counter()
    went = model.fit(parts.train, parts.valid, trainer)
    seconds = time.perf_counter() - began
    result: dict[str, Any] = {"model": model.name, "parameters": model.parameters(), "train_programs": len(parts.train),
                              "train_tasks": len(np.unique(parts.train.task)),
                              "valid_programs": len(parts.valid) if parts.valid else 0}  # fmt: skip
    trainer.progress.step(0, 0, "scoring")
    scored = [] if parts.valid is None else [_scored(model, parts.valid, dataset, "valid")]
    valid = {f"valid_{name}": part.result[name] for part in scored for name in METRICS}
    if test and len(parts.test):
        scored.append(_scored(model, examples_of(dataset, parts.test, relabel=False), dataset, "test"))
        result |= scored[-1].result
    else:
        result |= {"programs": 0} | dict.fromkeys(METRICS, float("nan"))
        result |= {"by_platform": {}, "by_operator": {}, "worst": []}
    result |= {"seconds": seconds, **{k: v for k, v in went.items() if k not in ("history", "seconds")}, **valid}
    if out is not None:
        out = Path(out)
        about = {
            "dataset": str(dataset.path), "version": dataset.version, "split": choice.split, "seed": choice.seed,
            "fraction": choice.fraction,
            "platforms": list(choice.platforms or dataset.platforms()), "operators": list(choice.operators or []),
            "per_assignment": choice.per_assignment, "selection": choice.programs is not None, "loss": getattr(trainer, "loss", None),
            "result": {k: v for k, v in result.items() if not isinstance(v, dict | list)},
        }  # fmt: skip
        model.save(out, _plain(about))
        parts.split.save(out / "split.json")
        write_json(out / "history.json", _plain(model.history))
        _write(out, scored, result)
    if importance and not result.get("stopped"):  # after the model is safe on disk: it may take as long as an epoch
        rows = parts.test if test and len(parts.test) else None
        result["importance"] = _importance(model, dataset, rows, importance, trainer.seed, trainer.progress)
        if out is not None:
            _write(out, scored, result)
    return model, result


def evaluate(
    folder: str | Path,
    dataset: Dataset,
    split: str = "test",
    platforms: Sequence[str] | None = None,
    operators: Sequence[str] | None = None,
    out: str | Path | None = None,
    importance: int = 0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Score the model saved in `folder` on a dataset, also one with operators and platforms it never saw.

    split: "test", "valid" or "train" (by the model's own split.json), or "all". A dataset of which the split knows no task is scored
    whole. out: a folder for the result and its tables (`tcl.training.outcome`). importance: repeats of permutation importance. Returns
    the keys of `tcl evaluate`: model, parameters, metrics, seconds, by_platform, by_operator, worst (assignments), importance.
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
    scored = _scored(model, examples_of(dataset, rows, relabel=False), dataset, used)
    result = {"model": card["model"], "parameters": model.parameters(), "split": used, **scored.result}
    result["seconds"] = time.perf_counter() - began
    if importance:
        seed = int((card.get("about") or {}).get("seed") or 0)
        result["importance"] = _importance(model, dataset, rows, importance, seed, progress or Progress())
    if out is not None:
        Path(out).mkdir(parents=True, exist_ok=True)
        _write(Path(out), [scored], result | {"dataset": str(dataset.path), "of": str(folder)})
    return result


@dataclass(frozen=True)
class _Scored:
    """The metrics of one part and the tables behind them."""

    result: dict[str, Any]
    predictions: pd.DataFrame
    assignments: pd.DataFrame


def _scored(model: CostModel, examples: Examples, dataset: Dataset, part: str) -> _Scored:
    truth: Any = examples.truth
    with busy():
        prediction = model.predict(examples.inputs)
    table = outcome.assignments(examples, prediction, {t.id: t.name for t in dataset.task_list()}, part)
    result = {"programs": len(examples), **report(truth, prediction), "worst": outcome.worst(table)}
    return _Scored(result, outcome.predictions(examples, prediction, part), table)


def _importance(
    model: CostModel, dataset: Dataset, rows: pd.DataFrame | None, repeats: int, seed: int, progress: Progress
) -> list[dict[str, Any]] | None:
    """`permutation_importance` as plain JSON, on a bounded part of `rows`; None without rows, or when the user asked to stop."""
    if rows is None:
        return None
    progress.step(0, 0, "which primitives matter")
    try:
        frame = permutation_importance(model, examples_of(dataset, thinned(rows, seed=seed), relabel=False), repeats, seed, progress)
    except Stopped:
        return None
    return _plain(frame.to_dict("records"))


def _write(folder: Path, scored: Sequence[_Scored], result: dict[str, Any]) -> None:
    """The result and its tables; earlier ones of the folder are replaced or, where there are none now, removed."""
    import pyarrow as pa

    for name, tables in (
        (outcome.PREDICTIONS, [s.predictions for s in scored]),
        (outcome.ASSIGNMENTS, [s.assignments for s in scored]),
    ):
        if tables:
            write_parquet(pa.Table.from_pandas(pd.concat(tables), preserve_index=False), folder / name)
        else:
            (folder / name).unlink(missing_ok=True)
    write_json(folder / outcome.SCORES, _plain(result))


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
