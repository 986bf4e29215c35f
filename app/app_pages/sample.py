"""Sample: which programs to measure; samplers side by side on the map, why each picked what, and what it is worth."""

from __future__ import annotations

import re
from dataclasses import fields
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import streamlit as st

from app.bench_results import MINE, bench_results, choose_result, reproduce_bench, show_goals
from app.chart import chart
from app.job_view import head
from app.map_job import missing_map
from app.program_view import show_programs
from app.sampling_work import SAVED, Shown, command, latencies, len_of, plan_of, show, submit_sample, task_space
from app.shared import choose_dataset, reproduce, scope_name, show_error, stored_map
from tcl.errors import UserError
from tcl.jobs.store import ALIVE, FAILED, all_jobs, find, submit
from tcl.programs.selection import list_selections, save_selection
from tcl.programs.types import format_id, parse_id
from tcl.sampling.plan import FEATURES, MAP, Request, plan_text, write_plan
from tcl.sampling.rdu import Rdu
from tcl.sampling.registry import DEFAULT, names
from tcl.tuning.targets import available_profiles
from tcl.views import sampling as views
from tcl.views.palette import latency_text
from tcl.workspace import inside, workspace

NOBODY = "nothing"
STRUCTURE = "no platform: by structure alone"
WEIGHTS = {f.name: float(f.default) for f in fields(Rdu) if f.name in ("r", "d", "u")}
HELP = {
    "r": "R, representativeness: how typical a program is of its surroundings. 0 takes it away.",
    "d": "D, diversity: distance to the nearest program that is measured or picked. 0 takes it away.",
    "u": "U, uncertainty: how fast it may be for all that models know (their mean and their disagreement). Needs a platform to ask about.",
}

COVERAGE = {
    "picked": st.column_config.NumberColumn(format="%d"),
    "mean distance to a pick": st.column_config.NumberColumn(format="%.3f", help="As a share of the task's spread; lower covers better"),
    "clusters hit": st.column_config.NumberColumn(format="percent", help="Of at most 20 k-means clusters a task"),
    "tasks hit": st.column_config.NumberColumn(format="percent"),
    "regret": st.column_config.NumberColumn(
        format="%.3f", help="1 - best latency of all / best of the picked, mean over tasks; 0: the best of each was picked"
    ),
}

results = bench_results("sampling")
mine = next((result for name, result in results.items() if name.startswith(MINE)), {})
best = views.winner(views.curve_rows(mine)) or DEFAULT

with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
    dataset = choose_dataset()
    if dataset is None:
        st.stop()
    path, version = str(dataset.path), dataset.version
    scopes = scope_name(path, version)
    scope_label = st.selectbox("Show", list(scopes), key="scope", bind="query-params", width=260, help="Part of the pool that is drawn")
    scope = scopes[scope_label]
    platforms = [STRUCTURE, *dataset.platforms()]
    platform_label = st.selectbox(
        "Measure on", platforms, key="sample-platform", bind="query-params", width=250,
        help="Models of the dataset's other platforms say what may be fast (U); latencies of this one answer between rounds.",
    )  # fmt: skip
    platform = "" if platform_label == STRUCTURE else platform_label
    color_label = st.selectbox("Color by", list(views.COLORS.values()), key="sample-color", bind="query-params", width=190)
    color = next(k for k, v in views.COLORS.items() if v == color_label)
if not len_of(path, version):
    st.info("This dataset holds no programs yet. `tcl collect` or `tcl data import` adds some.", icon=":material/info:")
    st.stop()


