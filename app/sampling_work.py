"""What the Sample page shows: picked at once where that takes no model, else by a background job whose answer is kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from tcl.features.flat import flat_features
from tcl.programs.dataset import Dataset
from tcl.programs.selection import load_selection
from tcl.programs.types import content_id, format_id
from tcl.sampling.base import SCORES
from tcl.sampling.coverage import coverage
from tcl.sampling.embedding import embed
from tcl.sampling.plan import FEATURES, MAP, Prepared, Request, Sampled, prepare, read_scores, select
from tcl.sampling.registry import make_sampler
from tcl.sampling.rounds import Judgement
from tcl.views.sampling import kept
from tcl.workspace import workspace

PLAYED = 20_000
"""Programs that are picked from while a person turns knobs; a larger pool is thinned, and the page says so."""
OTHER_LIBRARY = ("typiclust", "probcover")
"""Samplers whose library imports torch, which no page does: a job picks."""
SAVED = "saved: "
"""In front of a stored selection's name, where samplers are chosen."""


@dataclass(frozen=True)
class Shown:
    """One side of the page. sampled: what to draw (None: nothing yet); missing: what a job would add, for people, and the request that
    it would answer; of: programs of the whole pool."""

    name: str
    sampled: Sampled | None
    request: Request
    missing: str = ""
    job: Request | None = None
    of: int = 0

    @property
    def by(self) -> str:
        """The sampler that picked."""
        return self.request.sampler

    @property
    def thinned(self) -> bool:
        return self.sampled is not None and len(self.sampled.programs) < self.of


def show(name: str, request: Request, version: str) -> Shown:
    """What can be shown for a request now. `name` is a sampler's, or a stored selection's after `SAVED`."""
    if name.startswith(SAVED):
        return _saved(name, request, version)
    whole = len_of(str(request.data), version)
    file = answer_file(request, version)
    if file.exists():
        sampled, _ = _answer(str(file), file.stat().st_mtime_ns)
        return Shown(name, sampled, request, of=len(sampled.programs))
    base = name.partition(":")[0]
    sampler = make_sampler(request.sampler)
    if base in OTHER_LIBRARY:
        return Shown(name, None, request, f"{base} is picked in the background: its library is a large one.", request, whole)
    if request.embedding not in (FEATURES, MAP):
        plain = replace(request, embedding=FEATURES)
        return replace(
            show(name, plain, version), request=request, job=request, missing="Shown in the features' space: the model's takes a job."
        )
    if request.platform and sampler.judges_by:
        if request.rounds > 1 or request.new:
            what = "Rounds train models in between" if request.rounds > 1 else "What is measured teaches a model first"
            first = replace(request, platform="", rounds=1, new=False)
            return Shown(
                name,
                _now(first, version),
                request,
                f"{what}: a job of a minute or so. Until then: by structure alone.",
                request,
                whole,
            )
        judged = judgement_file(request, version)
        if not judged.exists():
            first = replace(request, platform="")
            words = "Models of the other platforms have not been asked yet. Until then: by structure alone."
            return Shown(name, _now(first, version), request, words, judging(request), whole)
        shown = _thin(name, request, _now(request, version, str(judged)), whole)
        if (_answer(str(judged), judged.stat().st_mtime_ns)[0].judged or (None, None))[1] is None and "uncertainty" in sampler.judges_by:
            words = "Fewer than two other platforms were measured: there is nobody to disagree, so U falls away."
            return replace(shown, missing=f"{words} {shown.missing}".strip())
        return shown
    shown = _thin(name, request, _now(request, version), whole)
    if sampler.judges_by and not request.platform:
        words = "No platform, so no model to listen to: this is its cold start."
        return replace(shown, missing=f"{words} {shown.missing}".strip())
    return shown


def _thin(name: str, request: Request, sampled: Sampled, whole: int) -> Shown:
    if request.rounds > 1 or len(sampled.programs) == whole:
        return Shown(name, sampled, request, of=len(sampled.programs))
    words = f"Picked from {len(sampled.programs):,} of {whole:,} programs, drawn at random, so that you can play."
    return Shown(name, sampled, request, words, request, whole)


def _saved(name: str, request: Request, version: str) -> Shown:
    pool = pool_of(replace(request, rounds=1, embedding=FEATURES), version)
    selection, about = load_selection(Dataset.open(request.data), name.removeprefix(SAVED))
    programs = pool.programs
    if len(programs) < pool.of:  # a stored selection is of the whole pool
        programs = Dataset.open(request.data).programs(["program", "task"])
    table = kept(programs, selection)
    cover: dict[str, float] = {}
    if len(programs) == len(pool.programs):
        rows = np.flatnonzero(table["round"].to_numpy() >= 0)
        known = pool.latency_s if request.platform else None
        cover = coverage(pool.inputs.flat, table["task"].to_numpy(), rows, known, on=pool.ground)
    sampled = Sampled(table, cover, int((table["round"] >= 0).sum()))
    return Shown(name, sampled, replace(request, sampler=str(about.get("sampler", "rdu"))), of=len(programs))


