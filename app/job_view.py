"""A job on a page: its state and verbs, whatever its kind; and a tuning run's live charts."""

from __future__ import annotations

import math
from collections.abc import Callable

import pandas as pd
import streamlit as st

from app.chart import chart
from app.shared import ago, state_badge
from tcl.errors import UserError
from tcl.jobs.store import ALIVE, LOST, PAUSED, RUNNING, Job, command_line
from tcl.progress import format_seconds
from tcl.views import tuning
from tcl.views.palette import latency_text, latency_texts

VERBS = (
    ("pause", "Pause", ":material/pause:", (RUNNING,), "Wait after the current step"),
    ("resume", "Resume", ":material/play_arrow:", (PAUSED,), "Go on"),
    ("stop", "Stop", ":material/stop:", (RUNNING, PAUSED), "Finish the current step, keep the results, end"),
    ("cancel", "Cancel", ":material/cancel:", ALIVE, "End now; what was written before stays"),
)
WAITING = {
    "": "TVM is loaded, which takes some seconds", "tasks": "what is to be tuned is read and cut into tasks",
    "baselines": "the untuned program and PyTorch are timed, to compare with",
    "search": "the design space is explored and the first programs are built",
}  # fmt: skip
"""What a tuning run does before its first program was measured, by the phase that it told last."""
FINISHING = {
    "final": "the fastest programs are measured again in turns, and compared", "network": "the whole network is built, timed and checked",
    "export": "the result is written",
}  # fmt: skip
"""What a tuning run does after its last program was measured, by phase."""


def best_number(job: Job) -> tuple[str, float] | None:
    """(what it is: "latency" in seconds or the name of a score, value): the one number of a job that lists show."""
    latest, result = job.progress["latest"], job.result or {}
    latency = result.get("best_latency_s") or latest.get("measured", {}).get("best_s")
    if latency:
        return "latency", float(latency)
    for source in (result, latest.get("epoch", {}), latest.get("map", {})):
        for key, label in (("top1", "top-1"), ("valid_top1", "valid. top-1"), ("trustworthiness", "trustworthiness")):
            if isinstance(source.get(key), int | float):
                return label, float(source[key])
    return None


def best_value(job: Job) -> str:
    """`best_number` in words; empty where there is none yet."""
    found = best_number(job)
    if found is None:
        return ""
    what, value = found
    return latency_text(value) if what == "latency" else f"{what} {value:.3f}"


def against(job: Job, baseline: Job) -> str:
    """A job's number against that of the pinned one, where both are of one kind and one subject: times its latency, or the difference."""
    mine, pinned = best_number(job), best_number(baseline)
    if mine is None or pinned is None or mine[0] != pinned[0] or job.kind != baseline.kind or subject(job) != subject(baseline):
        return ""
    return f"{mine[1] / pinned[1]:.2f} ×" if mine[0] == "latency" else f"{mine[1] - pinned[1]:+.3f}"


def subject(job: Job) -> str:
    """What a job works on: the operator, network or dataset that its command names first."""
    return next(iter(job.about.get("argv", [])[1:2]), "")


def act(job: Job, verb: str) -> None:
    try:
        getattr(job, verb)()
    except UserError as error:
        st.toast(str(error), icon=":material/error:")


def verbs(job: Job, prefix: str) -> None:
    """Buttons of what can be done with the job now."""
    state = job.state
    for verb, label, icon, states, help_text in VERBS:
        if state in states and not (verb == "pause" and job.asked == "pause"):
            st.button(label, icon=icon, help=help_text, key=f"{prefix}-{verb}-{job.id}", on_click=act, args=(job, verb))


def head(job: Job, prefix: str, more: Callable[[], None] | None = None) -> None:
    """Title, state, progress and verbs."""
    about, progress, state = job.about, job.progress, job.state
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(f"**{about.get('title') or command_line(about.get('argv', []))}**")
        state_badge(state)
        if job.asked == "pause" and state == RUNNING:
            st.caption("pausing after this step")
        st.space("stretch")
        verbs(job, prefix)
        if more:
            more()
    if state in ALIVE:
        share = progress["done"] / progress["total"] if progress["total"] else 0.0
        left = job.seconds_left
        phase = progress["latest"].get("phase", {}).get("name", "")
        words = [FINISHING.get(phase) or progress["message"] or "starting"]
        if progress["total"]:
            words.append(f"{progress['done']:,.0f} of {progress['total']:,.0f}")
        words.append(f"{format_seconds(max(progress['active_s'], 1))} at work")
        if left is not None:
            words.append(f"about {format_seconds(max(round(left), 1))} left")
        st.progress(min(share, 1.0), text=" · ".join(words))
    else:
        st.caption(f"{ago(about.get('created', 0))} · {format_seconds(max(progress['active_s'], 0.1))} at work")
    if state == LOST:
        st.warning(
            "Its process ended without a word (killed, or the machine went down). What it wrote is kept; start it again to go on.",
            title="This job is lost",
            icon=":material/help:",
        )
    elif job.error:
        st.error(job.error, title="This job failed", icon=":material/error:")