def knobs() -> tuple[list[tuple[str, Request]], bool]:
    """The two requests (one where nothing stands beside), and whether unpicked programs are coloured too."""
    samplers = [*names(), *(SAVED + s for s in list_selections(dataset))]
    first = st.selectbox("Sampler", samplers, index=samplers.index(best) if best in samplers else 0, key="sampler", bind="query-params")
    second = st.selectbox("beside", [NOBODY, *samplers], index=1 + samplers.index("random"), key="beside", bind="query-params")
    share = st.slider("Budget, % of the programs", 1, 100, 10, key="budget", bind="query-params")
    weights = dict(WEIGHTS)
    if "rdu" in (first, second):
        for name, label in (("r", "R"), ("d", "D"), ("u", "U")):
            weights[name] = st.slider(f"Weight of {label}", 0.0, 4.0, WEIGHTS[name], 0.25, key=f"weight-{name}", help=HELP[name])
    rounds = (
        st.slider("Rounds", 1, 6, 1, key="rounds", disabled=not platform, help="Measure, train, pick again; needs a platform")
        if platform
        else 1
    )
    new = (
        bool(platform)
        and rounds == 1
        and st.toggle("Only what is not measured there", key="new", help="And what is measured teaches the model")
    )
    seed = st.number_input("Seed", 0, 999, 0, key="seed")
    spaces = [FEATURES, MAP, *sorted(str(p.parent) for p in (workspace() / "models").glob("*/model.json"))]
    embedding = st.selectbox(
        "Embedding", spaces, key="embedding", format_func=lambda s: s if s in (FEATURES, MAP) else f"model {Path(s).name}",
        help="Where programs are near or far: their features, their places on the map, or a trained model's vectors.",
    )  # fmt: skip
    everything = st.toggle("Colour all", key="everything", disabled=color == "round", help="What was not picked, too")
    changed = ",".join(f"{n}={v:g}" for n, v in weights.items() if v != WEIGHTS[n])
    sides = []
    for name in (first, second):
        if name != NOBODY:
            spec = f"rdu:{changed}" if name == "rdu" and changed else name
            known = "rdu" if name.startswith(SAVED) else spec
            sides.append((name, Request(dataset.path, known, f"{share}%", platform, rounds, new, int(seed), embedding)))
    return sides, everything


def clicked(key: str, programs: np.ndarray) -> None:
    row = st.session_state[key].clicked
    if row is not None:
        st.query_params["why"] = format_id(int(programs[int(row)]))


def heading(side: int, shown: Shown) -> None:
    """A sampler's name, and what a job would add."""
    st.markdown(f"**{shown.name}**")
    if shown.missing:
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.caption(shown.missing)
            if shown.job is not None:
                st.button("Run", icon=":material/play_arrow:", key=f"run-{side}", on_click=submit_sample, args=(shown.job, version))


def panel(side: int, shown: Shown, rounds_shown: int | None, everything: bool) -> None:
    """One sampler on the map."""
    if shown.sampled is None:
        return
    frame = views.place(shown.sampled.programs, stored.coordinates)
    marked = None
    if st.query_params.get("why"):
        rows = np.flatnonzero(frame["program"].to_numpy() == parse_id(st.query_params["why"]))
        marked = int(rows[0]) if len(rows) else None
    here = frame["x"].notna()
    drawn = sum(map(len, views.drawn_rows(frame)))
    key = f"sample-map-{side}"
    chart(
        views.sample_figure(frame, color, rounds_shown, everything, marked), key=key, height=460,
        alt=f"{shown.name}: {int((frame['round'] >= 0).sum()):,} of {len(frame):,} programs picked",
        on_click=lambda: clicked(key, frame["program"].to_numpy()),
    )  # fmt: skip
    picked = int((here & (frame["round"] >= 0)).sum())
    words = f"{picked:,} picked of {int(here.sum()):,} shown here" if scope != "all" else f"{picked:,} picked of {len(frame):,}"
    if shown.thinned:
        words += f" (a random part of {shown.of:,})"
    if drawn < here.sum():
        words += f" · showing {drawn:,} of {int(here.sum()):,}"
    if color != "round" and not np.isfinite(frame.loc[frame["round"] >= 0, color]).any():
        words += f" · this choice was made without {views.COLORS[color]}"
    st.caption(words)