def judging(request: Request) -> Request:
    """The job that asks the models of other platforms: its answer serves every sampler, budget and seed."""
    return Request(request.data, "rdu", "10%", request.platform)


def judgement_file(request: Request, version: str) -> Path:
    return answer_file(judging(request), version)


def answer_file(request: Request, version: str) -> Path:
    """Where a job keeps the answer to a request: named by what it depends on."""
    about = {**asdict(request), "data": str(Path(request.data).resolve()), "version": version}
    return workspace() / "sample" / f"{format_id(content_id(json.dumps(about, sort_keys=True)))}.parquet"


def command(request: Request) -> list[str]:
    """The `tcl` command line of a request, without where its answer goes."""
    words = ["sample", str(request.data), "--sampler", request.sampler, "--budget", str(request.budget)]
    words += ["--platform", request.platform] if request.platform else []
    words += ["--rounds", str(request.rounds)] if request.rounds > 1 else []
    words += ["--new"] if request.new else []
    words += ["--embedding", request.embedding] if request.embedding != FEATURES else []
    return words + (["--seed", str(request.seed)] if request.seed else [])


def submit_sample(request: Request, version: str) -> None:
    from tcl.jobs.store import submit

    file = answer_file(request, version)
    file.parent.mkdir(exist_ok=True)
    title = f"Sample {request.budget} of {Path(request.data).name}, {request.sampler}"
    argv = [*command(request), "--out", str(file.with_suffix(".csv")), "--scores", str(file), "--json"]
    st.session_state["sample_job"] = submit("sample", argv, title)


def _now(request: Request, version: str, judged: str = "") -> Sampled:
    return _picked(json.dumps({**asdict(request), "data": str(request.data)}), version, judged, lambda: request)


@st.cache_data(max_entries=64, show_spinner=False)
def _picked(key: str, version: str, judged: str, _request: Callable[[], Request]) -> Sampled:
    request = _request()
    pool = pool_of(request, version)
    return select(request, prepared=pool, cold=_judgement(judged, pool.programs) if judged else None)


def _judgement(file: str, programs: pd.DataFrame) -> Judgement:
    sampled, _ = read_scores(Path(file))
    if sampled.judged is None:
        return None, None
    rows = pd.Index(sampled.programs["program"]).get_indexer(programs["program"])
    prediction, uncertainty = (None if v is None else v[rows] for v in sampled.judged)
    return prediction, uncertainty


def pool_of(request: Request, version: str) -> Prepared:
    """The pool that is played with. A platform adds its latencies; what is costly to make is shared by all."""
    path, embedding = str(request.data), request.embedding
    if request.rounds > 1:
        return _pool(path, version, request.platform, True, embedding)
    pool = _pool(path, version, "", False, embedding)
    if not request.platform:
        return pool
    seconds = latencies(path, version, request.platform).fillna(np.inf)
    return replace(pool, latency_s=pool.programs["program"].map(seconds).to_numpy(float))


@st.cache_resource(max_entries=4, show_spinner=False)
def _pool(path: str, version: str, platform: str, measured_only: bool, embedding: str) -> Prepared:
    return prepare(Request(Path(path), platform=platform, rounds=2 if measured_only else 1, embedding=embedding), PLAYED)


@st.cache_data(max_entries=8, show_spinner=False)
def _answer(file: str, stamp: int) -> tuple[Sampled, dict[str, Any]]:
    return read_scores(Path(file))


@st.cache_data(max_entries=8, show_spinner=False)
def len_of(path: str, version: str) -> int:
    return int(Dataset.open(path).stats()["programs"])


@st.cache_data(max_entries=64, show_spinner=False)
def task_space(path: str, version: str, programs: list[int]) -> np.ndarray:
    """float32 (n, p): one task's programs in the space of their own features, for distances that are told to people."""
    return embed(flat_features(Dataset.open(path), np.array(programs, np.int64), tasks=False))


@st.cache_data(max_entries=8, show_spinner=False)
def latencies(path: str, version: str, platform: str) -> pd.Series:
    """program -> seconds on the platform (NaN: failed)."""
    labels = Dataset.open(path).labels([platform])
    return pd.Series(labels["latency_s"].to_numpy(float), index=labels["program"].to_numpy(np.int64))


def plan_of(sampled: Sampled) -> pd.DataFrame:
    """The picked rows as a plan."""
    return sampled.picked()[["program", "task", "order", "round", *SCORES]]
