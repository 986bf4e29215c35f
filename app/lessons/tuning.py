"""Lesson 5 on a page: a recorded run played as if live, then one of your own."""

from __future__ import annotations

import streamlit as st

from app.job_view import head, tuning_view
from app.lessons.ask import made_by, questions
from tcl.jobs.store import ALIVE, Job, all_jobs, submit
from tcl.lessons import tuning

SPEEDS = {"a minute": 60.0, "half a minute": 30.0, "ten seconds": 10.0}


def show() -> None:
    run = tuning.load()
    st.write(
        "A tuner proposes programs, measures a batch, lets the model learn from it, and proposes again. The first batch is random. Play a "
        "run that was recorded, watch when the best latency falls and when it no longer does; afterwards start your own."
    )
    job = _newest()
    length = run.events[-1]["t"]
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        pace = st.segmented_control("In", list(SPEEDS), default="half a minute", key="tuning-pace") or "half a minute"
        speed = max(length / SPEEDS[pace], 0.1)
        busy = job is not None and job.state in ALIVE
        st.button("Play the recorded run", type="primary", icon=":material/play_arrow:", on_click=_play, args=(speed,), disabled=busy)
        st.page_link("app_pages/tune.py", label="Tune it yourself", icon=":material/speed:")
    if job is None:
        st.caption(f"{len(run.frame)} programs were measured in {length:.0f} s. Nothing is computed here: no compiler or GPU is needed.")
    else:

        @st.fragment(run_every=0.5 if busy else None)
        def live() -> None:
            was, state = st.session_state.get("tuning-seen"), job.state
            head(job, "lesson")
            tuning_view(job)
            st.session_state["tuning-seen"] = (job.id, state)
            if was and was[0] == job.id and was[1] in ALIVE and state not in ALIVE:
                st.rerun()  # the timer ends with the job

        live()
    questions(tuning.questions(run), "tuning")
    made_by(tuning.COMMAND, ("jobs", "replay", "assets/recorded/tune-matmul-256", "--speed", "10"))


def _newest() -> Job | None:
    """This lesson's newest replay, whoever started it."""
    return next((job for job in all_jobs() if job.kind == "replay" and str(tuning.FOLDER) in job.about.get("argv", [])), None)


def _play(speed: float) -> None:
    submit("replay", ["jobs", "replay", str(tuning.FOLDER), "--speed", f"{speed:.3g}", "--json"], "Replay: tune matmul:256,256,256")