def why_panel(sides: list[Shown]) -> None:
    """The clicked program: why each sampler picked it, or not."""
    identity = st.query_params.get("why", "")
    if not identity:
        st.caption("Click a program on a map to read why it was picked, or not.")
        return
    program = parse_id(identity)
    st.subheader(f"Why {identity}", anchor=False)
    columns = st.columns(2, gap="medium")
    for column, shown in zip(columns, sides, strict=False):
        if shown.sampled is None:
            continue
        table = shown.sampled.programs
        at = np.flatnonzero(table["program"].to_numpy() == program)
        with column:
            if not len(at):
                st.caption(f"{shown.name}: this program is not in the pool that was picked from.")
                continue
            mine = table[table["task"] == table["task"].iloc[at[0]]].reset_index(drop=True)
            row = int(np.flatnonzero(mine["program"].to_numpy() == program)[0])
            seconds = None
            if platform:
                seconds = latencies(path, version, platform).reindex(mine["program"]).to_numpy()
            told = views.why(mine, task_space(path, version, mine["program"].tolist()), row, shown.by, seconds)
            st.markdown(f"**{shown.name}** {told.sentence}")
            if len(told.scores):
                st.dataframe(
                    told.scores, hide_index=True, alt="Scores and ranks in the task",
                    column_config={"value": st.column_config.NumberColumn(format="%.3f")},
                )  # fmt: skip
            if len(told.neighbours):
                st.caption("Nearest picked programs of its task; distances as a share of the task's spread")
                near = told.neighbours.drop(columns="row")
                if "latency_s" in near:
                    near["latency"] = [latency_text(s) if np.isfinite(s) else "" for s in near.pop("latency_s")]
                st.dataframe(
                    near,
                    hide_index=True,
                    alt="Nearest picked programs",
                    column_config={"distance": st.column_config.NumberColumn(format="%.3f")},
                )
    if st.toggle("Its schedule and latencies", key="why-details"):
        show_programs(path, version, [identity])


def save(name: str, picked: pd.DataFrame, request: Request) -> None:
    about = {"sampler": request.sampler, "budget": request.budget, "seed": request.seed, "by": "Sample page"}
    try:
        save_selection(dataset, name, picked, about)
        st.toast(f"Saved as {name}.", icon=":material/check:")
    except OSError as error:
        st.toast(f"It cannot be saved in {path}: {error.strerror}.", icon=":material/error:")


def export(shown: Shown) -> None:
    """The selection as a plan, as a stored selection, as measurements."""
    if shown.sampled is None or not len(shown.sampled.picked()):
        return
    st.markdown(f"**Use the selection of {shown.name}**")
    if shown.thinned or shown.job is not None:
        st.caption("What is shown is a preview. Press Run beside it for the selection itself, which can then be used.")
        return
    picked = plan_of(shown.sampled)
    saved = shown.name.startswith(SAVED)
    default = (
        shown.name.removeprefix(SAVED) if saved else re.sub(r"[^A-Za-z0-9._-]+", "-", f"{shown.name}-{shown.request.budget.rstrip('%')}")
    )
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        name = st.text_input("Name", default, key=f"export-name-{default}", width=220)
        if not re.fullmatch(r"[A-Za-z0-9][\w.-]{0,63}", name):
            st.caption("Letters, digits, '.', '_' and '-', please.")
            return
        st.download_button("Download the plan", plan_text(picked), f"{name}.csv", "text/csv", icon=":material/download:")
        if not saved:
            st.button(
                "Save as a selection", icon=":material/bookmark_add:", on_click=save, args=(name, picked, shown.request),
                help="Kept in the dataset; Explore and this page then offer it",
            )  # fmt: skip
        compilable = set(dataset.tasks().loc[lambda t: t["format"] == "metaschedule", "task"])
        profile = st.selectbox("on", available_profiles()[::-1], key="collect-target", width=130)
        able = bool(picked["task"].isin(compilable).all())
        if st.button(
            "Collect this", type="primary", icon=":material/timer:", disabled=not able,
            help=f"Measure these {len(picked):,} programs on this machine" if able else "Programs of others' logs cannot be compiled here",
        ):  # fmt: skip
            plan = inside(workspace() / "plans", f"{name}.csv")
            write_plan(picked, plan)
            out = inside(workspace() / "datasets", name)
            out.parent.mkdir(exist_ok=True)
            argv = ["collect", "--plan", str(plan), "--from", path, "--platform", profile, "--out", str(out), "--json"]
            st.session_state["sample_job"] = submit("collect", argv, f"Collect {len(picked):,} programs of {dataset.path.name}")
            st.rerun()
    if not saved:
        reproduce(*command(shown.request), "--out", f"{name}.csv")
    reproduce("collect", "--plan", f"{name}.csv", "--from", path, "--platform", profile, "--out", f"workspace/datasets/{name}")


