"""What several pages need: the datasets to choose from, cached readings of them, errors and commands as they are shown."""

from __future__ import annotations

import os
import shlex
import time
from pathlib import Path

import numpy as np
import pandas as pd
import streamlit as st

from app.links import mind_the_address
from tcl.errors import UserError
from tcl.features.map import Map, load_map, network_scope, task_scope
from tcl.programs.dataset import MANIFEST, Dataset
from tcl.workspace import ASSETS, workspace

DATASETS = "TCL_APP_DATASETS"
"""Folders given to `tcl app`, separated by the system's path separator."""

STATE_ICONS = {
    "queued": ":material/hourglass_empty:",
    "running": ":material/play_circle:",
    "paused": ":material/pause_circle:",
    "stopping": ":material/stop_circle:",
    "done": ":material/check_circle:",
    "stopped": ":material/stop_circle:",
    "cancelled": ":material/cancel:",
    "failed": ":material/error:",
    "lost": ":material/help:",
}
STATE_COLORS = {"running": "blue", "paused": "orange", "stopping": "orange", "done": "green", "failed": "red", "lost": "red"}


def dataset_folders() -> list[Path]:
    """Datasets the app offers: those named at its start, the built-in ones, those in the workspace; each once."""
    named = [Path(p) for p in os.environ.get(DATASETS, "").split(os.pathsep) if p]
    roots = [ASSETS] if os.environ.get("TCL_APP_BUILTIN", "1") != "0" else []
    found = [p.parent for root in (*roots, workspace() / "datasets", workspace() / "tuning") for p in sorted(root.glob(f"*/{MANIFEST}"))]
    unique: dict[Path, None] = {}
    for path in [*named, *found]:
        unique.setdefault(path.resolve())
    return list(unique)


def choose_dataset(key: str = "data") -> Dataset | None:
    """The dataset picker, remembered in the link. None (and a word on what to do) where there is none."""
    folders = dataset_folders()
    names = {_short(p): p for p in folders}
    if not names:
        no_data()
        return None
    mind_the_address(key, names, "dataset")
    name = st.selectbox(
        "Dataset", list(names), key=key, bind="query-params", width=230, help="Built-in, in the workspace, or named: `tcl app DIR`"
    )
    return Dataset.open(names[name])


def picker_name(path: Path) -> str:
    """How `choose_dataset` names a folder: what a link to another page must say."""
    return _short(path)


def dataset_name(path: str | Path) -> str | None:
    """The name under which the picker lists the dataset at `path`; None for one that it does not offer."""
    path = Path(path).resolve()
    return picker_name(path) if path in dataset_folders() else None


def no_data() -> None:
    """What an empty start shows."""
    with st.container(border=True):
        st.subheader("There is no data yet")
        st.write("A dataset is a folder of tensor programs and their measured latencies. Make one in one of three ways:")
        st.code(
            "# logs of Ansor, TenSet, AutoTVM or MetaSchedule\n"
            "tcl data import LOGS… --platform NAME --out workspace/datasets/mine\n"
            "# measure programs on this machine\n"
            "tcl collect matmul:256,256,256 --out workspace/datasets/mine\n"
            "# open one you have\n"
            "tcl app DIR",
            language="bash",
            wrap_lines=True,
        )
        st.caption("Or press Tune above: what a tuning run measures becomes a dataset as well. The lessons need no data of yours.")


def show_error(error: UserError) -> None:
    """A mistake that a person can put right: what happened, and what to do."""
    st.error(error.hint or "Change the input and try again.", title=error.message, icon=":material/error:")


def reproduce(*arguments: str) -> None:
    """The command line that gives what is on the page. Plain: the colours' library takes a page half a second to load."""
    st.code(shlex.join(["tcl", *arguments]), language=None, wrap_lines=True)


def choice(label: str, options: list[str], default: str, key: str) -> str:
    """One of a few, always one: clicking the chosen one again falls back to the default."""
    return st.segmented_control(label, options, default=default, key=key, label_visibility="collapsed") or default


def state_badge(state: str) -> None:
    st.badge(state, icon=STATE_ICONS.get(state, ":material/circle:"), color=STATE_COLORS.get(state, "gray"))


