"""The Tune page's form: what to tune and how, as a command line."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import streamlit as st

from app.shared import dataset_folders, picker_name, show_error
from app.train_runs import option
from tcl.errors import UserError
from tcl.jobs.store import submit
from tcl.jobs.tuning_run import title_of
from tcl.tuning.networks import NETWORKS
from tcl.tuning.operators import OPERATORS
from tcl.tuning.subject import check_name
from tcl.tuning.targets import available_profiles, this_machine
from tcl.workspace import workspace

EXAMPLES = {
    "matmul": "256,256,256", "dense": "128,512,512", "batch_matmul": "12,128,128,64", "conv2d": "1,64,56,56,64,3,3,1,1",
    "depthwise": "1,96,56,56,3,3,1,1", "max_pool": "1,64,112,112,3,2,1", "avg_pool": "1,64,56,56,2,2,0", "softmax": "512,512",
    "layer_norm": "128,768", "sum": "512,1024", "relu": "512,1024", "gelu": "128,3072", "add": "512,1024", "transpose": "512,512",
}  # fmt: skip
"""Operator -> sizes to begin with."""
STRATEGIES = {"decisions": "in decision space (ours)", "tvm": "TVM's evolutionary search", "random": "none: every program is random"}
MODELS = {"xgb": "xgb: trees, on this run's measurements", "random": "none: random"}


def setup() -> list[str] | None:
    """The form; returns the command line (without `tcl`), or None while something is missing."""
    kind = st.segmented_control("What", ["Operator", "Network", "File"], default="Operator", key="what", bind="query-params")
    if kind == "Network":
        subject = st.selectbox("Network", list(NETWORKS), key="network", bind="query-params")
    elif kind == "File":
        subject = st.text_input("Path on this machine", key="model_file", placeholder="mine.pt2 or mine.onnx", bind="query-params",
                                help="A .pt2 file that torch.export.save wrote, or an .onnx file").strip()  # fmt: skip
        if not subject:
            st.caption("A model that `torch.export.save` or an ONNX exporter wrote. It is cut into tasks, tuned and compiled as a whole.")
            return None
    else:
        operator = st.selectbox("Operator", list(EXAMPLES), key="operator", bind="query-params")
        what = f"Sizes: {','.join(OPERATORS[operator].parameters)}"
        sizes = st.text_input(what, EXAMPLES[operator], key=f"sizes-{operator}", bind="query-params").replace(" ", "")
        subject = f"{operator}:{sizes}"
    try:
        check_name(subject)
    except UserError as error:
        show_error(error)
        return None
    whole = kind in ("Network", "File")
    trials = st.slider("Trials (programs measured)", 16, 1024, 256 if whole else 64, step=16,
                       key=f"trials-{'network' if whole else 'one'}", bind="query-params")  # fmt: skip
    strategy = st.selectbox("Search", list(STRATEGIES), key="strategy", format_func=STRATEGIES.get, bind="query-params")
    argv = ["tune", subject, "--trials", str(trials), "--strategy", strategy]
    if strategy == "random":
        model = "random"
    else:
        model = st.selectbox("Cost model", models(), key="model", format_func=lambda m: MODELS.get(m, Path(m).name),
                             bind="query-params")  # fmt: skip
    argv += ["--cost-model", model]
    profile = st.selectbox(
        "Target", available_profiles()[::-1], key="target", bind="query-params",
        help="Native: all this processor has; others: older instruction sets",
    )  # fmt: skip
    argv += ["--target", profile]
    with st.expander("Earlier records, seed", icon=":material/tune:"):
        known = {picker_name(p): p for p in dataset_folders()}
        earlier = st.selectbox("Warm start", ["", *known], key="warm-start", format_func=lambda n: n or "from nothing",
                               help="A dataset whose measurements of the same tasks on the same platform are used as well")  # fmt: skip
        argv += ["--warm-start", str(known[earlier])] if earlier else []
        seed = st.number_input("Seed", 0, 10**6, 0, key="tune-seed", bind="query-params", help="Of every random choice")
        argv += ["--seed", str(seed)] if seed else []
    return argv


def models() -> list[str]:
    """Cost models to choose from: TVM's, none, and those trained in the workspace."""
    found = sorted(str(p.parent) for p in (workspace() / "models").glob("*/model.json"))
    return [*MODELS, *found]


def start(argv: list[str]) -> str:
    """Submit the run, with a folder of its own; returns its job's id. (`tcl tune` goes on in the folder of an equal earlier run.)"""
    title = title_of(argv[1], option(argv, "--strategy"), option(argv, "--cost-model"), option(argv, "--trials"))
    root = workspace() / "tuning"
    name = re.sub(r"[^A-Za-z0-9_.]+", "-", f"{title.rpartition(',')[0]}-{option(argv, '--target')}")
    folder = next(f for i in itertools.count(1) if not (f := root / (name if i == 1 else f"{name}-{i}")).exists())
    folder.mkdir(parents=True)
    return submit("tune", [*argv, "--out", str(folder), "--json"], title)


def machine_line() -> None:
    machine = this_machine()
    cuda = list(Path("/dev").glob("nvidia[0-9]*"))
    gpu = f"{len(cuda)} NVIDIA GPU" if cuda else "no CUDA GPU"
    st.caption(f"This machine: {machine.model}, {machine.cores} cores, {machine.vector_bits}-bit vectors, {gpu}")
