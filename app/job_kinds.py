"""What a job of each kind shows: live, finished, or at a moment of its recording."""

from __future__ import annotations

import streamlit as st

from app.chart import chart
from app.job_view import result_view, tuning_view
from tcl.jobs.store import ALIVE, Job
from tcl.progress import format_seconds
from tcl.views import continual, recorded, training
from tcl.views.palette import CATEGORIES


def body(job: Job) -> None:
    """The charts and the result of any job."""
    kind = recorded.kind_of(job.progress["latest"])
    if kind == recorded.TUNE:
        tuning_view(job)
        return
    events = job.events()
    if kind == recorded.COLLECT:
        _collect(job, events)
    elif kind == recorded.TRAIN:
        _train(job, events)
    elif kind == recorded.DISTILL:
        _distill(job, events)
    elif any(e["kind"] == "step" and e.get("total") for e in events):
        chart(recorded.steps_figure(events), key=f"steps-{job.id}", height=220, alt="How far the work was")
    elif job.state in ALIVE:
        st.caption("It has told nothing yet.")
    result_view(job)


def _collect(job: Job, events: list[dict]) -> None:
    frame = recorded.collected(events)
    seconds = float(frame["t"].iloc[-1])
    with st.container(horizontal=True, gap="medium"):
        st.metric("Measured", f"{int(frame['programs'].sum()):,}", width="content")
        st.metric("Tasks", f"{frame['task'].nunique():,}", width="content")
        st.metric("Platforms", f"{frame['platform'].nunique():,}", width="content")
        st.metric("Pace", f"{60 * frame['programs'].sum() / max(seconds, 1e-9):,.0f} / min", width="content")
    chart(recorded.collected_figure(frame), key=f"collected-{job.id}", height=320, alt=f"Programs measured in {format_seconds(seconds)}")
    st.caption(f"Last: {frame['task'].iloc[-1]} on {frame['platform'].iloc[-1]}")


def _train(job: Job, events: list[dict]) -> None:
    frame = training.curves([e for e in events if e["kind"] == "epoch"])
    name = job.about.get("title") or job.id
    metric = next((m for m in ("top1", "pairwise", "spearman") if frame[f"valid_{m}"].notna().any()), None)
    left, right = st.columns(2, gap="medium")
    with left:
        figure = training.curves_figure({name: frame}, "loss", {name: CATEGORIES[0]})
        chart(figure, key=f"loss-{job.id}", height=300, alt=f"Training loss, {len(frame)} epochs")
    with right:
        if metric is None:
            st.caption("No validation score was told.")
        else:
            figure = training.curves_figure({name: frame}, f"valid_{metric}", {name: CATEGORIES[1]})
            chart(figure, key=f"valid-{job.id}", height=300, alt=f"Validation {training.METRICS[metric]}")


def _distill(job: Job, events: list[dict]) -> None:
    done = [e for e in events if e["kind"] == "consolidated"]
    names = [e["platform"] for e in done]
    now = next((e for e in reversed(events) if e["kind"] == "platform"), None)
    if now is not None and now["platform"] not in names:
        st.caption(f"Learning **{now['platform']}** from {now.get('measured', 0):,} of {now.get('pool', 0):,} programs")
    left, right = st.columns(2, gap="medium")
    with left:
        st.caption("Loss, platform after platform")
        chart(continual.losses_figure(continual.losses([], events)), key=f"losses-{job.id}", height=300, alt="Losses")
    with right:
        if names:
            st.caption("R: top-1 on each platform after each step")
            chart(continual.r_figure(names, continual.matrix(names, [e["row"] for e in done])), key=f"r-{job.id}", height=300,
                  alt="Top-1 after each step")  # fmt: skip
        else:
            st.caption("R appears when the first platform has been consolidated.")