def ago(moment: float) -> str:
    """How long ago, for lists: "3 min ago"."""
    seconds = max(time.time() - moment, 0)
    for size, word in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {word} ago"
    return "just now"


def scope_name(dataset_path: str, version: str) -> dict[str, str]:
    """What a map can show, for people -> the scope: everything, each network, each task."""
    return _scopes(dataset_path, version)


@st.cache_data(max_entries=20, show_spinner=False)
def _scopes(path: str, version: str) -> dict[str, str]:
    tasks = Dataset.open(path).tasks()
    networks = sorted({n for uses in tasks["networks"] for n in uses})
    scopes = {"Everything": "all"} | {f"Network {n}": network_scope(n) for n in networks}
    for task, name in sorted(zip(tasks["task"], tasks["name"], strict=True), key=lambda t: t[1]):
        label = f"Task {name}"
        scopes[label if label not in scopes else f"{label} [{task_scope(task)[-4:]}]"] = task_scope(task)
    return scopes


def stored_map(dataset: Dataset, scope: str) -> Map | None:
    """The map on disk; read again each time (a few milliseconds), because a job may have just made it."""
    return load_map(dataset, scope)


@st.cache_resource(max_entries=8, show_spinner="Reading programs…")
def frame_of(path: str, version: str, scope: str, platform: str | None, selection: str | None, stamp: str) -> pd.DataFrame:
    """`tcl.views.explore.explore_frame`, by content: `version` is the dataset's, `stamp` the map's. One for all who look: not to be
    changed."""
    from tcl.views.explore import explore_frame

    dataset = Dataset.open(path)
    return explore_frame(dataset, scope, platform, load_map(dataset, scope), selection)


@st.cache_resource(max_entries=3, show_spinner="Reading the programs' primitives…")
def flat_of(path: str, version: str, scope: str) -> np.ndarray:
    """The flat features, float32 (n, F), of the scope's programs in the frame's order. One for all who look: not to be changed."""
    from tcl.features.flat import flat_features
    from tcl.features.map import scope_programs

    dataset = Dataset.open(path)
    return flat_features(dataset, scope_programs(dataset, scope)["program"].to_numpy(), tasks=False)


@st.cache_data(max_entries=20, show_spinner=False)
def parameters_of(path: str, version: str, scope: str) -> dict[str, str]:
    from tcl.views.explore import differing

    return differing(flat_of(path, version, scope))


@st.cache_data(max_entries=24, show_spinner="Drawing…")
def map_json(path: str, version: str, scope: str, platform: str | None, selection: str | None, stamp: str, color: str, feature: str) -> str:
    """The map's figure as JSON, ready to send."""
    from tcl.features.flat import FLAT_FEATURES
    from tcl.views.explore import map_figure, parameter_values

    frame = frame_of(path, version, scope, platform, selection, stamp)
    values = None
    if feature:
        values = pd.Series(parameter_values(flat_of(path, version, scope)[:, FLAT_FEATURES.index(feature)], feature))
    return map_figure(frame, color, values).to_json()


@st.cache_data(max_entries=256, show_spinner=False)
def details_of(path: str, version: str, program: int) -> dict:
    from tcl.views.program import program_details

    return program_details(Dataset.open(path), program)


@st.cache_data(max_entries=64, show_spinner="Making the TVMScript (a few seconds)…")
def script_of(path: str, version: str, program: str, platform: str) -> str:
    """TVMScript by way of a `tcl` process of its own: pages never import tvm."""
    import json
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, "-m", "tcl", "program", path, program, "--script", "--platform", platform, "--json"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise UserError(lines[-1].removeprefix("tcl: ") if lines else "The TVMScript could not be made.")
    return json.loads(done.stdout)["script"]


def pack(values: np.ndarray) -> str:
    """Floats of an outline as short text for a link."""
    return ",".join(f"{v:.3f}".rstrip("0").rstrip(".") for v in values)


def _short(path: Path) -> str:
    for root in (ASSETS, workspace() / "datasets"):
        if path.is_relative_to(root.resolve()):
            return path.name
    return f"{path.parent.name}/{path.name}"
