"""The charts of the Explore page. Each shows the selection, and each selects."""

from __future__ import annotations

import numpy as np
import streamlit as st

from app.chart import chart
from app.explore_state import Shown, write, write_axes, write_shapes
from app.links import decode_axes, decode_shapes, encode_axes, opened_ids, remember_opened
from app.shared import flat_of, frame_of, map_json, parameters_of
from tcl.programs.types import format_id, parse_id
from tcl.views.crossfilter import AXES, LATENCY, LINES, drawn_rows, pair_figure, parallel_figure, telling
from tcl.views.explore import latency_histogram, parameter_name
from tcl.views.palette import CATEGORIES, latency_text

MOST_AXES = 9


def map_chart(shown: Shown, mask: np.ndarray | None, color: str, feature: str) -> None:
    key = shown.key("map")

    def on_selection() -> None:
        write_shapes("sel", st.session_state[key].selected["shapes"])

    chart(
        map_json(shown.path, shown.version, shown.scope, shown.platform, shown.picked, shown.stamp, color, feature),
        key=key,
        height=560,
        selectable=True,
        shapes=decode_shapes(st.query_params.get("sel", "")),
        mask=mask,
        on_selection=on_selection,
        on_click=lambda: open_row(shown, key),
        alt=f"Map of {len(shown.frame):,} programs coloured by {color}" + ("" if mask is None else f", {int(mask.sum()):,} selected"),
    )


def open_row(shown: Shown, key: str) -> None:
    """Open the clicked program."""
    row = st.session_state[key].clicked
    if row is not None:
        remember_opened([format_id(int(shown.frame["program"].iloc[int(row)]))])


def histogram_chart(shown: Shown, mask: np.ndarray | None) -> None:
    """Latencies: all in grey, the selected in blue; a range across selects."""
    key = shown.key("hist")
    frame = shown.frame

    def on_selection() -> None:
        spans = [sorted(s["box"][:2]) for s in st.session_state[key].selected["shapes"][-1:] if "box" in s]
        write("lat", encode_axes({LATENCY: spans}))

    figure = latency_histogram(frame, None if mask is None else frame[mask])
    figure.update_layout(dragmode="select", selectdirection="h", clickmode="event")
    pinned = baseline(shown)
    if pinned is not None and np.isfinite(pinned["latency_s"]):
        figure.add_vline(x=float(np.log10(pinned["latency_s"])), line={"color": CATEGORIES[1], "width": 1.5, "dash": "dot"})
    spans = decode_axes(st.query_params.get("lat", "")).get(LATENCY, [])
    where = f"Latencies on {shown.platform}" + ("" if mask is None else ", selected in blue") + "; drag across to select"
    st.caption(where)
    chart(figure, key=key, height=190, selectable=True, shapes=[{"box": [*s, 0, 1]} for s in spans], on_selection=on_selection, alt=where)


def baseline(shown: Shown) -> dict | None:
    """The pinned program: id, task, latency_s (NaN where it has none here); None where none is pinned, or it is not shown."""
    name = st.query_params.get("base", "")
    if len(name) != 16 or any(c not in "0123456789abcdef" for c in name):
        return None
    rows = np.flatnonzero(shown.frame["program"].to_numpy() == parse_id(name))
    if not len(rows):
        return None
    row = shown.frame.iloc[int(rows[0])]
    return {"id": name, "task": int(row["task"]), "latency_s": float(row["latency_s"]), "task_name": str(row["task_name"])}


def baseline_line(shown: Shown) -> None:
    """Pin the opened program, or say which is pinned."""
    pinned, opened = baseline(shown), opened_ids()
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        if pinned:
            latency = latency_text(pinned["latency_s"]) if np.isfinite(pinned["latency_s"]) else "no latency here"
            st.caption(
                f"Baseline **{pinned['id'][:6]}…**, {latency} ({pinned['task_name']}): the table shows how its task's programs compare"
            )
            st.button("Unpin", type="tertiary", icon=":material/keep_off:", on_click=lambda: write("base", ""), key="unpin")
        if opened and (pinned is None or opened[0] != pinned["id"]):
            st.button(
                f"Pin {opened[0][:6]}… as the baseline",
                type="tertiary",
                icon=":material/keep:",
                key="pin",
                on_click=write,
                args=("base", opened[0]),
            )


