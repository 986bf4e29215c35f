"""A knowledge base on a page: what it learned, what it forgot, where programs moved; and the benchmark of methods."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from app.bench_results import choose_result, reproduce_bench, show_goals
from app.chart import chart
from app.links import explore_query
from app.shared import dataset_name, scope_name
from tcl.features.map import task_scope
from tcl.jobs.store import ALIVE, Job
from tcl.programs.dataset import Dataset
from tcl.programs.types import format_id, parse_id
from tcl.views import continual
from tcl.views.continual import KnowledgeBaseFiles, mean_sd

VIEWS = ("Slices", "Transfer", "Maps", "Size and data")
MARKED = 20
LOST = 0.005
"""Drops in top-1 up to this are not worth a word."""
METHODS = (
    "**ours**: the knowledge base; **unprotected**: the same, nothing holds what earlier platforms taught; **fine_tune**: one network that "
    "goes on learning; **frozen**: the model of the platform before, used as it is; **joint**: all platforms learned at once, one head "
    "each; **hardware**: all at once, by a model that reads hardware features; **scratch**: the target's measured share alone; "
    "**scratch_all**: all of the target's programs, which is what a share is held against."
)
"""What `tcl bench continual` calls its methods."""


@st.cache_data(max_entries=16, show_spinner=False)
def _read(path: str, stamp: int) -> KnowledgeBaseFiles | None:
    return continual.read(Path(path))


@st.cache_data(max_entries=16, show_spinner=False)
def _movement(path: str, number: int, stamp: int) -> tuple[pd.DataFrame, dict[str, Any]] | None:
    files = continual.read(Path(path))
    return files.movement(number) if files else None


def stamp_of(folder: Path) -> int:
    """Changes whenever the knowledge base was saved."""
    try:
        return (folder / continual.CARD).stat().st_mtime_ns
    except OSError:
        return 0


def knowledge_base(folder: Path, job: Job | None) -> None:
    """Everything about one knowledge base, live while its job is at work."""
    stamp = stamp_of(folder)
    files = _read(str(folder), stamp) if stamp else None
    events = job.events() if job is not None else []
    history = files.history if files else []
    alive = job is not None and job.state in ALIVE
    _steps(events, [h["platform"] for h in history], alive)
    losses = continual.losses(history, events)
    if not losses.empty:
        key = f"losses-{folder.name}"
        chart(continual.losses_figure(losses), key=key, height=230, alt="Loss of learning and consolidating by epoch")
    if files is None or not history:
        if job is not None and not alive:
            st.info("No platform was finished: the same command, or Start, goes on from the last finished step.", icon=":material/info:")
        elif alive and losses.empty:
            begun = any(e.get("kind") == "platform" for e in events)
            doing = "The first epoch runs; then its loss is drawn" if begun else "Reading programs and choosing those to learn from"
            st.info(f"{doing}…", icon=":material/hourglass_empty:")
        return
    _numbers(files)
    _worst(files)
    _said(files)
    r = continual.matrix(files.names, [h.get("row", {}) for h in history])
    st.markdown("**Top-1 on each platform's test tasks** after each platform was learned")
    chart(continual.r_figure(files.names, r), key=f"r-{folder.name}", height=90 + 44 * len(r), alt="Top-1 R[i, j] by platform")
    view = st.segmented_control("Look at", VIEWS, default=VIEWS[0], key=f"view-{folder.name}", label_visibility="collapsed") or VIEWS[0]
    if view == "Slices":
        _slices(files)
    elif view == "Transfer":
        _transfer(files)
    elif view == "Maps":
        _maps(files, stamp)
    elif view == "Size and data":
        _growth(files)


def _steps(events: list[dict[str, Any]], learned: list[str], alive: bool) -> None:
    """Each platform of the order and how far it is."""
    begun = next((e for e in reversed(events) if e.get("kind") == "sequence"), None)
    order = list(dict.fromkeys([*learned, *(begun["order"] if begun else [])]))
    now = next((e for e in reversed(events) if e.get("kind") in ("epoch", "platform", "learned") and "platform" in e), {})
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        for name in order:
            if name in learned:
                st.badge(name, icon=":material/check_circle:", color="green")
            elif alive and now.get("platform") == name:
                doing = {"learned": "consolidate", "platform": "learn"}.get(now["kind"], now.get("phase", ""))
                st.badge(f"{name}: {doing}", icon=":material/play_circle:", color="blue")
            else:
                st.badge(name, icon=":material/hourglass_empty:", color="gray")


def _numbers(files: KnowledgeBaseFiles) -> None:
    summary, size = files.summary, files.history[-1]["size_bytes"]
    with st.container(horizontal=True, gap="medium"):
        st.metric("Average top-1", mean_sd(summary.get("average")), width="content",
                  help="Mean over all learned platforms, now; latency of the fastest program / of the model's first choice")  # fmt: skip
        if len(files.history) > 1:
            slice_, task = summary.get("worst_slice", {}), summary.get("worst_task", {})
            st.metric("Backward transfer", _signed(summary.get("backward_transfer")), width="content",
                      help="Mean change of the earlier platforms since each was learned")  # fmt: skip
            st.metric("Forgetting", mean_sd(summary.get("forgetting")), width="content", help="Mean drop from the best")
            where = f"{slice_.get('operator')} on {slice_.get('platform')}" if slice_.get("operator") else "no slice"
            st.metric("Worst slice", mean_sd(slice_.get("drop")), width="content", help=f"Largest drop of an operator: {where}")
            where = f"{files.task(task['task'])['name']} on {task['platform']}" if task.get("task") else "no task"
            st.metric("Worst task", mean_sd(task.get("drop")), width="content", help=f"Largest drop of a single task: {where}")
        whole = (size["knowledge_base"] + size["column"]) / 1e6
        st.metric("Size", f"{whole:.2f} MB", width="content", help="Knowledge base and active column; the same for any number of platforms")


def _worst(files: KnowledgeBaseFiles) -> None:
    """Which slice and task lost most, in words."""
    slice_, task = files.summary.get("worst_slice", {}), files.summary.get("worst_task", {})
    said = []
    if (slice_.get("drop") or 0) > LOST:
        said.append(f"worst operator: **{slice_['operator']} on {slice_['platform']}** lost {slice_['drop']:.3f}")
    if (task.get("drop") or 0) > LOST:
        said.append(f"worst task: **{files.task(task['task'])['name']} on {task['platform']}** lost {task['drop']:.3f}")
    if len(files.history) > 1:
        st.markdown(" · ".join(said) or f"No operator and no task of an earlier platform lost more than {LOST:g} top-1.")


def _said(files: KnowledgeBaseFiles) -> None:
    """Warnings of the run, and those that its measurements give."""
    frame = continual.pairs(files.names, files.about.get("agreement", []), files.history)
    for text in [*(h["learned"]["warning"] for h in files.history if h["learned"].get("warning")), *continual.warnings(frame)]:
        st.warning(text, icon=":material/warning:")


def _slices(files: KnowledgeBaseFiles) -> None:
    st.markdown("**By operator**: top-1 now, and what changed since the platform was learned (orange: forgotten)")
    figure = continual.slices_figure(files.history)
    chart(figure, key=f"slices-{files.path.name}", height=110 + 44 * len(files.names), alt="Top-1 by platform and operator")
    if len(files.history) < 2:
        st.caption("With one platform nothing can have been forgotten yet.")
        return
    frame = continual.drops(files.history, "by_task")
    if frame.empty:
        st.caption("No test task of an earlier platform has a score.")
        return
    lost = int((frame["drop"] > LOST).sum())
    st.markdown(f"**By task**: {lost} of {len(frame)} (platform, task) lost more than {LOST:g}, the worst first")
    rows = frame.assign(
        task=[files.task(t)["name"] for t in frame["slice"]], operator=[files.task(t)["operator"] for t in frame["slice"]]
    )  # fmt: skip
    event = st.dataframe(
        rows[["drop", "task", "operator", "platform", "best", "last", "after", "program_then", "program_now"]],
        hide_index=True, height=262, on_select="rerun", selection_mode="single-row", key=f"drops-{files.path.name}",
        column_config={
            "drop": st.column_config.NumberColumn(format="%+.3f", width="small", help="Best top-1 minus top-1 now"),
            "best": st.column_config.NumberColumn(format="%.3f", width="small"),
            "last": st.column_config.NumberColumn("now", format="%.3f", width="small"),
            "after": st.column_config.TextColumn("best after", help="Learning which platform left it at its best"),
            "program_then": st.column_config.TextColumn("program picked then"), "program_now": st.column_config.TextColumn("picked now"),
        },
        alt="Test tasks by how much was forgotten",
    )  # fmt: skip
    at = event.selection.rows[0] if event.selection.rows and event.selection.rows[0] < len(frame) else 0
    row = frame.iloc[at]
    same = row["program_then"] == row["program_now"]
    st.caption(
        f"{files.task(row['slice'])['name']} on {row['platform']}: "
        + ("the same program is picked now as then." if same else "another program is picked now than then.")
        + ("" if event.selection.rows else " Tick a row for another task.")
    )
    open_link(files, row["slice"], [p for p in dict.fromkeys((row["program_then"], row["program_now"])) if p], row["platform"])


def _transfer(files: KnowledgeBaseFiles) -> None:
    frame = continual.pairs(files.names, files.about.get("agreement", []), files.history)
    if frame.empty:
        st.caption("Transfer needs two platforms.")
        return
    st.caption(
        "rho: rank agreement of the two platforms on programs measured on both. As is: top-1 of the source's untouched model on the "
        "target. Gained: top-1 of the column that started from the source, less that of learning the same programs from scratch."
    )
    st.dataframe(
        frame.drop(columns="used"), hide_index=True, alt="Rank agreement and transfer of platform pairs",
        column_config={
            "shared_programs": st.column_config.NumberColumn("shared programs", format="localized"),
            "spearman": st.column_config.NumberColumn("rho", format="%.2f"),
            "as_is": st.column_config.NumberColumn("as is", format="%.3f"),
            "scratch": st.column_config.NumberColumn("from scratch", format="%.3f"),
            "column": st.column_config.NumberColumn("with transfer", format="%.3f"),
            "gained": st.column_config.NumberColumn(format="%+.3f"),
        },
    )  # fmt: skip
    if frame["gained"].isna().all():
        st.caption("What transfer gained is known only of runs with *Compare with learning from scratch* (`--compare`).")


def _maps(files: KnowledgeBaseFiles, stamp: int) -> None:
    numbers = [i for i in range(1, len(files.history)) if (files.path / f"movement-{i}.parquet").exists()]
    if not numbers:
        st.caption("A map before and after needs a second platform: there is nothing before the first.")
        return
    with st.container(horizontal=True, vertical_alignment="bottom"):
        step = st.selectbox("Before and after learning", numbers[::-1], format_func=lambda i: files.names[i], width=230, key="moved-step")
        found = _movement(str(files.path), step, stamp)
        if found is None:
            return
        frame, about = found
        models = list(about["models"])[::-1]
        target = about["platform"]
        label = {m: f"{m}: from {about['nearest']}'s to its own" if m == target else f"{m}: earlier platform" for m in models}
        model = st.selectbox("As seen by the model of", models, format_func=label.get, width=360, key=f"moved-model-{step}")
    rows = frame[frame["model"] == model].reset_index(drop=True)
    said = about["models"][model]
    mean = f"{said['moved']:.2f} of the spread on average" if said["moved"] > 1e-6 else "not at all: nothing of it was touched"
    st.markdown(
        f"**{len(rows):,}** {about['part']} programs of {target} moved {mean} · the map keeps {said['variance']:.0%} of the variance"
    )
    key = f"moved-{files.path.name}-{step}-{model}"

    def clicked() -> None:
        at = st.session_state[key].clicked
        if at is not None:
            st.session_state[f"{key}-row"] = int(at)

    chart(continual.movement_figure(rows, MARKED), key=key, height=420, alt="Programs before and after", on_click=clicked)
    with st.popover("How to read these maps", type="tertiary", icon=":material/info:"):
        st.write(
            "Both show the same programs in the cost model's own space: after is turned onto before as well as it can be (Procrustes), "
            "because a rotation changes no score, and both are laid on the same two principal components. Unlike on the UMAP of Explore, "
            "distances mean something here, as far as two components keep them."
        )
    most = rows.nlargest(MARKED, "moved")
    chosen = st.session_state.get(f"{key}-row")
    at = chosen if chosen is not None and chosen < len(rows) else int(most.index[0])
    row = rows.iloc[at]
    which = "The program you clicked" if chosen is not None else "The program that moved most"
    task = format_id(int(row["task"])) if row["task"] else ""
    st.caption(f"{which}: {files.task(task)['name'] if task else 'a program of the pool'}, moved {row['moved']:.2f}")
    if task:
        open_link(files, task, [format_id(int(row["program"]))], target)


def _growth(files: KnowledgeBaseFiles) -> None:
    frame = continual.growth(files.history)
    chart(continual.growth_figure(frame), key=f"growth-{files.path.name}", height=280, alt="Size and data by number of platforms")
    st.caption("Our size is that of the files; the others' follow from the same network. Ours and fine-tuning keep no program of the past.")
    rows = [
        {
            "platform": h["platform"], "programs there": h["data"]["programs"], "learned from": h["data"]["measured"],
            "sampler": h["data"]["sampler"], "learn, s": h["learned"]["seconds"], "consolidate, s": h["consolidated"]["seconds"],
        }
        for h in files.history
    ]  # fmt: skip
    config = {c: st.column_config.NumberColumn(format="%.0f") for c in ("learn, s", "consolidate, s")}
    st.dataframe(pd.DataFrame(rows), hide_index=True, column_config=config, alt="What each platform was learned from")


def open_link(files: KnowledgeBaseFiles, task: str, programs: list[str], platform: str) -> None:
    """A link to these programs (16 hex digits) on the task's map, where their dataset is among those of the app."""
    path = Path(files.about.get("dataset", {}).get("path", ""))
    name = dataset_name(path)
    if name is None:
        st.caption(f"Programs {', '.join(programs)}; their dataset is not among those of the app.")
        return
    scopes = scope_name(str(path), Dataset.open(path).version)
    scope = next((label for label, value in scopes.items() if value == task_scope(parse_id(task))), "Everything")
    params = explore_query(name, map(parse_id, programs[:2]), platform) | {"scope": scope}
    words = "Open this program in Explore" if len(programs) == 1 else "Compare both programs in Explore"
    st.page_link("app_pages/explore.py", label=words, icon=":material/scatter_plot:", query_params=params)


