"""What the Explore page shows and what is selected on it: read from the address, written to the address."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from app.links import decode_axes, decode_shapes, encode_axes, encode_shapes, remember
from app.shared import flat_of
from tcl.errors import UserError
from tcl.programs.dataset import Dataset
from tcl.programs.selection import load_selection, save_selection
from tcl.programs.types import content_id, format_id, parse_id
from tcl.views.crossfilter import LATENCY, NEIGHBOURS, Conditions, neighbours, pair_places, platform_columns, selected
from tcl.views.explore import parameter_name
from tcl.views.palette import latency_text
from tcl.views.search import search

PARTS = ("sel", "lat", "axes", "pair", "q", "near", "set", "ids")
"""Parameters of the address that say what is selected: outlines on the map, a range of latencies, ranges of parameters, outlines on
two platforms, a search, the neighbours of a program, a saved selection, ids."""
MOST = 100_000
"""Programs that are looked at unless all are asked for: `tcl bench app` has times and memory."""
SHORT = 20
"""Ids that an address holds; more become a saved selection."""


@dataclass(frozen=True)
class Shown:
    """What the page's pickers chose. frame: `tcl.views.explore.explore_frame`; pair: the two platforms compared, or None."""

    path: str
    version: str
    scope: str
    platform: str | None
    picked: str | None
    stamp: str
    frame: pd.DataFrame
    platforms: Sequence[str]

    @cached_property
    def dataset(self) -> Dataset:
        return Dataset.open(self.path)

    @property
    def flat(self) -> np.ndarray:
        return flat_of(self.path, self.version, self.scope)

    @property
    def pair(self) -> tuple[str, str] | None:
        """The platforms of the view of two: named in the address, else this one and the next."""
        if len(self.platforms) < 2:
            return None
        x = st.query_params.get("px", "")
        y = st.query_params.get("py", "")
        x = x if x in self.platforms else str(self.platform)
        others = [p for p in self.platforms if p != x]
        return x, y if y in others else others[0]

    @property
    def places(self) -> np.ndarray | None:
        """`pair_places` of the two platforms."""
        return None if self.pair is None else places_of(self.path, self.version, self.scope, *self.pair)

    def key(self, name: str) -> str:
        """Of a widget that belongs to this part of this dataset."""
        return f"{name}-{format_id(content_id(self.path, self.scope))[:10]}"


@st.cache_data(max_entries=64, show_spinner=False)
def count_of(path: str, version: str, scope: str) -> int:
    """Programs of a scope."""
    from tcl.features.map import scope_programs

    return len(scope_programs(Dataset.open(path), scope))


@st.cache_resource(max_entries=3, show_spinner=False)
def columns_of(path: str, version: str, scope: str) -> dict[str, np.ndarray]:
    from tcl.features.map import scope_programs, scope_tasks

    dataset = Dataset.open(path)
    return platform_columns(dataset, scope_programs(dataset, scope)["program"].to_numpy(), scope_tasks(dataset, scope))


@st.cache_resource(max_entries=6, show_spinner=False)
def places_of(path: str, version: str, scope: str, x: str, y: str) -> np.ndarray:
    return pair_places(columns_of(path, version, scope), x, y)


@st.cache_resource(max_entries=3, show_spinner="Preparing neighbours…")
def space_of(path: str, version: str, scope: str) -> np.ndarray:
    """The space in which programs are near or far, float32 (n, p): that of the samplers."""
    from tcl.features.flat import task_features_of
    from tcl.features.map import scope_programs
    from tcl.sampling.embedding import embed

    dataset = Dataset.open(path)
    programs = scope_programs(dataset, scope)
    flat = flat_of(path, version, scope)
    if programs["task"].nunique() > 1:
        flat = np.concatenate([flat, task_features_of(dataset, programs["program"].to_numpy())], axis=1)
    return embed(flat)


@st.cache_resource(max_entries=2, show_spinner="Reading every primitive as a sentence (10,000 programs take about 2 s)…")
def sentences_of(path: str, version: str, scope: str) -> list[str]:
    from tcl.features.map import scope_programs, scope_tasks
    from tcl.views.schedule import steps_of

    dataset = Dataset.open(path)
    tasks = {t.id: t for t in dataset.task_list()}
    rows = dataset.programs(["program", "task", "schedule"], scope_tasks(dataset, scope))
    rows = rows.set_index("program").loc[scope_programs(dataset, scope)["program"]]
    found = []
    for identity, schedule in zip(rows["task"], rows["schedule"], strict=True):
        task = tasks[identity]
        found.append("\n".join(s.text for s in steps_of(schedule, task.format, task.operator, task.extents)))
    return found


