"""Overview: what is here, what runs, what to do next."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from app.job_view import best_value
from app.shared import ago, choose_dataset, dataset_folders, state_badge
from app.train_runs import all_runs
from tcl.jobs.store import ALIVE, all_jobs
from tcl.programs.dataset import Dataset

LISTED = 5
COUNTS = {name: st.column_config.NumberColumn(format="localized") for name in ("measurements", "failed", "tasks", "programs")}


def data(dataset: Dataset) -> None:
    stats = dataset.stats()
    with st.container(horizontal=True, gap="large"):
        for label, key in (("Platforms", "platforms"), ("Tasks", "tasks"), ("Programs", "programs"), ("Measurements", "measurements")):
            st.metric(label, f"{stats[key]:,}", width="content")
        share = stats["failures"] / stats["measurements"] if stats["measurements"] else 0
        kinds = ", ".join(f"{n:,} {k}" for k, n in stats["failures_by_kind"].items())
        st.metric("Failed", f"{share:.1%}" if share >= 0.001 or not share else "< 0.1%", width="content", help=kinds or None)
    if stats["description"]:
        st.write(stats["description"])
    card = dataset.path / "README.md"
    if card.is_file():
        with st.expander("How it was measured", icon=":material/description:"):
            st.markdown(card.read_text(errors="replace").partition("\n")[2])  # its heading is the page's
    rows = [
        {
            "platform": name,
            "measurements": stats["by_platform"].get(name, {}).get("measurements", 0),
            "failed": sum(stats["by_platform"].get(name, {}).get("failures", {}).values()),
            "what it is": platform.description,
        }
        for name, platform in dataset.platforms().items()
    ]
    if rows:
        st.dataframe(pd.DataFrame(rows), hide_index=True, alt="Platforms of the dataset", column_config=COUNTS)
    if stats["by_operator"]:
        table = pd.DataFrame(stats["by_operator"]).T.rename_axis("operator").reset_index().sort_values("programs", ascending=False)
        st.dataframe(table, hide_index=True, alt="Operators of the dataset", column_config=COUNTS)


def models() -> None:
    runs = all_runs()
    st.markdown("**Models**")
    if not runs:
        st.caption("None trained here yet.")
        return
    rows = [{"model": run.name, "kind": run.model, "state": run.state, "top-1": run.scores.get("top1")} for run in runs[:LISTED]]
    st.dataframe(
        pd.DataFrame(rows), hide_index=True, alt="Trained models, newest first",
        column_config={"top-1": st.column_config.NumberColumn(format="%.3f", help="On tasks that it never saw; 1 is best")},
    )  # fmt: skip
    st.page_link(
        "app_pages/train.py", label=f"Compare all {len(runs)}" if len(runs) > 1 else "Look into it", icon=":material/model_training:"
    )


def jobs() -> None:
    found = all_jobs()
    st.markdown("**Jobs**")
    if not found:
        st.caption("None yet. What takes long runs in the background and is listed here.")
        return
    for job in found[:LISTED]:
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            state_badge(job.state)
            st.markdown(job.about.get("title") or job.kind)
            st.caption(" · ".join(w for w in (best_value(job), ago(job.about.get("created", 0))) if w))
    alive = sum(job.state in ALIVE for job in found)
    st.page_link("app_pages/jobs.py", label=f"All {len(found)} jobs, {alive} at work", icon=":material/list_alt:")


def next_steps(dataset: Dataset | None) -> None:
    """What makes sense from here, the first thing first."""
    look = ("explore", ":material/scatter_plot:", "Look at the programs", "A map of all schedules: which are fast, and what these share.")
    learn = ("lessons", ":material/school:", "Take a lesson", "Five of two minutes, on real measurements. Nothing else is needed.")
    watch = ("replay", ":material/replay:", "Watch a recorded run", "A whole tuning run, training or collection in a minute.")
    tune = ("tune", ":material/speed:", "Tune an operator on this machine", "The latency of a matrix product falls, live, in two minutes.")
    bring = ("data", ":material/database:", "Import logs", "Of Ansor, TenSet, AutoTVM or MetaSchedule.")
    train = ("train", ":material/model_training:", "Train a cost model", "It learns which schedules are fast; then see where it is wrong.")
    measured = dataset is not None and dataset.stats()["measurements"] > 0
    st.markdown("**What to do next**")
    with st.container(border=True, gap="small"):
        for page, icon, label, why in (look, learn, train, tune, watch) if measured else (learn, bring, tune, watch):
            st.page_link(f"app_pages/{page}.py", label=f"**{label}**", icon=icon)
            st.caption(why)


st.subheader("Learned cost models of tensor programs", anchor=False)
st.caption("Measure tensor programs, sample the few that matter, train models that rank the rest, carry them to the next platform, tune.")
left, right = st.columns([3, 2], gap="large")
with left:
    dataset = choose_dataset()
    if dataset is not None:
        data(dataset)
        if (others := len(dataset_folders()) - 1) > 0:
            st.caption(f"{others} more dataset{'s' if others > 1 else ''} in the list above.")
with right:
    next_steps(dataset)
    jobs()
    models()
