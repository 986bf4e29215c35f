"""From a dataset to a measurement plan: what `tcl sample`, the Sample page and `tcl collect --plan` share."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tcl.errors import UserError
from tcl.models.base import CostModel, Inputs, make
from tcl.programs.dataset import Dataset
from tcl.programs.selection import save_selection
from tcl.programs.types import format_id, parse_id
from tcl.progress import Progress
from tcl.sampling.base import SCORES, budget_of
from tcl.sampling.coverage import coverage
from tcl.sampling.registry import make_sampler
from tcl.sampling.rounds import Rounds

MOST_TO_LEARN_FROM = 50_000
"""At most so many measurements of another platform teach the model that guides a cold start: enough, and a few seconds."""


@dataclass(frozen=True)
class Request:
    """What to pick.

    data      the dataset's folder
    sampler   its name, with settings if wanted ("rdu:r=0.5")
    budget    a share ("10%", 0.1) or a number of programs
    platform  where the programs will be measured; "" for a choice by structure alone. Models trained on the dataset's other
              platforms guide the first round of samplers that listen to one.
    rounds    1 picks everything at once. More replays: the latencies that the dataset has of `platform` answer between the
              rounds, and only programs that have one are in the pool.
    new       only what `platform` has not measured is in the pool; what it has teaches the model.
    seed      the same seed gives the same selection
    """

    data: Path
    sampler: str = "rdu"
    budget: str | float = "10%"
    platform: str = ""
    rounds: int = 1
    new: bool = False
    seed: int = 0


@dataclass(frozen=True)
class Sampled:
    """A finished selection. `programs`: one row a program of the pool: program, task, representativeness, diversity, uncertainty,
    score, order, round (-1: not picked). `vectors` float32 (n, d) of the same rows. `coverage`: see `tcl.sampling.coverage`."""

    programs: pd.DataFrame
    vectors: np.ndarray
    coverage: dict[str, float]
    budget: int

    def picked(self) -> pd.DataFrame:
        """The rows that were picked, in order."""
        return self.programs[self.programs["order"] >= 0].sort_values("order", ignore_index=True)


def select(request: Request, progress: Progress | None = None) -> Sampled:
    """Pick programs of a dataset. Raises UserError for a platform, sampler, budget or combination that makes no sense."""
    dataset = Dataset.open(request.data)
    sampler = make_sampler(request.sampler)
    if request.platform and request.platform not in dataset.platforms():
        raise UserError(
            f"{request.data} has no platform {request.platform!r}.", hint=f"It has: {', '.join(dataset.platforms()) or 'none'}."
        )
    if (request.rounds > 1 or request.new) and not request.platform:
        raise UserError("Rounds, and picking only what is new, need to know which platform: name it with --platform.")
    if request.rounds > 1 and request.new:
        raise UserError("Rounds over programs that were never measured need measurements: `tcl collect --sampler` does both.")
    programs = dataset.programs(["program", "task"])
    labels = dataset.labels([request.platform]) if request.platform else pd.DataFrame({"program": [], "latency_s": []})
    latency = pd.Series(labels["latency_s"].to_numpy(float), index=labels["program"].to_numpy(np.int64))
    measured = programs["program"].isin(latency.index).to_numpy()
    if request.rounds > 1:
        programs, measured = programs[measured].reset_index(drop=True), measured[measured]
    if not len(programs):
        raise UserError(f"{request.data} has no program to pick from{f' on {request.platform}' if request.platform else ''}.")
    seconds = programs["program"].map(latency).to_numpy(float)
    open_ = len(programs) - int(measured.sum()) if request.new else len(programs)
    budget = budget_of(request.budget, open_)
    inputs = inputs_of(dataset, programs, request.platform)
    loop = Rounds(
        inputs, programs["task"].to_numpy(), budget, sampler=sampler, rounds=request.rounds, seed=request.seed,
        others=models_of_others(dataset, request) if request.platform and sampler.judges_by else (),
        known_s=np.where(measured, np.where(np.isnan(seconds), np.inf, seconds), np.nan) if request.new else None,
        progress=progress,
    )  # fmt: skip
    if request.rounds > 1:
        loop.run(lambda rows: seconds[rows])
    elif budget:
        loop.ask()
    table = pd.concat([programs, loop.scores()], axis=1)
    rows = np.flatnonzero(table["order"].to_numpy() >= 0)
    known = seconds if request.platform else None
    return Sampled(table, inputs.flat, coverage(inputs.flat, programs["task"].to_numpy(), rows, known, request.seed), budget)


def sample(request: Request, out: Path, *, save_as: str = "", progress: Progress | None = None) -> dict[str, Any]:
    """`select`, and write the plan to `out`; with `save_as` keep the selection in the dataset too. Returns plain JSON."""
    if out.suffix not in (".csv", ".parquet"):
        raise UserError(f"{out} is neither a .csv nor a .parquet file.", hint="A plan is written as one of these.")
    sampled = select(request, progress)
    picked = sampled.picked()[["program", "task", "order", "round", *SCORES]]
    write_plan(picked, out)
    about = {**asdict(request), "data": str(request.data)}
    if save_as:
        save_selection(Dataset.open(request.data), save_as, picked, about)
    return {
        **about, "picked": len(picked), "pool": len(sampled.programs), "assignments": int(sampled.programs["task"].nunique()),
        "coverage": sampled.coverage, "out": str(out), "saved_as": save_as,
    }  # fmt: skip


def write_plan(picked: pd.DataFrame, path: Path) -> None:
    """Write a plan (columns program, task, order, round and scores) whole or not at all; ids as hex digits in CSV."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        if path.suffix == ".csv":
            text = picked.assign(**{name: [format_id(int(i)) for i in picked[name]] for name in ("program", "task")})
            text.to_csv(draft, index=False)
        else:
            picked.to_parquet(draft, index=False)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def read_plan(path: Path) -> np.ndarray:
    """int64 (k,): the programs of a plan, in the order to measure them. Needs the column program; order if there is one."""
    try:
        frame = pd.read_csv(path, dtype={"program": str}) if path.suffix == ".csv" else pd.read_parquet(path)
    except FileNotFoundError:
        raise UserError(f"There is no plan {path}.", hint="Make one with `tcl sample`.") from None
    except (ValueError, OSError) as error:
        raise UserError(f"{path} cannot be read as a plan: {error}.") from None
    if "program" not in frame:
        raise UserError(f"{path} is no measurement plan: it has no column program.", hint="Make one with `tcl sample`.")
    if "order" in frame:
        frame = frame.sort_values("order")
    ids = frame["program"]
    programs = np.array([parse_id(i) for i in ids], np.int64) if path.suffix == ".csv" else ids.to_numpy(np.int64)
    if len(np.unique(programs)) < len(programs):
        raise UserError(f"{path} names a program twice.")
    return programs


