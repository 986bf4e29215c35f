"""Tune: pick an operator or a network, start, watch its latency fall."""

from __future__ import annotations

import re
from pathlib import Path

import streamlit as st

from app.job_view import head, tuning_view
from app.shared import reproduce
from tcl.jobs.store import ALIVE, Job, all_jobs, jobs_folder, submit
from tcl.tuning.targets import available_profiles, this_machine
from tcl.workspace import workspace

EXAMPLES = {
    "matmul": "matmul:256,256,256",
    "dense": "dense:128,512,512",
    "batch_matmul": "batch_matmul:12,128,128,64",
    "conv2d": "conv2d:1,64,56,56,64,3,3,1,1",
    "depthwise": "depthwise:1,96,56,56,3,3,1,1",
    "softmax": "softmax:512,512",
    "layer_norm": "layer_norm:128,768",
    "gelu": "gelu:128,3072",
    "max_pool": "max_pool:1,64,112,112,3,2,1",
}
PARAMETERS = {
    "matmul": "M,N,K",
    "dense": "M,N,K",
    "batch_matmul": "B,M,N,K",
    "conv2d": "N,C,H,W,F,KH,KW,stride,pad",
    "depthwise": "N,C,H,W,KH,KW,stride,pad",
    "softmax": "M,N",
    "layer_norm": "M,N",
    "gelu": "M,N",
    "max_pool": "N,C,H,W,K,stride,pad",
}
NETWORKS = ("resnet18", "mobilenet_v2", "bert_tiny", "resnet50", "bert_base")


def models() -> list[str]:
    """Cost models to choose from: TVM's, none, and those trained in the workspace."""
    found = sorted(str(p.parent) for p in (workspace() / "models").glob("*/model.json"))
    return ["xgb", "random", *found]


def fill_example() -> None:
    st.session_state["operator_sizes"] = EXAMPLES[st.session_state["operator"]].partition(":")[2]


def setup() -> list[str] | None:
    """The form; returns the command line (without `tcl`), or None while something is missing."""
    kind = st.segmented_control("What", ["Operator", "Network"], default="Operator", key="what", bind="query-params")
    if kind == "Network":
        subject = st.selectbox("Network", NETWORKS, key="network", bind="query-params")
    else:
        operator = st.selectbox("Operator", list(EXAMPLES), key="operator", on_change=fill_example)
        st.session_state.setdefault("operator_sizes", EXAMPLES[operator].partition(":")[2])
        sizes = st.text_input(f"Sizes: {PARAMETERS[operator]}", key="operator_sizes").replace(" ", "")
        wanted = PARAMETERS[operator].count(",") + 1
        if not re.fullmatch(rf"\d+(,\d+){{{wanted - 1}}}", sizes):
            st.warning(f"{wanted} whole numbers separated by commas are needed, like {EXAMPLES[operator].partition(':')[2]}.")
            return None
        subject = f"{operator}:{sizes}"
    trials = st.slider("Trials (programs measured)", 16, 1024, 64 if kind != "Network" else 256, step=16, key=f"trials-{kind}")
    model = st.selectbox(
        "Cost model", models(), key="model", format_func=lambda m: {"xgb": "xgb (TVM's)", "random": "none: random"}.get(m, Path(m).name)
    )
    profile = st.selectbox(
        "Target", available_profiles()[::-1], key="target", help="Native: all this processor has; others: older instruction sets"
    )
    return ["tune", subject, "--trials", str(trials), "--cost-model", model, "--target", profile]


def start(argv: list[str]) -> None:
    st.query_params["job"] = submit("tune", [*argv, "--json"], f"Tune {argv[1]}, {argv[3]} trials, {Path(argv[5]).name}")


def machine_line() -> None:
    machine = this_machine()
    cuda = list(Path("/dev").glob("nvidia[0-9]*"))
    gpu = f"{len(cuda)} NVIDIA GPU" if cuda else "no CUDA GPU"
    st.caption(f"This machine: {machine.model}, {machine.cores} cores, {machine.vector_bits}-bit vectors, {gpu}")


runs = [job for job in all_jobs() if job.kind == "tune" or (job.kind == "replay" and job.progress["latest"].get("measured"))]
left, right = st.columns([1, 3], gap="large")
with left:
    st.subheader("Tune", anchor=False)
    machine_line()
    argv = setup()
    st.button(
        "Start tuning", type="primary", icon=":material/play_arrow:", width="stretch", disabled=argv is None, on_click=start, args=(argv,)
    )
    if argv:
        reproduce(*argv)

with right:
    wanted = st.query_params.get("job", "")
    shown = next((j for j in runs if j.id == wanted), runs[0] if runs else None)
    if shown is None:
        with st.container(border=True):
            st.subheader("No tuning run yet", anchor=False)
            st.write(
                "A run generates thousands of schedules of the same computation, lets the cost model pick the promising ones, measures "
                "them on this machine, and keeps the fastest. Press **Start tuning**: the first result of a 256 × 256 × 256 matrix product "
                "comes after about half a minute."
            )
    else:
        if len(runs) > 1:
            labels = {j.id: f"{j.about.get('title') or j.id} · {j.state} · {j.id[-4:]}" for j in runs[:50]}
            ids = list(labels)
            choice = st.selectbox(
                "Run", ids, index=ids.index(shown.id) if shown.id in ids else 0, format_func=labels.get, label_visibility="collapsed"
            )
            if choice != shown.id:
                st.query_params["job"] = choice
                shown = Job(jobs_folder() / choice)

        @st.fragment(run_every=1.0 if shown.state in ALIVE else None)
        def live() -> None:
            was = st.session_state.get("tune_seen")
            state = shown.state
            head(shown, "tune")
            tuning_view(shown)
            st.session_state["tune_seen"] = (shown.id, state)
            if was and was[0] == shown.id and was[1] in ALIVE and state not in ALIVE:
                st.rerun()  # the timer ends with the job

        live()
        with st.expander("Log", icon=":material/notes:"):
            st.code(shown.log() or "Nothing yet.", language=None, height=260)
