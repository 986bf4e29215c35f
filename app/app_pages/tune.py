"""Tune: pick an operator or a network, start, watch its latency fall; see where the time went, compare runs, share a report."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from app.job_view import head
from app.shared import reproduce
from app.tune_benchmarks import benchmark_section
from app.tune_report import report_section
from app.tune_runs import Run, all_runs, choose, roles, show_first
from app.tune_setup import machine_line, setup, start
from app.tune_view import (
    curves_section,
    model_section,
    result_section,
    schedule_section,
    tasks_section,
    time_section,
)
from tcl.jobs.store import DONE, submit

SECTIONS = ("Tasks", "Time", "Model", "Schedule", "Result", "Report", "Benchmark")


def begin(argv: list[str]) -> None:
    show_first(start(argv))


def go_on(run: Run) -> None:
    """Start a broken-off run again, into the same folder: what was measured counts."""
    about, argv = run.job.about, run.argv
    if "--out" in argv[:-1]:  # relative to where that job began
        place = argv.index("--out") + 1
        argv[place] = str(Path(about.get("cwd", "."), argv[place]))
    show_first(submit("tune", argv, f"{about.get('title') or run.id}, continued"))


def empty() -> None:
    with st.container(border=True):
        st.subheader("No tuning run yet", anchor=False)
        st.write(
            "A run generates thousands of schedules of the same computation, lets the cost model pick the promising ones, measures "
            "them on this machine, and keeps the fastest. Press **Start tuning**: the first result of a 256 × 256 × 256 matrix product "
            "comes after about half a minute."
        )


left, right = st.columns([1, 3], gap="large")
with left:
    st.subheader("Tune", anchor=False)
    machine_line()
    argv = setup()
    st.button("Start tuning", type="primary", icon=":material/play_arrow:", width="stretch", disabled=argv is None, on_click=begin,
              args=(argv,))  # fmt: skip
    if argv:
        reproduce(*argv)

with right:
    runs = all_runs()
    if not runs:
        empty()
        st.stop()
    chosen = choose(runs)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        baseline, looked = roles(chosen)
        against = st.segmented_control("Against", ["trials", "seconds"], default="trials", key="against", bind="query-params") or "trials"
        relative = baseline is not None and st.toggle("Relative to the baseline", key="relative", bind="query-params")
    if looked is not None and looked.shipped:
        st.caption("This run came with the project, measured on another machine. Press **Start tuning** for one of your own: the first "
                   "result of a 256 × 256 × 256 matrix product comes after about half a minute.")  # fmt: skip
    if looked is None:
        st.caption("Choose a run above.")
        st.stop()
    alive = any(run.alive for run in chosen)

    def fresh() -> tuple[list[Run], Run | None, Run]:
        """The chosen runs, the pinned one and the one that is looked into, as they are now."""
        now = {run.id: Run(run.name, run.job) for run in chosen}
        return list(now.values()), now.get(baseline.id) if baseline else None, now[looked.id]

    @st.fragment(run_every=1.0 if alive else None)
    def live() -> None:
        now, pinned, run = fresh()

        def more() -> None:
            if run.job.kind == "tune" and not run.alive and run.state != DONE:
                st.button("Continue", icon=":material/play_arrow:", key=f"continue-{run.id}", on_click=go_on, args=(run,),
                          help="Go on where it was: what it measured counts")  # fmt: skip

        head(run.job, "tune", more)
        curves_section(now, pinned, run, against, relative)
        if alive and not any(r.alive for r in now):
            st.rerun()  # the timer ends with the last job

    live()
    section = (
        st.segmented_control("Section", SECTIONS, default="Tasks", key="section", label_visibility="collapsed", bind="query-params")
        or "Tasks"
    )

    @st.fragment(run_every=2.0 if alive and section in ("Tasks", "Time", "Model") else None)
    def drawn() -> None:
        now, pinned, run = fresh()
        if section == "Tasks":
            tasks_section(run)
        elif section == "Time":
            time_section(now)
        elif section == "Model":
            model_section(now, run)
        elif section == "Schedule":
            schedule_section(run, pinned)
        elif section == "Result":
            result_section(run)
        elif section == "Report":
            report_section(now, pinned)
        else:
            benchmark_section()

    drawn()