def inputs_of(dataset: Dataset, programs: pd.DataFrame, platform: str = "") -> Inputs:
    """What models and samplers read of a dataset's programs (columns program, task), measured or not."""
    from tcl.features.context import PLATFORM_FEATURES, platform_features, task_features
    from tcl.features.tokens import rows_of, tokens_of

    tasks = dataset.task_list()
    task_of = rows_of(np.array([t.id for t in tasks], np.int64), programs["task"].to_numpy()).astype(np.int32)
    known = dataset.platforms()
    hardware = platform_features([known[platform]]) if platform else np.zeros((1, len(PLATFORM_FEATURES)), np.float32)
    tokens = tokens_of(dataset, programs["program"].to_numpy(np.int64))
    return Inputs(tokens, task_features(tasks), task_of, hardware, np.zeros(len(programs), np.int32))


def models_of_others(dataset: Dataset, request: Request) -> list[CostModel]:
    """One small model of each platform of the dataset but the request's, for the cold start."""
    from tcl.training.data import examples_of
    from tcl.training.loop import Trainer

    models = []
    for name in sorted(set(dataset.platforms()) - {request.platform}):
        rows = dataset.labels([name])
        if len(rows) > MOST_TO_LEARN_FROM:
            rows = rows.sample(MOST_TO_LEARN_FROM, random_state=request.seed)
        model = make("xgb", trees=100, depth=6)
        try:
            model.fit(examples_of(dataset, rows), None, Trainer(seed=request.seed))
        except UserError:  # too little was measured there to learn an order
            continue
        models.append(model)
    return models
