"""One program opened, or two side by side."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from app.chart import chart
from app.shared import details_of, reproduce, script_of, show_error
from tcl.errors import UserError
from tcl.programs.types import parse_id
from tcl.views.explore import platform_figure
from tcl.views.program import latency_rows
from tcl.views.schedule import difference, steps_of

MARKS = {
    "differs": "background-color: rgba(230,159,0,.22)",
    "left only": "background-color: rgba(0,114,178,.20)",
    "right only": "background-color: rgba(213,94,0,.20)",
}


def show_programs(path: str, version: str, ids: list[str]) -> None:
    """Nothing, one program's detail, or two compared; ids are 16 hex digits."""
    opened = []
    for identity in ids:
        try:
            opened.append(details_of(path, version, parse_id(identity)))
        except UserError as error:
            show_error(error)
    if not opened:
        return
    st.divider()
    if len(opened) == 1:
        _one(path, version, opened[0])
    else:
        _two(path, version, opened)


def _one(path: str, version: str, details: dict) -> None:
    st.subheader(f"Program {details['id']}", anchor=False)
    st.caption(f"{details['task_name']} · {details['operator']} · {_gflop(details)} · tick a second row of the table to compare")
    left, right = st.columns([3, 2], gap="medium")
    with left:
        st.markdown(f"**What its schedule does**, {len(details['steps'])} primitives in order")
        steps = pd.DataFrame({"step": details["steps"]}, index=range(1, len(details["steps"]) + 1))
        st.dataframe(steps, hide_index=False, height=min(38 + 32 * len(steps), 360), alt="Schedule primitives")
    with right:
        _latencies([details])
        _script(path, version, details)
    with st.expander("Reproduce", icon=":material/terminal:"):
        reproduce("program", path, details["id"])


def _two(path: str, version: str, pair: list[dict]) -> None:
    a, b = pair
    st.subheader(f"{a['id']} beside {b['id']}", anchor=False)
    if a["task"] != b["task"]:
        st.caption(f"Different tasks: {a['task_name']} and {b['task_name']}. Their latencies cannot be compared, their schedules can.")
    else:
        st.caption(a["task_name"])
    left, right = st.columns([3, 2], gap="medium")
    with left:
        table = difference(*(steps_of(d["schedule"], d["format"], d["operator"], d["extents"]) for d in pair))
        differing = int((table["change"] != "").sum())
        only = st.toggle(f"Only what differs ({differing} of {len(table)} steps)", key="only_differences", value=True)
        shown = table[table["change"] != ""] if only else table
        shown = shown.rename(columns={"left": a["id"], "right": b["id"]})
        styled = shown.style.apply(lambda row: [MARKS.get(row["change"], "")] * len(row), axis=1)
        st.dataframe(
            styled,
            hide_index=True,
            height=min(46 + 32 * len(shown), 420),
            column_config={"change": st.column_config.TextColumn(width=80)},
            alt="Two schedules",
        )
    with right:
        _latencies(pair)


def _latencies(several: list[dict]) -> None:
    rows = latency_rows(several)
    if rows.empty and not any(d["measurements"] for d in several):
        st.info("Not measured on any platform yet.", icon=":material/info:")
        return
    if not rows.empty:
        st.markdown("**Latency on every platform** (bars: median; lines: range of the repeats)")
        bars = rows["platform"].nunique() * rows["name"].nunique()
        key = "latencies-" + "-".join(d["id"] for d in several)
        chart(platform_figure(rows), key=key, height=96 + 28 * bars, alt="Latency by platform")
    for details in several:
        for row in details["measurements"]:
            speed = f", {row['gflops']:,.1f} GFLOP/s" if row["gflops"] else ""
            of = f"{details['id'][:4]}… " if len(several) > 1 else ""
            st.caption(f"{of}**{row['platform']}** {row['text']}{speed}" + (f" ({row['repeats']} repeats)" if row["repeats"] > 1 else ""))


def _script(path: str, version: str, details: dict) -> None:
    if details["format"] != "metaschedule":
        st.caption(f"TVMScript: none, because an {details['format']} log holds the schedule but not the computation.")
        return
    if st.toggle("TVMScript of the scheduled program", key=f"script-{details['id']}"):
        platform = details["measurements"][0]["platform"] if details["measurements"] else ""
        try:
            st.code(script_of(path, version, details["id"], platform), language="python", height=360)
        except UserError as error:
            show_error(error)


def _gflop(details: dict) -> str:
    return f"{details['flops'] / 1e9:,.3g} GFLOP" if details["flops"] else "FLOPs unknown"