def parallel_chart(shown: Shown, mask: np.ndarray | None) -> None:
    """Parameters of the schedules as parallel coordinates."""
    names = parameters_of(shown.path, shown.version, shown.scope)
    if not names:
        st.caption("No parameter differs among these programs: there is nothing to draw axes of.")
        return
    by_feature = {feature: name for name, feature in names.items()}
    asked = decode_axes(st.query_params.get("axes", ""))
    picker = shown.key("axes-picked")
    if picker not in st.session_state:
        first = [f for f in asked if f in by_feature]
        others = telling_of(shown.path, shown.version, shown.scope, shown.platform, shown.picked, shown.stamp)
        st.session_state[picker] = [by_feature[f] for f in dict.fromkeys([*first, *others])][: max(AXES, len(first))]
    n = len(shown.frame)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown("**What the schedules decide**")
        with st.popover("Axes", type="tertiary", icon=":material/tune:"):
            st.multiselect(
                "Parameters", list(names), key=picker, max_selections=MOST_AXES, help="At first: those in which fast programs differ"
            )
        everything = n > LINES and st.toggle(f"All {n:,}", key=shown.key("all-lines"), help="Drawing every line takes some seconds.")
    features = [names[name] for name in st.session_state[picker] if name in names]
    features += [f for f in asked if f in by_feature and f not in features]
    rows = drawn_rows(n, mask, None if everything else LINES)
    marked = "" if mask is None else ", selected in blue"
    least = f"showing {len(rows):,} of {n:,}{'' if mask is None else ', the selected first'}; " if len(rows) < n else ""
    st.caption(f"One line a program{marked}; {least}drag along an axis to select, click the axis to undo. Colour: label, bright is fast.")
    key = shown.key("parallel")
    chart(
        parallel_figure(shown.frame, flat_of(shown.path, shown.version, shown.scope), features, rows),
        key=key,
        height=300,
        mask=mask,
        axes=asked,
        on_axes=lambda: write_axes("axes", st.session_state[key].axes),
        alt="Parallel coordinates of " + ", ".join(parameter_name(f) for f in features) + " and latency",
    )


@st.cache_data(max_entries=24, show_spinner=False)
def telling_of(path: str, version: str, scope: str, platform: str | None, picked: str | None, stamp: str) -> list[str]:
    return telling(flat_of(path, version, scope), frame_of(path, version, scope, platform, picked, stamp))


def pair_chart(shown: Shown, mask: np.ndarray | None) -> None:
    """Slowdown on one platform against that on another."""
    if shown.pair is None or shown.places is None:
        st.markdown("**Across platforms**")
        st.caption("Everything here was measured on one platform. With a second one, this shows what is fast on both.")
        return
    x, y = shown.pair
    key = shown.key("pair")

    def choose() -> None:
        write("pair", "")  # an outline means something else on other axes
        for part in ("px", "py"):
            write(part, st.session_state[shown.key(part)])

    st.markdown("**Across platforms**")
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        for part, now in (("py", y), ("px", x)):
            others = [p for p in shown.platforms if p != (x if part == "py" else y)]
            st.session_state[shown.key(part)] = now
            st.selectbox("up" if part == "py" else "across", others, key=shown.key(part), on_change=choose, width=165)
    both = int(np.isfinite(shown.places).all(axis=1).sum())
    if not both:
        st.caption(f"No program was measured on both {x} and {y}.")
        return
    st.caption(f"{both:,} of {len(shown.frame):,} programs were measured on both; on the dotted line they lose the same on each.")
    chart(
        pair_json(shown.path, shown.version, shown.scope, x, y, shown.stamp),
        key=key,
        height=300,
        selectable=True,
        shapes=decode_shapes(st.query_params.get("pair", "")),
        mask=mask,
        on_selection=lambda: write_shapes("pair", st.session_state[key].selected["shapes"]),
        on_click=lambda: open_row(shown, key),
        alt=f"{both:,} programs on {x} and on {y}",
    )


@st.cache_data(max_entries=12, show_spinner=False)
def pair_json(path: str, version: str, scope: str, x: str, y: str, stamp: str) -> str:
    from app.explore_state import places_of

    return pair_figure(places_of(path, version, scope, x, y), x, y).to_json()