def benchmark(results: Mapping[str, dict[str, Any]]) -> None:
    """`tcl bench continual`: ours beside what it is compared with."""
    if not results:
        with st.container(border=True):
            st.subheader("No benchmark result yet", anchor=False)
            st.write(
                "The benchmark learns the platforms in all orders with several seeds and compares continual distillation with learning "
                "from scratch, fine-tuning, joint training, a frozen model, and a model that reads hardware features. It takes hours; "
                "stopped, it goes on. This command makes it:"
            )
            reproduce_bench({"bench": "continual"})
        return
    result = choose_result(results, "bench-result")
    about, machine = result.get("settings", {}), result.get("machine", {})
    orders = {r["order"] for r in result.get("rows", [])}
    seeds = {r["seed"] for r in result.get("rows", [])}
    st.markdown(continual.bench_winner(result))
    if result.get("missing"):
        st.warning(f"{len(result['missing'])} runs are missing: no goal counts as met until all are there.", icon=":material/warning:")
    table = continual.bench_table(result)
    if table.empty:
        st.caption("No run has finished.")
    else:
        st.dataframe(table, hide_index=True, alt="Methods of the benchmark, best first",
                     column_config={"MB": st.column_config.NumberColumn(format="%.2f", width=48),
                                    "runs": st.column_config.NumberColumn(width=44)})  # fmt: skip
    st.caption(
        "Mean ± standard deviation over seeds, each the mean over orders; worst slice: the largest drop of any (platform, operator)."
    )
    if where := continual.bench_worst(result):
        st.caption(where)
    st.caption(METHODS)
    show_goals(result)
    agreement = pd.DataFrame(result.get("agreement", []))
    if not agreement.empty:
        st.markdown("**Rank agreement beside transfer gained**")
        columns = [c for c in ("source", "target", "shared_programs", "spearman", "gained") if c in agreement]
        rows = agreement[columns].assign(
            verdict=[continual.verdict(s, g) for s, g in zip(agreement["spearman"], agreement["gained"], strict=True)]
        )
        st.dataframe(
            rows, hide_index=True, alt="Agreement and transfer of platform pairs",
            column_config={
                "shared_programs": st.column_config.NumberColumn("shared programs", format="localized"),
                "spearman": st.column_config.NumberColumn("rho", format="%.2f"), "gained": st.column_config.NumberColumn(format="%+.3f"),
            },
        )  # fmt: skip
    st.caption(
        f"{about.get('data', '')}: {len(orders)} orders, {len(seeds)} seeds; {machine.get('processor', '')}, {machine.get('cores', '')} "
        f"cores, {machine.get('date', '')}"
    )
    reproduce_bench(result)


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.3f}"
