"""The Tune page's benchmark: what `tcl bench tuning` found, wins and losses."""

from __future__ import annotations

import streamlit as st

from app.bench_results import bench_results, choose_result, reproduce_bench, show_goals
from app.chart import chart
from tcl.views import tuning_bench as views


def benchmark_section() -> None:
    """Sentences first, then latencies, time to the baseline's latency, and one subject's curves."""
    results = bench_results("tuning")
    if not results:
        with st.container(border=True):
            st.write(
                "The benchmark tunes ten operators and three networks with TVM's own search and with ours, from the same seeds, with the "
                "same trials, and times PyTorch and ONNX Runtime beside them. Nobody has run it here yet; this command does (many "
                "hours, nothing else running; it can be stopped and run again), and this section then shows its result:"
            )
            reproduce_bench({"bench": "tuning", "asked": {"trials": 500, "cells": "workspace/bench/tuning"}})
        return
    result = choose_result(results, "tuning-result")
    rows = result["rows"]
    if not rows:
        st.caption("The benchmark was stopped before its first operator was done.")
        reproduce_bench(result)
        return
    if result.get("caution"):
        st.warning(result["caution"], icon=":material/warning:")
    for sentence in views.verdict(rows):
        st.markdown(f"- {sentence}")
    table = views.latencies(rows)
    st.markdown("**Best latency, ms** (median over seeds; the fastest of a row is named)")
    st.caption("TVM: its own evolutionary search. Ours: in decision space. xgb: trees, on this run's measurements only. mlp (TenSet's "
               "kind of model) and kb (a knowledge base) learned before, from other tasks.")  # fmt: skip
    numbers = [c for c in table if c != "fastest"]
    st.dataframe(table.style.format("{:.4g}", subset=numbers, na_rep="–"), height="content", alt="Best latency by method")
    sooner = views.times_sooner(rows)
    if len(sooner):
        st.markdown("**Times sooner than the end of TVM's search at the latency it ended with** (median over seeds; 0: never got there)")
        st.caption(
            "An operator's programs are measured again in turns: a method is there when the program that it would have returned then is as "
            "fast, within 1 %. TVM's own column tells when it was there itself: the rest of its search changed nothing. A curve may rise: "
            "what looked faster during the search need not be."
        )
        st.dataframe(sooner.style.format("{:.2f}", na_rep="–"), height="content", alt="Times sooner at TVM's last latency, by method")
    subject = st.selectbox("Operator or network", list(table.index), key="tuning-bench-subject", width=360)
    chart(views.curves_figure(rows, subject), key=f"tuning-bench-{subject}", height=380, alt=f"Best latency of {subject} against seconds")
    about = result.get("machine", {})
    left = f" · {result['missing']} operators or networks with a seed not done" if result.get("missing") else ""
    processors = dict.fromkeys(r.get("processor") or about.get("processor", "") for r in rows)
    st.caption(f"{len(rows):,} runs{left} · {'; '.join(processors)}, {about.get('cores', '')} cores · {about.get('date', '')}")
    reproduce_bench(result)
    show_goals(result)
