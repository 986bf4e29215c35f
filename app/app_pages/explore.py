"""Explore: programs on a map; select some, read the table, open one or compare two."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from app.chart import chart
from app.links import decode_shapes, encode_shapes, opened_ids, remember_opened
from app.map_job import JOB, make_map, missing_map, wait_for_map
from app.program_view import show_programs
from app.shared import choose_dataset, frame_of, map_json, parameters_of, reproduce, scope_name, stored_map
from tcl.programs.selection import list_selections
from tcl.programs.types import content_id, format_id
from tcl.views.explore import COLORS, latency_histogram, within
from tcl.views.palette import unit_of

TABLE_ROWS = 5_000
PARAMETER = "a primitive's parameter…"
HOW_TO_READ = (
    "Points that lie together have similar schedules. Distances between groups, the size of a group and the empty space between them "
    "mean nothing: UMAP keeps neighbours, not distances. Trustworthiness says how far neighbours here are neighbours in truth (1 is best)."
)


def forget_selection() -> None:
    for name in ("sel", "open"):
        st.query_params.pop(name, None)


with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
    dataset = choose_dataset()
    if dataset is None:
        st.stop()
    path, version = str(dataset.path), dataset.version
    scopes = scope_name(path, version)
    scope_label = st.selectbox("Show", list(scopes), key="scope", bind="query-params", width=300, on_change=forget_selection)
    platforms = list(dataset.platforms())
    platform = st.selectbox("Platform", platforms, key="platform", bind="query-params", width=200) if platforms else None
    color_label = st.selectbox("Color by", [*COLORS.values(), PARAMETER], key="color", bind="query-params", width=190)
    feature = ""
    if color_label == PARAMETER:
        known = parameters_of(path, version, scopes[scope_label])
        parameter_label = st.selectbox("Parameter", list(known) or ["none differs"], key="parameter", bind="query-params", width=220)
        feature = known.get(parameter_label, "")
    selections = list_selections(dataset)
    picked = None
    if selections:
        choice = st.selectbox("Sampled", ["measured here", *selections], key="sampled", bind="query-params", width=170)
        picked = None if choice == "measured here" else choice
scope = scopes[scope_label]
color = parameter_label if feature else next((k for k, v in COLORS.items() if v == color_label), "latency")

stored = stored_map(dataset, scope)
stamp = f"{stored.about['dataset_version']}-{stored.about['seed']}-{stored.about['n']}" if stored else ""
frame = frame_of(path, version, scope, platform, picked, stamp)


def facts() -> None:
    sampled, n = int(frame["sampled"].sum()), len(frame)
    parts = [f"**{n:,}** programs", f"**{sampled:,}** sampled", f"{n - sampled:,} not (grey)"]
    if stored is not None:
        trust = stored.about["trustworthiness"]
        if stored.about["n"] < n or stored.about["of"] < n:
            parts.append(f":orange[map shows {int(frame['x'].notna().sum()):,} of {n:,}]")
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
                    args=(dataset, scope, scope_label),
                    help="The dataset has grown since it was made.",
                )
    if stored is not None and JOB in st.session_state:
        wait_for_map()


def on_selection() -> None:
    shapes = (st.session_state[map_key].selection or {}).get("shapes", [])
    if shapes:
        st.query_params["sel"] = encode_shapes(shapes)
    else:
        st.query_params.pop("sel", None)


def on_click() -> None:
    row = st.session_state[map_key].clicked
    if row is not None:
        remember_opened([format_id(int(frame["program"].iloc[int(row)]))])


def clear() -> None:
    st.query_params.pop("sel", None)
    st.session_state[f"{map_key}-cleared"] = st.session_state.get(f"{map_key}-cleared", 0) + 1


def table(chosen: pd.DataFrame) -> None:
    """The selected programs, fastest first; ticking one opens it, two compares them."""
    factor, unit = unit_of(chosen["latency_s"].to_numpy())
    ordered = chosen.sort_values(["latency_s", "program"], na_position="last")
    shown = ordered.head(TABLE_ROWS)
    latency = f"latency, {unit}"
    rows = pd.DataFrame(
        {
            latency: shown["latency_s"] * factor,
            "label": shown["label"],
            "task": shown["task_name"].astype(str),
            "failure": shown["error"].astype(str),
            "measured on": shown["platforms"].astype(str),
            "program": [format_id(int(p)) for p in shown["program"]],
        }
    )
    if len(frame["platforms"].cat.categories) <= 2:
        rows = rows.drop(columns="measured on")
    if not (rows["failure"] != "").any():
        rows = rows.drop(columns="failure")
    table_key = "table-" + format_id(content_id(st.query_params.get("sel", "")))[:10]  # other programs: nothing ticked
    event = st.dataframe(
        rows,
        hide_index=True,
        height=262,
        on_select="rerun",
        selection_mode="multi-row",
        key=table_key,
        column_config={
            latency: st.column_config.NumberColumn(format="%.4g", width="small"),
            "label": st.column_config.ProgressColumn(
                min_value=0, max_value=1, format="%.3f", width="small", help="Best of the task here / this"
            ),
            "task": st.column_config.TextColumn(width="medium"),
        },
        alt="The selected programs, fastest first",
    )
    if len(ordered) > len(shown):
        st.caption(f"Showing the fastest {len(shown):,} of {len(ordered):,}.")
    ticked = [rows["program"].iloc[i] for i in event.selection.rows[:2]]
    if ticked:
        remember_opened(ticked)


@st.fragment
def explorer() -> None:
    left, right = st.columns([3, 2], gap="medium")
    shapes = decode_shapes(st.query_params.get("sel", ""))
    with left:
        figure = map_json(path, version, scope, platform, picked, stamp, color, feature)
        chart(
            figure,
            key=map_key,
            height=560,
            selectable=True,
            shapes=shapes,
            cleared=st.session_state.get(f"{map_key}-cleared", 0),
            on_selection=on_selection,
            on_click=on_click,
            alt=f"Map of {len(frame):,} programs coloured by {color}",
        )
    with right:
        chosen = frame[within(shapes, frame["x"].to_numpy(), frame["y"].to_numpy())] if shapes else None
        if chosen is None:
            st.markdown("**Drag a box** on the map (or take the lasso) to list programs; **click** a point to open it. Scroll to zoom.")
        else:
            with st.container(horizontal=True, vertical_alignment="center"):
                failed = int((chosen["error"] != "").sum())
                text = f"**{len(chosen):,}** selected · {int(chosen['sampled'].sum()):,} sampled"
                st.markdown(text + (f" · {failed:,} failed" if failed else ""))
                st.button("Clear", type="tertiary", icon=":material/close:", on_click=clear)
        if frame["latency_s"].notna().any():
            where = f"Latencies on {platform}" + ("" if chosen is None else ", selected in blue")
            st.caption(where)
            chart(latency_histogram(frame, chosen), key=f"hist-{map_key}", height=190, alt=where)
        else:
            st.info(f"Nothing was measured successfully on {platform} in this scope.", icon=":material/info:")
        if chosen is not None and len(chosen):
            table(chosen)
        elif chosen is not None:
            st.caption("No program lies inside this outline.")
        else:
            best = frame[frame["latency_s"].notna()].nsmallest(8, "latency_s")
            if len(best) and frame["task"].nunique() == 1:
                st.caption("The fastest of this task")
                table(best)
    show_programs(path, version, opened_ids())
    command = ["map", path, "--scope", scope, *(["--platform", platform] if platform else []), "--color", color, "--html", "map.html"]
    with st.expander("Reproduce", icon=":material/terminal:"):
        reproduce(*command)


map_key = f"map-{format_id(content_id(path, scope))[:10]}"
if frame.empty:
    st.info("This dataset holds no programs yet. `tcl collect` or `tcl data import` adds some.", icon=":material/info:")
elif stored is None:
    missing_map(dataset, scope, scope_label, len(frame))
    show_programs(path, version, opened_ids())
else:
    facts()
    explorer()
