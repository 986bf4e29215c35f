"""Explore: programs on a map; what is selected in one view is selected in all; open one or compare two."""

from __future__ import annotations

import time

import streamlit as st

from app.explore_charts import baseline_line, histogram_chart, map_chart, pair_chart, parallel_chart
from app.explore_state import MOST, Shown, clear, count_of, mask_of, read
from app.explore_tools import clear_button, conditions_line, explanation, export_popover, search_box, selections_popover, table
from app.links import mind_the_address, opened_ids
from app.map_job import JOB, make_map, missing_map, wait_for_map
from app.program_view import show_programs
from app.shared import choose_dataset, frame_of, parameters_of, reproduce, scope_name, stored_map
from tcl.features.map import thinned
from tcl.programs.selection import list_selections
from tcl.views.explore import COLORS

# The map goes to the browser this long before the rest, which would else be drawn with it: an answer then takes 0.47 s, not 0.55 s.
AHEAD_S = 0.05
PARAMETER = "a primitive's parameter…"
HOW_TO_READ = (
    "Points that lie together have similar schedules. Distances between groups, the size of a group and the empty space between them "
    "mean nothing: UMAP keeps neighbours, not distances. Trustworthiness says how far neighbours here are neighbours in truth (1 is best)."
)


def forget_selection() -> None:
    clear()
    st.query_params.pop("open", None)


with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
    dataset = choose_dataset()
    if dataset is None:
        st.stop()
    path, version = str(dataset.path), dataset.version
    scopes = scope_name(path, version)
    mind_the_address("scope", scopes, "scope")
    scope_label = st.selectbox("Show", list(scopes), key="scope", bind="query-params", width=250, on_change=forget_selection)
    platforms = list(dataset.platforms())
    mind_the_address("platform", platforms, "platform")
    platform = st.selectbox("Platform", platforms, key="platform", bind="query-params", width=180) if platforms else None
    colors = [*COLORS.values(), PARAMETER]
    mind_the_address("color", colors, "colouring")
    color_label = st.selectbox("Color by", colors, key="color", bind="query-params", width=170)
    feature = ""
    if color_label == PARAMETER:
        known = parameters_of(path, version, scopes[scope_label])
        parameter_label = st.selectbox("Parameter", list(known) or ["none differs"], key="parameter", bind="query-params", width=200)
        feature = known.get(parameter_label, "")
    selections = list_selections(dataset)
    picked = None
    if selections:
        mind_the_address("sampled", ["measured here", *selections], "selection")
        choice = st.selectbox("Sampled", ["measured here", *selections], key="sampled", bind="query-params", width=150)
        picked = None if choice == "measured here" else choice
    scope = whole = scopes[scope_label]
    of = count_of(path, version, whole)
    # Cost of all: `tcl bench app --set programs=400000`.
    if of > MOST and not st.toggle(
        f"All {of:,}", key="all", bind="query-params",
        help=f"Reads and draws every program: about {of / 25_000:.0f} s at first, and {of * 4e-6:.1f} GB of memory.",
    ):  # fmt: skip
        scope = thinned(whole, MOST)
color = parameter_label if feature else next((k for k, v in COLORS.items() if v == color_label), "latency")

stored = stored_map(dataset, scope)
stamp = f"{stored.about['dataset_version']}-{stored.about['seed']}-{stored.about['n']}" if stored else ""
frame = frame_of(path, version, scope, platform, picked, stamp)
shown = Shown(path, version, scope, platform, picked, stamp, frame, platforms)


def facts() -> None:
    sampled, n = int(frame["sampled"].sum()), len(frame)
    shown = f":orange[showing **{n:,}** of **{of:,}** programs, drawn at random]" if n < of else f"**{n:,}** program{'s' * (n != 1)}"
    parts = [shown, f"**{sampled:,}** sampled", f"{n - sampled:,} not (grey)"]
    if stored is not None:
        trust = stored.about["trustworthiness"]
        placed = int(frame["x"].notna().sum())
        if placed < n:
            parts.append(f":orange[map shows {placed:,} of {n:,}]")
        if trust is not None:
            parts.append(f"trustworthiness **{trust:.3f}** (k = {stored.about['trust_neighbours']}, on {stored.about['trust_points']:,})")
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(" · ".join(parts))
        if stored is not None:
            with st.popover("How to read this map", type="tertiary", icon=":material/info:"):
                st.write(HOW_TO_READ)
            if stored.about["dataset_version"] != version:
                st.button(
                    "Update the map",
                    icon=":material/refresh:",
                    on_click=make_map,
                    args=(dataset, whole, scope_label),
                    help="The dataset has grown since it was made.",
                )
    if stored is not None and JOB in st.session_state:
        wait_for_map()


@st.fragment
def explorer() -> None:
    mask = mask_of(shown, read(shown))
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        search_box()
        selections_popover(shown, mask)
        export_popover(shown, mask)
        clear_button(mask)
        conditions_line(shown, mask)
    left, right = st.columns([3, 2], gap="medium")
    with left:
        map_chart(shown, mask, color, feature)
        time.sleep(AHEAD_S)
    with right:
        if frame["latency_s"].notna().any():
            histogram_chart(shown, mask)
        else:
            st.info(f"Nothing was measured successfully on {platform} in this scope.", icon=":material/info:")
        table(shown, mask)
        baseline_line(shown)
    with st.container():  # there with and without an explanation: what follows keeps its place, and the browser its charts
        explanation(shown, mask)
    left, right = st.columns([3, 2], gap="medium")
    with left:
        parallel_chart(shown, mask)
    with right:
        pair_chart(shown, mask)
    show_programs(path, version, opened_ids())
    command = ["map", path, "--scope", whole, *(["--platform", platform] if platform else []), "--color", color, "--html", "map.html"]
    with st.expander("Reproduce", icon=":material/terminal:", key="reproduce", on_change="rerun") as below:
        if below.open:  # a code block's library takes a page nearly half a second to load
            reproduce(*command)


if frame.empty:
    st.info("This dataset holds no programs yet. `tcl collect` or `tcl data import` adds some.", icon=":material/info:")
elif stored is None:
    missing_map(dataset, whole, scope_label, of)
    show_programs(path, version, opened_ids())
else:
    facts()
    explorer()
