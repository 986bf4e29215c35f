"""From a dataset to a measurement plan: what `tcl sample`, the Sample page and `tcl collect --plan` share."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from tcl.errors import UserError
from tcl.features.map import load_map
from tcl.models.base import CostModel, Inputs, load, make
from tcl.programs.dataset import Dataset, write_parquet
from tcl.programs.selection import save_selection
from tcl.programs.types import format_id, parse_id
from tcl.progress import Progress
from tcl.sampling.base import SCORES, budget_of
from tcl.sampling.coverage import Ground, coverage, ground
from tcl.sampling.embedding import embed
from tcl.sampling.registry import make_sampler
from tcl.sampling.rounds import Judgement, Rounds

FEATURES, MAP = "features", "map"
"""Embeddings that need no trained model."""
COVERAGE_SEED = 0
"""Of the clusters that coverage counts: one for all selections, so that they compare."""
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
    embedding the space in which programs are near or far: "features" (the flat features), "map" (their places on the stored map)
              or the folder of a trained model (the vectors its score is computed from)
    """

    data: Path
    sampler: str = "rdu"
    budget: str | float = "10%"
    platform: str = ""
    rounds: int = 1
    new: bool = False
    seed: int = 0
    embedding: str = FEATURES


@dataclass(frozen=True)
class Prepared:
    """The pool of a request, whatever sampler, budget and seed: made once, asked many times.

    programs (n rows: program, task), inputs, vectors (float32 (n, d)) and their space (`embed`), latency_s (float (n,): NaN not measured
    on the platform, infinite failed) of the same rows; ground (see `tcl.sampling.coverage`); of: programs before thinning.
    """

    programs: pd.DataFrame
    inputs: Inputs
    vectors: np.ndarray
    space: np.ndarray
    latency_s: np.ndarray
    ground: Ground
    of: int


@dataclass(frozen=True)
class Sampled:
    """A finished selection. `programs`: one row a program of the pool: program, task, representativeness, diversity, uncertainty,
    score, order, round (-1: not picked). `coverage`: see `tcl.sampling.coverage`. `judged`: what models said when the newest round was
    picked (prediction, uncertainty), where any did."""

    programs: pd.DataFrame
    coverage: dict[str, float]
    budget: int
    judged: Judgement | None = None

    def picked(self) -> pd.DataFrame:
        """The rows that were picked, in order."""
        return self.programs[self.programs["order"] >= 0].sort_values("order", ignore_index=True)


def prepare(request: Request, limit: int | None = None) -> Prepared:
    """The pool of a request: all programs of the dataset or, for a replay, those that the platform has measured. With `limit` a
    larger pool is thinned at random to so many programs, each task in proportion. Raises UserError where it makes no sense."""
    dataset = Dataset.open(request.data)
    _check(dataset, request)
    programs = dataset.programs(["program", "task"])
    labels = dataset.labels([request.platform]) if request.platform else pd.DataFrame({"program": [], "latency_s": []})
    latency = pd.Series(labels["latency_s"].fillna(np.inf).to_numpy(float), index=labels["program"].to_numpy(np.int64))
    if request.rounds > 1:
        programs = programs[programs["program"].isin(latency.index)].reset_index(drop=True)
    if not len(programs):
        raise UserError(f"{request.data} has no program to pick from{f' on {request.platform}' if request.platform else ''}.")
    of = len(programs)
    if limit is not None and of > limit:
        # An order of chance within each task, and its first `limit` programs: every task keeps its share.
        chance = np.random.default_rng(0).permutation(of)
        tasks = pd.Series(programs["task"].to_numpy()[chance]).groupby(programs["task"].to_numpy()[chance])
        share = (tasks.cumcount() / tasks.transform("size")).to_numpy()
        programs = programs.iloc[np.sort(chance[np.argsort(share, kind="stable")[:limit]])].reset_index(drop=True)
    inputs = inputs_of(dataset, programs, request.platform)
    vectors = _vectors(dataset, programs, inputs, request.embedding)
    # Coverage is told in the features whatever the sampler looks at: samplers then compare.
    on = ground(inputs.flat, programs["task"].to_numpy(), COVERAGE_SEED)
    space = on.space if vectors is inputs.flat else embed(vectors)
    return Prepared(programs, inputs, vectors, space, programs["program"].map(latency).to_numpy(float), on, of)


def select(
    request: Request, progress: Progress | None = None, *, prepared: Prepared | None = None, cold: Judgement | None = None
) -> Sampled:
    """Pick programs of a dataset. Raises UserError for a platform, sampler, budget or combination that makes no sense.

    prepared: `prepare` of this request, where it is at hand. cold: what models of other platforms say of its programs, where that is
    at hand; otherwise they are trained when the sampler listens to them.
    """
    dataset = Dataset.open(request.data)
    sampler = make_sampler(request.sampler)
    pool = prepared or prepare(request)
    _check(dataset, request)
    measured = ~np.isnan(pool.latency_s)
    of = len(measured) - int(measured.sum()) if request.new else len(measured)
    budget = budget_of(request.budget, of)
    if not budget:
        hint = f"There {'is 1 program' if of == 1 else f'are {of:,} programs'} to pick from: give a larger share."
        raise UserError(f"A budget of {request.budget} is not one program of this pool.", hint=hint)
    ask_others = request.platform and sampler.judges_by and cold is None
    task = pool.programs["task"].to_numpy()
    loop = Rounds(
        pool.inputs, task, budget, sampler=sampler, rounds=request.rounds, seed=request.seed, vectors=pool.vectors,
        space=pool.space, cold=cold, others=models_of_others(dataset, request) if ask_others else (),
        known_s=pool.latency_s if request.new else None, progress=progress,
    )  # fmt: skip
    if request.rounds > 1:
        loop.run(lambda rows: pool.latency_s[rows])
    elif budget:
        loop.ask()
    table = pd.concat([pool.programs, loop.scores()], axis=1)
    rows = np.flatnonzero(table["order"].to_numpy() >= 0)
    known = pool.latency_s if request.platform else None
    return Sampled(table, coverage(pool.inputs.flat, task, rows, known, on=pool.ground), budget, loop.judged)


