"""Around the charts of the Explore page: the search, what is selected in words, the table, saved selections, export."""

from __future__ import annotations

import io
import re

import numpy as np
import pandas as pd
import streamlit as st

from app.explore_charts import baseline
from app.explore_state import Shown, clear, keep, only, save, words, write
from app.links import remember_opened
from app.shared import flat_of, reproduce
from tcl.programs.selection import list_selections
from tcl.programs.types import content_id, format_id, parse_id
from tcl.views.crossfilter import NEIGHBOURS
from tcl.views.explain import Moments, explain, moments
from tcl.views.palette import unit_of

TABLE_ROWS = 1_000
SEARCH = (
    'The start of an id (4 digits or more), a part of a task or operator, a kind of primitive (vectorize); "in quotes": a step\'s words'
)


def search_box() -> None:
    st.session_state.setdefault("explore-search", st.query_params.get("q", ""))
    st.text_input(
        "Search", key="explore-search", width=230, placeholder="id, task, operator, primitive", help=SEARCH,
        on_change=lambda: write("q", st.session_state["explore-search"].strip()),
    )  # fmt: skip


def clear_button(mask: np.ndarray | None) -> None:
    """Always there: the browser fetches what draws a button when the first appears, and a selection would wait 0.3 s for it."""
    st.button("Clear all", icon=":material/deselect:", key="clear-all", disabled=mask is None, on_click=clear)


def conditions_line(shown: Shown, mask: np.ndarray | None) -> None:
    """How many are selected, and by what; each condition can be taken back."""
    if mask is None:
        st.markdown(
            "**Drag a box** on the map (or take the lasso; shift adds), across the latencies or along an axis below; "
            "**click** a point to open it. Scroll to zoom."
        )
        return
    frame = shown.frame
    failed = int((mask & (frame["error"] != "").to_numpy()).sum())
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        text = f"**{int(mask.sum()):,}** selected · {int((mask & frame['sampled'].to_numpy()).sum()):,} sampled"
        st.markdown(text + (f" · {failed:,} failed" if failed else "") + " · by")
        for part, text in words(shown):
            st.button(text, icon=":material/close:", key=f"drop-{part}", help="Take this condition back", on_click=write, args=(part, ""))


@st.cache_resource(max_entries=3, show_spinner=False)
def moments_of(path: str, version: str, scope: str, _task: np.ndarray) -> Moments:
    return moments(flat_of(path, version, scope), _task)


def explanation(shown: Shown, mask: np.ndarray | None) -> None:
    """What sets the selected apart, in sentences."""
    if mask is None or not mask.any():
        return
    of = moments_of(shown.path, shown.version, shown.scope, shown.frame["task"].to_numpy())
    with st.container(border=True):
        st.markdown(
            "**What sets the selected apart**",
            help="Effect: difference of the means in standard deviations within a task (Cohen's d); 0.8 and more is large",
        )
        for sentence in explain(shown.frame, shown.flat, of, mask):
            st.markdown(sentence)


def table(shown: Shown, mask: np.ndarray | None) -> None:
    """The selected programs (all, where none is), fastest first; ticking one opens it, two compares them."""
    frame = shown.frame
    chosen = frame if mask is None else frame[mask]
    if chosen.empty:
        st.caption("No program meets all of these conditions.")
        return
    one_task = frame["task"].nunique() == 1
    # Across tasks the fastest program is that of the smallest task: there the best of its task comes first.
    keys, up = (["latency_s", "program"], True) if one_task or mask is not None else (["label", "program"], False)
    everything = st.session_state.get(shown.key("all-rows"), False)
    ordered = chosen.sort_values(keys, ascending=up, na_position="last")
    rows_shown = ordered if everything else ordered.head(TABLE_ROWS)
    rows = _rows(shown, rows_shown)
    latency = str(rows.columns[0])
    selection = "" if mask is None else format_id(content_id(np.packbits(mask).tobytes()))[:10]
    event = st.dataframe(
        rows,
        hide_index=True,
        height=262,
        on_select="rerun",
        selection_mode="multi-row",
        placeholder="",
        key=f"table-{selection}",  # other programs: nothing ticked
        column_config={
            latency: st.column_config.NumberColumn(format="%.4g", width="small"),
            "label": st.column_config.ProgressColumn(
                min_value=0, max_value=1, format="%.3f", width="small", help="Best of the task here / this"
            ),
            "× baseline": st.column_config.NumberColumn(format="%.2f", width="small", help="This latency / the pinned program's"),
            "task": st.column_config.TextColumn(width="medium"),
        },
        alt="The selected programs, fastest first",
    )
    ticked = [rows["program"].iloc[i] for i in event.selection.rows if i < len(rows)]
    if ticked:
        remember_opened(ticked[:2])
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        if len(ordered) > TABLE_ROWS:
            what = "best" if keys[0] == "label" else "fastest"
            st.caption(f"Showing {'all' if everything else f'the {what} {len(rows):,} of'} {len(ordered):,}.")
            st.toggle("All", key=shown.key("all-rows"))
        if ticked:
            ids = np.array([parse_id(i) for i in ticked], dtype=np.int64)
            st.button(f"Select the {len(ticked)} ticked", icon=":material/filter_alt:", key="keep", on_click=keep, args=(shown, ids))
            st.button(
                f"Its {NEIGHBOURS} neighbours", icon=":material/hub:", key="near", on_click=only, args=("near", ticked[0]),
                help="The programs with the most similar schedules, by all their parameters (not by their place on the map)",
            )  # fmt: skip


