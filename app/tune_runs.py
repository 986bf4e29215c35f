"""Tuning runs as the Tune page sees them: jobs, replays and recordings that ship with the project, drawn on one clock."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from app.links import linked_runs, remember
from tcl.jobs.store import ALIVE, Job, all_jobs
from tcl.jobs.tuning_run import events_of, is_tuning
from tcl.views import tuning, tuning_runs
from tcl.workspace import ASSETS

SHOWN = 50
"""Runs of the workspace that are listed at most, the newest."""


@dataclass(frozen=True)
class Run:
    """One tuning run. name: for people, unique in a list."""

    name: str
    job: Job

    @property
    def id(self) -> str:
        return self.job.id

    @cached_property
    def state(self) -> str:
        return self.job.state

    @property
    def alive(self) -> bool:
        return self.state in ALIVE

    @cached_property
    def told(self) -> Told:
        """Its events so far, on the clock of the run: of a replay that of what it replays."""
        path = self.job.path / "events.jsonl"
        try:
            found = path.stat()
        except OSError:
            return Told([])
        return _read(path, found.st_mtime_ns, found.st_size)

    @cached_property
    def result(self) -> dict[str, Any]:
        return self.job.result or {}

    @property
    def shipped(self) -> bool:
        """Whether it came with the project."""
        return self.job.path.is_relative_to(ASSETS)

    @property
    def argv(self) -> list[str]:
        return list(self.job.about.get("argv", []))


@dataclass(frozen=True, eq=False)
class Told:
    """What the events of a run say, read once."""

    events: list[dict[str, Any]]

    @cached_property
    def frame(self) -> pd.DataFrame:
        return tuning.measured(self.events)

    @cached_property
    def tasks(self) -> pd.DataFrame:
        return tuning.tasks(self.events)

    @cached_property
    def curve(self) -> pd.DataFrame:
        return tuning_runs.curve(self.events)

    def last(self, kind: str) -> dict[str, Any]:
        """The latest event of a kind; empty where there is none."""
        return dict(tuning.last(self.events, kind))


@lru_cache(maxsize=32)
def _read(path: Path, stamp: int, size: int) -> Told:
    return Told(events_of(Job(path.parent)))


def all_runs() -> list[Run]:
    """Newest first, then those that ship with the project."""
    found = [j for j in all_jobs() if is_tuning(j)][:SHOWN]
    runs = [Run(f"{j.about.get('title') or j.id} · {j.id[-4:]}", j) for j in found]
    shipped = [Job(p.parent) for p in sorted((ASSETS / "recorded").glob("*/events.jsonl"))]
    return runs + [Run(f"{j.about.get('title') or j.id} · recorded", j) for j in shipped if j.kind == "tune"]


def choose(runs: list[Run]) -> list[Run]:
    """The runs to draw, remembered in the link."""
    by_id = {run.id: run for run in runs}
    if "tune-runs" not in st.session_state:
        address = st.query_params
        asked = [*address.get("runs", "").split(","), address.get("job", "")]
        st.session_state["tune-runs"] = linked_runs(asked, by_id, "tuning run") or list(by_id)[:1]
        st.session_state["tune-baseline"], st.session_state["tune-look"] = address.get("baseline", ""), address.get("job", "")
    st.session_state["tune-runs"] = [i for i in st.session_state["tune-runs"] if i in by_id]
    chosen = st.multiselect("Runs", list(by_id), key="tune-runs", format_func=lambda i: by_id[i].name, placeholder="choose runs to draw")
    remember("runs", ",".join(chosen))
    return [by_id[i] for i in chosen]


def roles(chosen: list[Run]) -> tuple[Run | None, Run | None]:
    """The pinned run and the one that is looked into, remembered in the link; where there is one run only, it is looked into."""
    by_id = {run.id: run for run in chosen}
    pinned, looked = "", next(iter(by_id), "")
    if len(by_id) > 1:
        for key, options in (("tune-baseline", ["", *by_id]), ("tune-look", list(by_id))):
            if st.session_state.get(key) not in options:
                st.session_state[key] = options[0]
        pinned = st.selectbox("Baseline", ["", *by_id], key="tune-baseline", width=240, help="The run that the others are compared with",
                              format_func=lambda i: by_id[i].name if i else "none pinned")  # fmt: skip
        looked = st.selectbox("Look into", list(by_id), key="tune-look", width=240, format_func=lambda i: by_id[i].name,
                              help="The run whose figures, tasks and schedules are shown below")  # fmt: skip
    remember("baseline", pinned)
    remember("job", looked)
    return by_id.get(pinned), by_id.get(looked)


def show_first(identity: str) -> None:
    """Put a run that was just started before those that are drawn, and look into it. A recording of another machine makes room for it."""
    shipped = {run.id for run in all_runs() if run.shipped}
    drawn = [i for i in st.session_state.get("tune-runs", []) if i not in shipped]
    st.session_state["tune-runs"] = [identity, *drawn][:6]
    st.session_state["tune-look"] = identity
