"""Jobs: everything that runs or ran in the background."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import streamlit as st

from app.job_kinds import body
from app.job_view import against, best_value, head
from app.links import mind_the_address, remember
from app.shared import ago, reproduce
from app.train_runs import option
from tcl.jobs.store import ALIVE, ENDED, Job, all_jobs
from tcl.progress import format_seconds

AGAINST = "against the pinned"


def rows_of(jobs: list[Job], pinned: Job | None) -> pd.DataFrame:
    rows = []
    for job in jobs:
        row = job.summary()
        left = row["left_s"]
        rows.append(
            {
                "job": row["title"] or row["command"],
                "state": row["state"],
                "progress": row["done"] / row["total"] if row["total"] else None,
                "best": best_value(job),
                **({AGAINST: against(job, pinned)} if pinned else {}),
                "left": format_seconds(max(round(left), 1)) if left is not None else "",
                "at work": format_seconds(max(row["active_s"], 0.1)),
                "started": ago(row["created"]),
                "id": job.id[-4:],
            }
        )
    return pd.DataFrame(rows)


def remove_ended(jobs: list[Job]) -> None:
    for job in jobs:
        job.remove()
    st.toast(f"{len(jobs)} jobs removed. What they made (datasets, models, maps) is kept.")


def remove(job: Job) -> None:
    job.remove()
    st.query_params.pop("job", None)


@st.fragment(run_every=1.0)
def live() -> None:
    jobs = all_jobs()
    wanted = mind_the_address("job", [j.id for j in jobs], "job")
    if not jobs:
        with st.container(border=True):
            st.subheader("No jobs yet", anchor=False)
            st.write("Every long action runs here, in a process of its own: it goes on when this page is closed, and is found again.")
            st.page_link("app_pages/tune.py", label="Tune an operator", icon=":material/speed:")
            st.caption("Or from a terminal:")
            reproduce("jobs", "submit", "--", "tune", "matmul:256,256,256", "--trials", "64")
        return
    ended = [j for j in jobs if j.state in ENDED]
    with st.container(horizontal=True, vertical_alignment="center"):
        alive = len(jobs) - len(ended)
        st.markdown(f"**{alive}** at work · {len(ended)} ended")
        st.space("stretch")
        with st.popover("Clean up", icon=":material/delete_sweep:", disabled=not ended):
            st.write(f"Removes the entries and logs of {len(ended)} ended jobs. Datasets, models and maps they made are kept.")
            st.button("Remove ended jobs", type="primary", on_click=remove_ended, args=(ended,))
    pinned = next((j for j in jobs if j.id == st.query_params.get("baseline", "")), None)
    table = rows_of(jobs, pinned)
    event = st.dataframe(
        table,
        hide_index=True,
        height=min(38 + 35 * len(table), 320),
        key="jobs-table",
        on_select="rerun",
        selection_mode="single-row",
        column_config={
            "job": st.column_config.TextColumn(width="large"),
            AGAINST: st.column_config.TextColumn(help="Latency: times the pinned job's. Scores: minus the pinned job's"),
            "progress": st.column_config.ProgressColumn(format="percent", min_value=0, max_value=1),
        },
        alt="All jobs, newest first",
    )
    if event.selection.rows and event.selection.rows[0] < len(jobs):
        wanted = st.query_params["job"] = jobs[event.selection.rows[0]].id
    job = next((j for j in jobs if j.id == wanted), jobs[0])
    with st.container(border=True):
        state = job.state

        def more() -> None:
            if pinned and pinned.id == job.id:
                st.button("Unpin", icon=":material/keep_off:", key=f"unpin-{job.id}", on_click=remember, args=("baseline", ""))
            elif best_value(job):
                words = "Others on the same operator, network or dataset are compared with it"
                st.button("Pin", icon=":material/keep:", key=f"pin-{job.id}", on_click=remember, args=("baseline", job.id), help=words)
            if state not in ALIVE:
                st.button(
                    "Remove",
                    icon=":material/delete:",
                    key=f"remove-{job.id}",
                    on_click=remove,
                    args=(job,),
                    help="Its entry and log; what it made is kept.",
                )

        head(job, "jobs", more)
        body(job)
        if job.kind == "train":
            name = Path(option(job.about.get("argv", []), "--out")).name
            st.page_link(
                "app_pages/train.py", label="Curves, ranks and errors", icon=":material/model_training:", query_params={"runs": name}
            )
        if state not in ALIVE and job.kind != "replay" and job.events():
            st.page_link("app_pages/replay.py", label="Replay", icon=":material/replay:", query_params={"rec": job.id})
        with st.expander("Log", icon=":material/notes:"):
            st.code(job.log() or "Nothing yet.", language=None, height=220)
        reproduce(*job.about.get("argv", []))


st.subheader("Jobs", anchor=False)
live()
