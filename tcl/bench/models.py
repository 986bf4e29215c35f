"""`tcl bench models`: every cost model on the same data, splits and seeds, in one table.

    tcl bench models --set 'datasets=["built-in", "DIR"]' --set 'seeds=[0,1,2]' --out result.json

Each finished (dataset, platform, model, seed) is a JSON file in `folder`; a run that was stopped goes on with the next one. Test
scores are read by nobody but the table: what the trainer's defaults are was chosen on validation parts of other splits.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from tcl.bench.report import goal, machine
from tcl.errors import UserError
from tcl.files import write_json
from tcl.progress import Progress
from tcl.workspace import BUILT_IN as BUILT_IN_DATASET
from tcl.workspace import workspace

MODELS = ("mamba", "tlp", "mlp", "lstm", "hardware_attention", "xgb", "random")
METRICS = ("top1", "top5", "top1_mean", "top5_mean", "pairwise", "spearman")
GPU_OPERATORS = ("conv2d", "depthwise", "matmul")
BUILT_IN = "built-in"
SPEED_PROGRAMS = 4096
USUAL: dict[str, Any] = {"trainer": {}, "split": "task", "task_fraction": 1.0}


def run(
    datasets: Sequence[str] = (BUILT_IN,),
    models: Sequence[str] = MODELS,
    seeds: Sequence[int] = (0, 1, 2),
    platforms: Sequence[str] | None = None,
    operators: Sequence[str] | None = None,
    fraction: float = 1.0,
    per_assignment: int | None = 256,
    epochs: int = 12,
    joint: bool = False,
    settings: dict[str, dict[str, Any]] | None = None,
    trainer: dict[str, Any] | None = None,
    split: str = "task",
    task_fraction: float = 1.0,
    folder: str | None = None,
    time_limit_s: float = 1e9,
    *,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Train and test every model on every platform and seed; rows, goals, machine.

    datasets: folders, or "built-in". The seed draws the split (by task), the programs and the weights. operators: only these; None
    takes convolution, depthwise and matmul of datasets made of Ansor logs, everything else whole. per_assignment: at most so many
    training programs of each task and platform (None: all); the test part is never thinned out. joint: one model for all
    platforms of a dataset, in place of one each. settings: model -> settings of it, recorded with the rows. trainer: of
    `tcl.training.loop.Trainer`, as {"loss": "lambda_rank", "compare_across": true}; choose by the rows' `valid_` scores. split:
    "task", or "within-task" to see what a model does on tasks it has learned from. task_fraction: the share of the training tasks it
    learns from. folder: where finished parts are kept. time_limit_s: train nothing more after it; a later run goes on, `missing`
    counts what is left.
    """
    progress = progress or Progress()
    unknown = sorted(set(models) - set(MODELS))
    if unknown:
        raise UserError(f"There is no cost model {', '.join(unknown)}.", hint=f"Choose of: {', '.join(MODELS)}.")
    place = Path(folder) if folder else workspace() / "bench" / "models"
    place.mkdir(parents=True, exist_ok=True)
    cells = [
        (name, platform, model, seed)
        for name in datasets
        for platform in (["all"] if joint else _platforms(name, platforms))
        for seed in seeds
        for model in models
    ]
    rows, missing = [], 0
    deadline = time.monotonic() + time_limit_s
    for done, (name, platform, model, seed) in enumerate(cells):
        progress.step(done, len(cells), f"{model} on {platform}")
        progress.check()
        how = {
            "fraction": fraction,
            "per_assignment": per_assignment,
            "epochs": epochs,
            "operators": operators,
            "settings": (settings or {}).get(model, {}),
        }
        # Only what is not the default is part of a finished part's name: older parts stay valid.
        special = {"trainer": trainer or {}, "split": split, "task_fraction": task_fraction}
        how |= {name: value for name, value in special.items() if value != USUAL[name]}
        row = _cell(place, name, platform, model, seed, how, progress, late=time.monotonic() > deadline)
        if row is None:
            missing += 1
        else:
            rows.append(row)
    progress.step(len(cells), len(cells), "models")
    return {"bench": "models", "rows": rows, "missing": missing, "summary": summary(rows), "goals": goals(rows), "machine": machine()}


def _platforms(name: str, chosen: Sequence[str] | None) -> list[str]:
    found = list(_open(name).platforms())
    return [p for p in found if chosen is None or p in chosen]


def _open(name: str) -> Any:
    from tcl.programs.dataset import Dataset

    return Dataset.open(BUILT_IN_DATASET if name == BUILT_IN else name)


def _cell(
    place: Path, name: str, platform: str, model: str, seed: int, how: dict[str, Any], progress: Progress, late: bool = False
) -> dict[str, Any] | None:
    """One row, from its file where it was finished before with the same data and settings; None where it is too late to make it."""
    from tcl.features.vocabulary import VERSION

    dataset = _open(name)
    key = blake2b(
        orjson.dumps([dataset.version, platform, model, seed, how, VERSION], option=orjson.OPT_SORT_KEYS), digest_size=6
    ).hexdigest()
    file = place / f"{Path(name).name}-{platform}-{model}-{seed}-{key}.json"
    if file.exists():
        return orjson.loads(file.read_bytes())
    if late:
        return None
    row = _measure(dataset, name, platform, model, seed, how, progress)
    write_json(file, row)
    return row