def read(shown: Shown) -> Conditions:
    """What the address asks for. What makes no sense in it (a selection that is gone, a program elsewhere) is said and left out."""
    ask = st.query_params
    latency = decode_axes(ask.get("lat", "")).get(LATENCY)
    sets = []
    for part, wanted in (("near", _near), ("set", _saved), ("ids", _ids)):
        if ask.get(part):
            try:
                sets.append(wanted(shown, ask[part]))
            except UserError as error:
                st.warning(str(error), icon=":material/warning:")
    matches = None
    if ask.get("q"):
        key = (shown.path, shown.version, shown.scope)
        matches = search(shown.frame, ask["q"], lambda: shown.flat, lambda: sentences_of(*key))
    return Conditions(
        outlines=decode_shapes(ask.get("sel", "")),
        latency_s=(10 ** latency[0][0], 10 ** latency[0][1]) if latency else None,
        axes={name: [(r[0], r[1]) for r in ranges] for name, ranges in decode_axes(ask.get("axes", "")).items()},
        pair=decode_shapes(ask.get("pair", "")) if shown.pair else (),
        programs=sets,
        matches=matches,
    )


def mask_of(shown: Shown, asked: Conditions) -> np.ndarray | None:
    """The selected rows, bool (n,), or None."""
    needs_flat = any(name != LATENCY for name in asked.axes)
    return selected(shown.frame, asked, shown.flat if needs_flat else None, shown.places if asked.pair else None)


def words(shown: Shown) -> list[tuple[str, str]]:
    """(parameter of the address, what it asks for in words) of each condition that is set."""
    ask, said = st.query_params, []
    for part in PARTS:
        text = ask.get(part, "")
        if not text:
            continue
        if part == "sel":
            said.append((part, "map"))
        elif part == "lat":
            ranges = decode_axes(text).get(LATENCY)
            said.append(
                (part, f"latency {latency_text(10 ** ranges[0][0])} to {latency_text(10 ** ranges[0][1])}" if ranges else "latency")
            )
        elif part == "axes":
            said.append((part, " and ".join("latency" if n == LATENCY else parameter_name(n) or n for n in decode_axes(text))))
        elif part == "pair":
            said.append((part, " against ".join(reversed(shown.pair or ("", "")))))
        elif part == "q":
            said.append((part, f"search {text}"))
        elif part == "near":
            said.append((part, f"neighbours of {text[:6]}…"))
        elif part == "set":
            said.append((part, f"saved {text}"))
        else:
            said.append((part, "ticked rows"))
    return said


def write(part: str, text: str) -> None:
    """Set one condition; none for an empty text."""
    remember(part, text)
    if part == "q":
        st.session_state["explore-search"] = text


def write_shapes(part: str, shapes: list[dict[str, Any]]) -> None:
    write(part, encode_shapes(shapes))


def write_axes(part: str, axes: dict[str, Any]) -> None:
    write(part, encode_axes(axes))


def clear() -> None:
    for part in PARTS:
        write(part, "")


def only(part: str, text: str) -> None:
    """Replace the whole selection by one condition."""
    clear()
    write(part, text)


def keep(shown: Shown, programs: np.ndarray) -> None:
    """Select exactly these programs (int64 (k,)): a few in the address itself, many as a saved selection."""
    if len(programs) <= SHORT:
        only("ids", ",".join(format_id(int(p)) for p in programs))
        return
    name = "kept-" + format_id(content_id(np.sort(programs).tobytes()))[:6]
    if save(shown, name, programs):
        only("set", name)


def save(shown: Shown, name: str, programs: np.ndarray) -> bool:
    """Store a selection beside the dataset; whether that worked."""
    about = {"by": "Explore page", "conditions": {p: st.query_params[p] for p in PARTS if st.query_params.get(p)}}
    try:
        save_selection(shown.dataset, name, pd.DataFrame({"program": programs, "round": 0}), about)
    except OSError as error:
        st.toast(f"It cannot be saved in {shown.path}: {error.strerror}.", icon=":material/error:")
        return False
    st.toast(f"Saved as {name}.", icon=":material/check:")
    return True


def _near(shown: Shown, text: str) -> np.ndarray:
    name, _, many = text.partition(":")
    program = parse_id(name[:16])
    rows = np.flatnonzero(shown.frame["program"].to_numpy() == program)
    if not len(rows):
        raise UserError(f"The program {name} is not among those shown.", hint="Show everything, or another task.")
    k = int(many[:6]) if many.isdigit() and int(many) else NEIGHBOURS
    found = neighbours(space_of(shown.path, shown.version, shown.scope), int(rows[0]), k)
    return shown.frame["program"].to_numpy()[found]


def _saved(shown: Shown, text: str) -> np.ndarray:
    return load_selection(shown.dataset, text)[0]["program"].to_numpy(np.int64)


def _ids(shown: Shown, text: str) -> np.ndarray:
    return np.array([parse_id(i) for i in text.split(",") if len(i) == 16], dtype=np.int64)
