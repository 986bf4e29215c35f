"""Overview: what is here, what runs, what to do next."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from app.job_view import best_value
from app.shared import choose_dataset, state_badge
from tcl.jobs.store import all_jobs

st.subheader("Learned cost models of tensor programs", anchor=False)
st.caption("Measure tensor programs, sample the few that matter, train models that rank the rest, carry them to the next platform, tune.")

left, right = st.columns([3, 2], gap="large")
with left:
    dataset = choose_dataset()
    if dataset is not None:
        stats = dataset.stats()
        with st.container(horizontal=True, gap="large"):
            for label, key in (("Platforms", "platforms"), ("Tasks", "tasks"), ("Programs", "programs"), ("Measurements", "measurements")):
                st.metric(label, f"{stats[key]:,}", width="content")
            share = stats["failures"] / stats["measurements"] if stats["measurements"] else 0
            st.metric(
                "Failed",
                f"{share:.1%}",
                width="content",
                help=", ".join(f"{n:,} {k}" for k, n in stats["failures_by_kind"].items()) or None,
            )
        if stats["description"]:
            st.write(stats["description"])
        known = dataset.platforms()
        if known:
            rows = [
                {
                    "platform": name,
                    "measurements": stats["by_platform"].get(name, {}).get("measurements", 0),
                    "failed": sum(stats["by_platform"].get(name, {}).get("failures", {}).values()),
                    "what it is": p.description,
                }
                for name, p in known.items()
            ]
            st.dataframe(pd.DataFrame(rows), hide_index=True, alt="Platforms of the dataset")
        if stats["by_operator"]:
            table = pd.DataFrame(stats["by_operator"]).T.rename_axis("operator").reset_index().sort_values("programs", ascending=False)
            st.dataframe(table, hide_index=True, alt="Operators of the dataset")
with right:
    st.markdown("**What to do next**")
    with st.container(border=True):
        st.page_link("app_pages/explore.py", label="Look at the programs", icon=":material/scatter_plot:")
        st.caption("A map of all schedules: which were measured, which are fast, what the fast ones have in common.")
    with st.container(border=True):
        st.page_link("app_pages/tune.py", label="Tune an operator on this machine", icon=":material/speed:")
        st.caption("Watch the latency of a matrix product fall, live, in about two minutes.")
    jobs = all_jobs()
    st.markdown("**Jobs**")
    if not jobs:
        st.caption("None yet.")
    for job in jobs[:5]:
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            state_badge(job.state)
            st.markdown(job.about.get("title") or job.kind)
            st.caption(best_value(job))
    if jobs:
        st.page_link("app_pages/jobs.py", label=f"All {len(jobs)} jobs", icon=":material/list_alt:")