def sample(
    request: Request, out: Path, *, save_as: str = "", scores: Path | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """`select`, and write the plan to `out`; with `save_as` keep the selection in the dataset too, with `scores` write a Parquet file of
    every program of the pool, picked or not (`read_scores`). Returns plain JSON."""
    if out.suffix not in (".csv", ".parquet"):
        raise UserError(f"{out} is neither a .csv nor a .parquet file.", hint="A plan is written as one of these.")
    sampled = select(request, progress)
    picked = sampled.picked()[["program", "task", "order", "round", *SCORES]]
    write_plan(picked, out)
    about = {**asdict(request), "data": str(request.data)}
    if save_as:
        save_selection(Dataset.open(request.data), save_as, picked, about)
    result = {
        **about, "picked": len(picked), "pool": len(sampled.programs), "assignments": int(sampled.programs["task"].nunique()),
        "coverage": sampled.coverage, "out": str(out), "saved_as": save_as,
    }  # fmt: skip
    if scores is not None:
        _write_scores(sampled, scores, result)
    return result


def _write_scores(sampled: Sampled, path: Path, about: dict[str, Any]) -> None:
    prediction, uncertainty = sampled.judged or (None, None)
    judged = {n: v for n, v in (("model_prediction", prediction), ("model_uncertainty", uncertainty)) if v is not None}
    table = pa.Table.from_pandas(sampled.programs.assign(**judged), preserve_index=False)
    plain = {**about, "coverage": {k: v if np.isfinite(v) else None for k, v in sampled.coverage.items()}}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_parquet(table.replace_schema_metadata({b"tcl": json.dumps(plain).encode()}), path)


def read_scores(path: Path) -> tuple[Sampled, dict[str, Any]]:
    """What `sample` wrote with `scores`, and its JSON result."""
    table = pq.read_table(path)
    about = json.loads((table.schema.metadata or {})[b"tcl"])
    frame = table.to_pandas()
    judged = tuple(frame.pop(n).to_numpy() if n in frame else None for n in ("model_prediction", "model_uncertainty"))
    cover = {k: float("nan") if v is None else v for k, v in about["coverage"].items()}
    return Sampled(frame, cover, about["picked"], judged if any(j is not None for j in judged) else None), about


def write_plan(picked: pd.DataFrame, path: Path) -> None:
    """Write a plan (columns program, task, order, round and scores) whole or not at all; ids as hex digits in CSV."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        if path.suffix == ".csv":
            draft.write_text(plan_text(picked))
        else:
            picked.to_parquet(draft, index=False)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def plan_text(picked: pd.DataFrame) -> str:
    """A plan as CSV."""
    return picked.assign(**{name: [format_id(int(i)) for i in picked[name]] for name in ("program", "task")}).to_csv(index=False)


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


def _check(dataset: Dataset, request: Request) -> None:
    if request.platform and request.platform not in dataset.platforms():
        raise UserError(
            f"{request.data} has no platform {request.platform!r}.", hint=f"It has: {', '.join(dataset.platforms()) or 'none'}."
        )
    if (request.rounds > 1 or request.new) and not request.platform:
        raise UserError("Rounds, and picking only what is new, need to know which platform: name it with --platform.")
    if request.rounds > 1 and request.new:
        raise UserError("Rounds over programs that were never measured need measurements: `tcl collect --sampler` does both.")


def _vectors(dataset: Dataset, programs: pd.DataFrame, inputs: Inputs, embedding: str) -> np.ndarray:
    """float32 (n, d): the space that `Request.embedding` names."""
    if embedding == FEATURES:
        return inputs.flat
    if embedding == MAP:
        stored = load_map(dataset)
        if stored is None:
            raise UserError(f"{dataset.path} has no map to take the places from.", hint=f"Make it: tcl map {dataset.path}")
        places = stored.coordinates.set_index("program")[["x", "y"]].reindex(programs["program"]).to_numpy(np.float32)
        if np.isnan(places).any():
            raise UserError(
                "The map does not hold every program.", hint=f"Make it again: tcl map {dataset.path} --again --limit {len(places)}"
            )
        return places
    return load(embedding).embed(inputs)


def models_of_others(dataset: Dataset, request: Request) -> list[CostModel]:
    """One small model of each platform of the dataset but the request's, for the cold start; the same for every seed."""
    from tcl.training.data import examples_of
    from tcl.training.loop import Trainer

    models = []
    for name in sorted(set(dataset.platforms()) - {request.platform}):
        rows = dataset.labels([name])
        if len(rows) > MOST_TO_LEARN_FROM:
            rows = rows.sample(MOST_TO_LEARN_FROM, random_state=0)
        model = make("xgb", trees=100, depth=6)
        try:
            model.fit(examples_of(dataset, rows), None, Trainer(seed=0))
        except UserError:  # too little was measured there to learn an order
            continue
        models.append(model)
    return models