def learning_curves() -> None:
    st.subheader("What a selection is worth", anchor=False)
    if not results:
        with st.container(border=True):
            st.write(
                "Learning curves compare the samplers by what a cost model learns from their picks. Nobody has measured them here yet; "
                "this command does (hours; it can be stopped and run again), and this page then shows its result:"
            )
            reproduce_bench({"bench": "sampling", "asked": {"data": path, "cells": "workspace/bench/sampling"}})
        return
    result = choose_result(results, "curve-result")
    with st.container(horizontal=True, vertical_alignment="center"):
        label = st.segmented_control(
            "Score", list(views.METRICS.values()), default="top-1", key="curve-metric", label_visibility="collapsed"
        )
        ablations = st.toggle("RDU without R, D or U", key="curve-ablations")
    metric = next(k for k, v in views.METRICS.items() if v == (label or "top-1"))
    st.markdown(views.verdict(views.curve_rows(result), metric))
    chart(
        views.curves_figure(views.curve_rows(result, ablations), metric), key=f"curves-{metric}-{ablations}-{result.get('cells')}",
        height=380, alt=f"{label} against the share of programs measured, by sampler",
    )  # fmt: skip
    with st.expander("Share by share", icon=":material/table:"):
        st.dataframe(views.shares_table(views.curve_rows(result, ablations), metric).style.format("{:.3f}", na_rep="–"))
    for left_out in result.get("skipped", []):
        st.caption(f"{left_out['platform']}, {100 * left_out['fraction']:g} %: {left_out['cells']} runs without a score. {left_out['why']}")
    about, cells = result.get("machine", {}), result.get("cells", 0)
    done = f" of {result['of']:,}" if cells < result.get("of", 0) else ""
    st.caption(f"{cells:,} runs{done} · {about.get('processor', '')} · {about.get('date', '')}")
    reproduce_bench(result)
    show_goals(result)


def jobs() -> None:
    """Jobs of this page that run now, and the last one if it failed."""
    running = [job for job in all_jobs() if job.kind in ("sample", "collect") and job.state in ALIVE]
    last = st.session_state.get("sample_job")

    @st.fragment(run_every=1.0 if running else None)
    def live() -> None:
        for job in running:
            head(job, "sample")
        if any(job.state not in ALIVE for job in running):
            st.rerun()

    live()
    if last and last not in [job.id for job in running]:
        try:
            ended = find(last)
        except UserError:
            return
        if ended.state == FAILED or ended.kind == "collect":
            head(ended, "sample")


stored = stored_map(dataset, scope)
left, right = st.columns([2, 9], gap="medium")
with left:
    requests, everything = knobs()
with right:
    jobs()
    sides: list[Shown] = []
    try:
        with st.spinner("Reading and picking programs…"):
            sides = [show(name if name.startswith(SAVED) else request.sampler, request, version) for name, request in requests]
    except UserError as error:  # such as a budget of less than one program: the knobs are at hand, and the rest of the page stands
        show_error(error)
    last_round = max(
        (int(s.sampled.programs["round"].max()) for s in sides if s.sampled is not None and len(s.sampled.programs)), default=0
    )
    rounds_shown = None
    if last_round > 0:
        choice = st.segmented_control(
            "What each round added", ["all", *range(1, last_round + 2)], default="all", key="round-shown",
            format_func=lambda r: "all rounds" if r == "all" else f"round {r}",
        )  # fmt: skip
        rounds_shown = None if choice in (None, "all") else int(choice) - 1
    if stored is None:
        missing_map(dataset, scope, scope_label, len_of(path, version))
    elif sides:
        for part in (heading, partial(panel, rounds_shown=rounds_shown, everything=everything)):  # in two rows: the maps begin level
            for number, (column, shown) in enumerate(zip(st.columns(len(sides), gap="small"), sides, strict=True)):
                with column:
                    part(number, shown)
    covered = {s.name: {"picked": float(len(s.sampled.picked())), **s.sampled.coverage} for s in sides if s.sampled is not None}
    if covered:
        st.dataframe(views.coverage_table(covered), alt="Coverage of the pool by each selection", column_config=COVERAGE)
    if sides:
        why_panel(sides)
        st.divider()
        export(sides[0])
    st.divider()
    learning_curves()
