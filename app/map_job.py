"""The map of a scope where there is none yet: made by a background job, which the page waits for."""

from __future__ import annotations

import streamlit as st

from app.shared import reproduce
from tcl.features.map import LIMIT
from tcl.jobs.store import ALIVE, DONE, Job, jobs_folder, submit
from tcl.programs.dataset import Dataset

JOB = "map_job"
"""The session's key of the job that makes a map just now."""


def make_map(dataset: Dataset, scope: str, label: str) -> None:
    st.session_state[JOB] = submit("map", ["map", str(dataset.path), "--scope", scope, "--json"], f"Map of {label} in {dataset.path.name}")


@st.fragment(run_every=1.0)
def wait_for_map() -> None:
    """The job's progress; the page starts over when the map is there."""
    job = Job(jobs_folder() / st.session_state[JOB])
    state, progress = job.state, job.progress
    if state in ALIVE:
        share = progress["done"] / progress["total"] if progress["total"] else 0.0
        st.progress(min(share, 1.0), text=progress["message"] or "starting…")
        return
    del st.session_state[JOB]
    if state == DONE:
        st.rerun()
    st.error(job.error or f"The job ended: {state}.", title="The map was not made")


def missing_map(dataset: Dataset, scope: str, label: str, programs: int) -> None:
    """What stands in the map's place."""
    with st.container(border=True):
        st.subheader("No map of this yet")
        st.write(
            f"{programs:,} program{'s' * (programs != 1)} can be laid out so that similar schedules lie together. It takes about "
            f"{max(10, programs // 700)} s and is kept."
        )
        if programs > LIMIT:
            st.caption(
                f"A map holds {LIMIT:,} programs at most by default; {LIMIT:,} of {programs:,} will be drawn at random, and it will say so."
            )
        if JOB in st.session_state:
            wait_for_map()
        else:
            st.button("Make the map", type="primary", icon=":material/scatter_plot:", on_click=make_map, args=(dataset, scope, label))
        reproduce("map", str(dataset.path), "--scope", scope)
