"""Replay: a recorded job as if live, at any speed, from any moment."""

from __future__ import annotations

import time

import streamlit as st

from app.job_kinds import body
from app.links import mind_the_address
from app.shared import reproduce, state_badge
from tcl.jobs.replay import Moment, length, recordings
from tcl.jobs.store import Job
from tcl.progress import format_seconds
from tcl.workspace import ASSETS

TICK_S = 0.5
# Recorded seconds a second; negative: the seconds in which the whole is played.
SPEEDS = {"as it was": 1.0, "10 times": 10.0, "in a minute": -60.0, "in ten seconds": -10.0}
LONG_S = 90.0


def label(job: Job) -> str:
    about = job.about
    return f"{about.get('title') or job.id} · {format_seconds(max(length(job.path), 0.1))}"


def position(whole: float) -> float:
    """The second that is shown now."""
    state = st.session_state["replay"]
    if state["since"] is None:
        return state["t"]
    return min(state["t"] + (time.monotonic() - state["since"]) * state["speed"], whole)


def halt(whole: float) -> None:
    state = st.session_state["replay"]
    state["t"], state["since"] = position(whole), None


def go(whole: float) -> None:
    """Play on; from the beginning where it stands at the end."""
    state = st.session_state["replay"]
    state["t"] = 0.0 if state["t"] >= whole else state["t"]
    state["since"] = time.monotonic()


def seek() -> None:
    state = st.session_state["replay"]
    state["t"] = float(st.session_state["replay-t"])
    state["since"] = time.monotonic() if state["since"] is not None else None


def pace(whole: float) -> None:
    """Another speed, from the moment that is shown."""
    playing = st.session_state["replay"]["since"] is not None
    halt(whole)
    speed = SPEEDS[st.session_state["replay-speed"] or "as it was"]
    st.session_state["replay"]["speed"] = speed if speed > 0 else max(whole / -speed, 1e-3)
    if playing:
        go(whole)


def none_yet() -> None:
    with st.container(border=True):
        st.subheader("Nothing recorded yet", anchor=False)
        st.write("Every job records what it tells. Once one has ended, it can be watched here again, as if live.")
        st.page_link("app_pages/tune.py", label="Tune an operator", icon=":material/speed:")


st.subheader("Replay", anchor=False)
jobs = {job.id: job for job in recordings()}
if not jobs:
    none_yet()
    st.stop()
with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
    names = list(jobs)
    wanted = mind_the_address("rec", names, "recording")
    chosen = st.selectbox(
        "Recording", names, index=names.index(wanted) if wanted in jobs else 0, format_func=lambda n: label(jobs[n]), width=420
    )
    st.query_params["rec"] = chosen
    job = jobs[chosen]
    whole = length(job.path)
    if st.session_state.get("replay", {}).get("of") != chosen:
        linked = st.query_params.get("t", "")
        start = min(float(linked), whole) if linked.replace(".", "", 1).isdigit() and wanted == chosen else 0.0
        # A class has a minute: what lasts longer is hurried.
        st.session_state["replay"] = {"of": chosen, "t": start, "since": None, "speed": max(whole / 60, 1e-3) if whole > LONG_S else 1.0}
        st.session_state["replay-speed"] = "in a minute" if whole > LONG_S else "as it was"
    st.segmented_control("Speed", list(SPEEDS), key="replay-speed", on_change=pace, args=(whole,))
    playing = st.session_state["replay"]["since"] is not None
    if playing:
        st.button("Pause", icon=":material/pause:", type="primary", on_click=halt, args=(whole,), shortcut="Space")
    else:
        st.button("Play", icon=":material/play_arrow:", type="primary", on_click=go, args=(whole,), shortcut="Space")


@st.fragment(run_every=TICK_S if playing else None)
def player() -> None:
    now = position(whole)
    if playing and now >= whole:
        halt(whole)
        st.rerun()  # the timer ends with the recording
    if not playing:
        st.query_params["t"] = f"{now:.1f}"
    st.session_state["replay-t"] = now
    st.slider(
        "Seconds at work", 0.0, max(whole, 0.1), key="replay-t", step=max(round(whole / 500, 2), 0.01), format="%.1f s", on_change=seek
    )
    shown = Moment(job.path, at=now if now < whole else whole)
    progress = shown.progress
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        state_badge(shown.state)
        done = f"{progress['done']:,.0f} of {progress['total']:,.0f}" if progress["total"] else ""
        st.caption(" · ".join(w for w in (progress["message"], done) if w) or "starting")
    if now <= 0 and not playing:
        st.info("Press **Play** (or the space bar), or drag the slider to a moment.", icon=":material/play_arrow:")
    else:
        body(shown)


player()
shipped = job.path.relative_to(ASSETS.parent) if job.path.is_relative_to(ASSETS) else None
reproduce("jobs", "replay", str(shipped) if shipped else job.id, "--speed", f"{st.session_state['replay']['speed']:.3g}")