def _measure(dataset: Any, name: str, platform: str, model: str, seed: int, how: dict[str, Any], progress: Progress) -> dict[str, Any]:
    from tcl.models.base import make
    from tcl.training.loop import Trainer
    from tcl.training.runs import Choice, train

    how = USUAL | how
    operators = how["operators"]
    tasks = dataset.task_list()
    if operators is None and {t.format for t in tasks} == {"ansor"}:
        operators = [o for o in GPU_OPERATORS if any(t.operator == o for t in tasks)] or None
    one = None if platform == "all" else [platform]
    choice = Choice(how["split"], seed, one, operators, None, how["fraction"], how["per_assignment"], how["task_fraction"])
    made = make(model, **({} if model == "xgb" else {"seed": seed}), **how["settings"])
    trainer = Trainer(seed=seed, epochs=how["epochs"], patience=how["epochs"], progress=progress, **how["trainer"])
    trained, result = train(dataset, made, trainer, choice)
    speed = _programs_per_second(trained, dataset, choice)
    return {
        "dataset": Path(name).name, "platform": platform, "model": model, "seed": seed, **{m: _number(result[m]) for m in METRICS},
        "parameters": result["parameters"], "epochs": result.get("epochs"),
        "seconds_per_epoch_s": _number(result.get("seconds_per_epoch_s")),
        "seconds": result["seconds"], "programs_per_s": speed, "train_programs": result["train_programs"],
        "test_programs": result["programs"],
        "per_assignment": how["per_assignment"], "fraction": how["fraction"], "settings": made.settings,
        **{name: how[name] for name in USUAL},
        "train_tasks": result["train_tasks"], **{f"valid_{m}": _number(result.get(f"valid_{m}")) for m in METRICS},
    }  # fmt: skip


def _number(value: Any) -> float | None:
    return float(value) if value is not None and np.isfinite(value) else None


def _programs_per_second(model: Any, dataset: Any, choice: Any) -> float:
    """Predictions a second, warm, the best of three: from tokens in memory to scores."""
    from tcl.machine import busy
    from tcl.training.data import examples_of
    from tcl.training.runs import rows_of_choice

    rows = rows_of_choice(dataset, choice)
    inputs = examples_of(dataset, rows.sample(min(SPEED_PROGRAMS, len(rows)), random_state=0)).inputs
    times = []
    with busy():
        model.predict(inputs.take(np.arange(min(512, len(inputs)))))
        for _ in range(3):
            began = time.perf_counter()
            model.predict(inputs)
            times.append(time.perf_counter() - began)
    return len(inputs) / min(times)


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean and standard deviation over seeds of each (dataset, platform, model)."""
    out = []
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["dataset"], row["platform"], row["model"]), []).append(row)
    for (dataset, platform, model), group in groups.items():
        line: dict[str, Any] = {"dataset": dataset, "platform": platform, "model": model, "seeds": len(group)}
        for name in (*METRICS, "seconds_per_epoch_s", "programs_per_s", "parameters"):
            values = [r[name] for r in group if r.get(name) is not None]
            line[name] = float(np.mean(values)) if values else None
            if name in METRICS:
                line[f"{name}_sd"] = float(np.std(values, ddof=1)) if len(values) > 1 else None
        out.append(line)
    return out


def goals(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What must hold of the cost models, from the means over seeds."""
    table = {(s["dataset"], s["platform"], s["model"]): s for s in summary(rows)}
    found = []
    pairs = list(dict.fromkeys((d, p) for d, p, _ in table))
    for dataset, platform in pairs:
        mine = table.get((dataset, platform, "mamba"))
        for other in ("tlp", "mlp"):
            theirs = table.get((dataset, platform, other))
            if mine and theirs and mine["top1"] is not None and theirs["top1"] is not None:
                found.append(goal(f"top-1 of mamba minus {other}'s, {platform} of {dataset}", 0.0, mine["top1"] - theirs["top1"]))
    built_in = [table[d, p, m]["top1"] for d, p, m in table if m == "mamba" and d == BUILT_IN and table[d, p, m]["top1"] is not None]
    if built_in:
        found.append(goal("average top-1 of mamba on the built-in data", 0.93, float(np.mean(built_in))))
    ratio = _ratios(table, pairs)
    if ratio:
        found.append(goal("predictions per second, mamba over tlp", 3.0, ratio["programs_per_s"]))
        found.append(goal("time of a training epoch, mamba over tlp", 1.0, ratio["seconds_per_epoch_s"], at_most=True))
    size = _checkpoint_mb()
    found.append(goal("checkpoint of mamba in MB", 0.4, size, at_most=True))
    return found


def _ratios(table: dict[tuple[str, str, str], dict[str, Any]], pairs: list[tuple[str, str]]) -> dict[str, float]:
    out = {}
    for name in ("programs_per_s", "seconds_per_epoch_s"):
        values = [
            table[d, p, "mamba"][name] / table[d, p, "tlp"][name]
            for d, p in pairs
            if (d, p, "mamba") in table and (d, p, "tlp") in table and table[d, p, "tlp"][name] and table[d, p, "mamba"][name]
        ]
        if values:
            out[name] = float(np.median(values))
    return out if len(out) == 2 else {}


def _checkpoint_mb() -> float:
    import tempfile

    from tcl.models.base import make

    with tempfile.TemporaryDirectory() as folder:
        make("mamba").save(folder)
        return sum(f.stat().st_size for f in Path(folder).iterdir()) / 1e6