def _rows(shown: Shown, part: pd.DataFrame) -> pd.DataFrame:
    factor, unit = unit_of(part["latency_s"].to_numpy())
    pinned = baseline(shown)
    compared = part["latency_s"].where(part["task"] == pinned["task"]) / pinned["latency_s"] if pinned else np.nan
    rows = pd.DataFrame(
        {
            f"latency, {unit}": part["latency_s"] * factor,
            "× baseline": compared,
            "label": part["label"],
            "task": part["task_name"].astype(str),
            "failure": part["error"].astype(str),
            "measured on": part["platforms"].astype(str),
            "program": [format_id(int(p)) for p in part["program"]],
        }
    )
    silent = {"× baseline": pinned is None, "failure": not (rows["failure"] != "").any()}
    silent["measured on"] = len(shown.frame["platforms"].cat.categories) <= 2
    return rows.drop(columns=[name for name, drop in silent.items() if drop])


def selections_popover(shown: Shown, mask: np.ndarray | None) -> None:
    """Save the selection under a name; take up a saved one. Filled when it is opened: the page stands sooner."""
    with st.popover("Selections", icon=":material/bookmark:", key="selections", on_change="rerun") as below:
        if not below.open:
            return
        known = list_selections(shown.dataset)
        if mask is not None and mask.any():
            name = st.text_input("Name", key="selection-name", placeholder="tiles-of-16")
            fine = re.fullmatch(r"[A-Za-z0-9][\w.+-]{0,63}", name or "") is not None
            if name and not fine:
                st.caption("Letters, digits, '.', '_', '+' and '-'.")
            if name in known:
                st.caption("There is one of this name: it will be replaced.")
            ids = shown.frame["program"].to_numpy()[mask]
            st.button(f"Save these {len(ids):,}", disabled=not fine, key="selection-save", on_click=save, args=(shown, name, ids))
        else:
            st.caption("Select something to save it here.")
        for name in known:
            st.button(name, icon=":material/bookmark:", type="tertiary", key=f"take-{name}", on_click=only, args=("set", name))


def export_popover(shown: Shown, mask: np.ndarray | None) -> None:
    """The selected programs (or all) as files."""
    with st.popover("Export", icon=":material/download:", key="export", on_change="rerun") as below:
        if not below.open:
            return
        frame = shown.frame
        chosen = frame if mask is None else frame[mask]
        st.caption(f"{len(chosen):,} programs: {'all that are shown' if mask is None else 'the selected'}")
        new = st.checkbox(f"Plan: only what {shown.platform} has not measured", key="plan-new", disabled=shown.platform is None)
        planned = chosen[chosen["measurements"] == 0] if new else chosen
        files = (
            ("CSV", "programs.csv", "text/csv", lambda: as_csv(chosen, shown.platform), chosen),
            ("Parquet", "programs.parquet", "application/vnd.apache.parquet", lambda: as_parquet(chosen, shown.platform), chosen),
            (f"Measurement plan ({len(planned):,})", "plan.csv", "text/csv", lambda: as_plan(planned), planned),
        )
        for label, file, mime, data, rows in files:
            st.download_button(label, data, file, mime, key=f"export-{file}", on_click="ignore", disabled=not len(rows), width="stretch")
        st.caption("Measure the plan, here or elsewhere:")
        reproduce("collect", "--from", shown.path, "--plan", "plan.csv", "--out", "workspace/datasets/mine")


def as_csv(chosen: pd.DataFrame, platform: str | None) -> str:
    table = chosen.assign(platform=platform)
    return table.assign(**{name: [format_id(int(i)) for i in table[name]] for name in ("program", "task")}).to_csv(index=False)


def as_parquet(chosen: pd.DataFrame, platform: str | None) -> bytes:
    buffer = io.BytesIO()
    chosen.assign(platform=platform).to_parquet(buffer, index=False)
    return buffer.getvalue()


def as_plan(chosen: pd.DataFrame) -> str:
    """What `tcl collect --plan` reads."""
    from tcl.sampling.plan import plan_text

    return plan_text(chosen[["program", "task"]].assign(order=np.arange(len(chosen)), round=0))