def tuning_numbers(job: Job, frame: pd.DataFrame, several: bool, best: pd.Series) -> None:
    """A tuning run in a line of figures. frame: `tcl.views.tuning.measured`; several: whether it has several tasks; best: its best
    latency after each trial, seconds."""
    result = job.progress["latest"].get("baseline", {}) | (job.result or {})
    value = float(best.dropna().iloc[-1]) if best.notna().any() else math.nan
    best_s = result.get("best_latency_s") or value
    failed = tuning.failures(frame)
    with st.container(horizontal=True, gap="medium"):
        words = "Network, sum of bests" if several and not result.get("best_latency_s") else "Best"
        again = not several and pd.notna(value) and latency_text(best_s) != latency_text(value)
        note = f"Measured again on its own at the end, beside PyTorch; {latency_text(value)} during the search" if again else None
        _metric(words, latency_text(best_s) if pd.notna(value) else "none yet", note)
        _metric("Measured", f"{len(frame):,}")
        _metric("Failed", f"{sum(failed.values()):,}", ", ".join(f"{n} {k.replace('_', ' ')}" for k, n in failed.items()) or None)
        if job.state in ALIVE and (pace := tuning.per_minute(frame)):  # known from the second batch on
            _metric("Throughput", f"{pace:.0f} / min")
        for key, label in tuning.REFERENCES.items():
            if result.get(key):
                _metric(label, latency_text(result[key]), f"{result[key] / best_s:.2f} × the best" if best_s else None)
        if "correct" in result:
            _metric("Output", "correct" if result["correct"] else "WRONG", "compared with NumPy / PyTorch")


def tuning_waits(job: Job) -> None:
    """What a tuning run shows before its first program was measured."""
    if job.state not in ALIVE:
        st.caption("Nothing was measured.")
        return
    if job.state == PAUSED:
        st.info("Paused before the first program was measured. Press **Resume** to go on.", icon=":material/pause:")
        return
    phase = job.progress["latest"].get("phase", {}).get("name", "")
    st.info(f"Nothing measured yet: {WAITING.get(phase, WAITING[''])}.", icon=":material/hourglass_empty:")


def tuning_view(job: Job) -> None:
    """A tuning run, live, finished or replayed."""
    events = job.events()
    frame = tuning.measured(events)
    per_task = tuning.tasks(events)
    latest = job.progress["latest"]
    result = latest.get("baseline", {}) | (job.result or {})
    if frame.empty:
        tuning_waits(job)
        return
    weights = tuning.weights_of(per_task)
    several = weights is not None
    best = tuning.best_so_far(frame, weights)
    value = float(best.dropna().iloc[-1]) if best.notna().any() else math.nan
    tuning_numbers(job, frame, several, best)
    against = st.segmented_control(
        "Against", ["trials", "seconds"], default="trials", key=f"against-{job.id}", label_visibility="collapsed"
    )
    references = {label: result.get(key) for key, label in tuning.REFERENCES.items()}
    figure = tuning.best_figure(frame, against or "trials", references, weights)
    chart(figure, key=f"best-{job.id}-{against}", height=340, alt=f"Best latency against {against}: now {latency_text(value)}")
    if several:
        st.caption("Tasks, by their share of the network's time")
        rows = per_task.assign(best=latency_texts(per_task["best_s"]))
        st.dataframe(
            rows[["name", "share", "best", "trials", "weight"]],
            hide_index=True,
            height=240,
            alt="Tasks of the network",
            column_config={"share": st.column_config.ProgressColumn(format="percent", min_value=0, max_value=1)},
        )
    if frame["predicted"].notna().sum() > 4:
        with st.expander("Predicted against measured", on_change="rerun", key=f"predicted-{job.id}") as more:
            if more.open:
                chart(tuning.predicted_figure(frame), key=f"pred-{job.id}", height=300, alt="Predicted score against measured latency")
    if result.get("export"):
        with st.expander("Use the result", icon=":material/package_2:"):
            st.json(result["export"])


def result_view(job: Job) -> None:
    """The result of a job of any kind, as a list."""
    result = job.result
    if not result:
        return
    plain = {k: v for k, v in result.items() if isinstance(v, str | int | float | bool) and v is not None}
    st.dataframe(pd.DataFrame({"value": {k: str(v) for k, v in plain.items()}}), height=min(35 * len(plain) + 38, 300), alt="Result")


def _metric(label: str, value: str, note: str | None = None) -> None:
    st.metric(label, value, width="content", help=note)
