"""Train: choose data and models, start, watch them learn; compare trainings, see where each is wrong and what it reads."""

from __future__ import annotations

import re

import streamlit as st

from app.job_view import head
from app.links import linked_runs, remember
from app.shared import choose_dataset, reproduce
from app.train_runs import Run, all_runs, free_names
from app.train_view import (
    benchmarks_section,
    curves_section,
    errors_section,
    forget_opened,
    primitives_section,
    ranks_section,
    results_table,
)
from tcl.jobs.store import DONE, submit
from tcl.models.base import MODELS
from tcl.programs.dataset import Dataset
from tcl.programs.selection import list_selections
from tcl.sampling.registry import names as sampler_names
from tcl.workspace import workspace

COMPARED = 6  # runs compared to begin with, and at most so many trainings started at once
LOSSES = {"pairwise": "pairwise", "lambda_rank": "LambdaRank", "listnet": "ListNet", "mse": "mean squared error"}
SPLITS = {"task": "by task", "network": "by network", "within-task": "within each task"}
SECTIONS = {"Curves": ":material/show_chart:", "Ranks": ":material/scatter_plot:", "Errors": ":material/error_outline:",
            "Primitives": ":material/bar_chart:", "Benchmarks": ":material/leaderboard:"}  # fmt: skip


def setup(dataset: Dataset) -> list[tuple[str, list[str]]]:
    """The form; (name, command line without `tcl`) of each training it asks for."""
    models = st.multiselect("Models", list(MODELS), default=["mamba"], key="train-models", max_selections=COMPARED,
                            help="Each is a training of its own; they run side by side.")  # fmt: skip
    platforms = list(dataset.platforms())
    on = st.multiselect("Platforms", platforms, key="train-platforms", placeholder="all") if len(platforms) > 1 else []
    operators = sorted({t.operator for t in dataset.task_list()})
    of = st.multiselect("Operators", operators, key="train-operators", placeholder="all") if len(operators) > 1 else []
    splits = SPLITS | ({f"platform:{p}": f"platform {p} held out" for p in platforms} if len(platforms) > 1 else {})
    split = st.selectbox("Test on what it has not seen", list(splits), format_func=splits.get, key="train-split",
                         help="By task: no test task, nor a near-duplicate, is trained on.")  # fmt: skip
    sources = ["a share", *list_selections(dataset)]
    source = st.selectbox("Learn from", sources, key="train-source", help="A share of the programs, or a selection that a sampler made.",
                          format_func=lambda s: s if s == "a share" else f"selection {s}") if len(sources) > 1 else "a share"  # fmt: skip
    learn: list[str] = []
    if source != "a share":
        learn = ["--selection", source]
    else:
        percent = st.slider("Share of the programs that counts as measured", 1, 100, 100, format="%d %%", key="train-percent")
        if percent < 100:
            sampler = st.selectbox("Picked by", sampler_names(), index=sampler_names().index("random"), key="train-sampler")
            learn = ["--fraction", f"{percent / 100:g}", "--sampler", sampler]
    with st.expander("Loss, epochs, seed", icon=":material/tune:"):
        loss = st.selectbox(
            "Loss", list(LOSSES), format_func=LOSSES.get, key="train-loss", help="Of the networks; trees and random have none."
        )
        epochs = st.number_input("Epochs, at most", 1, 500, 20, key="train-epochs", help="Stops earlier when validation no longer rises.")
        seed = st.number_input("Seed", 0, 10**6, 0, key="train-seed", help="Of the split, the weights and the order of the programs.")
        most = st.number_input("Programs of each assignment, at most", 0, 10**6, 0, key="train-most", help="0: all.")
    prefix = st.text_input("Name", value=_plain(dataset.path.name), key="train-name", help="The model's folder: this and the model's name.")
    if not re.fullmatch(r"[A-Za-z0-9][\w.+-]{0,63}", prefix):
        st.warning("A name is letters, digits, '.', '_', '+' and '-'.")
        return []
    found = []
    for model, name in zip(models, free_names([f"{prefix}-{model}" for model in models]), strict=True):
        argv = ["train", str(dataset.path), "--model", model, "--split", split, "--seed", str(seed), *learn]
        if model not in ("xgb", "random"):
            argv += ["--loss", loss, "--epochs", str(epochs)]
        argv += [a for p in on for a in ("--platform", p)] + [a for o in of for a in ("--operator", o)]
        argv += ["--per-assignment", str(most)] if most else []
        found.append((name, [*argv, "--out", str(workspace() / "models" / name)]))
    return found


def start(asked: list[tuple[str, list[str]]]) -> None:
    """Submit the trainings and put them first among those that are compared."""
    (workspace() / "models").mkdir(exist_ok=True)
    for name, argv in asked:
        submit("train", [*argv, "--json"], f"Train {name}")
    st.session_state["train-compare"] = ([name for name, _ in asked] + st.session_state.get("train-compare", []))[: COMPARED * 2]


def go_on(run: Run) -> None:
    """Start a broken-off training again where its checkpoint is."""
    argv = [a for a in run.argv if a != "--resume"]
    submit("train", [*argv, "--resume"], f"Train {run.name}, continued")


def _plain(name: str) -> str:
    return re.sub(r"[^\w.+-]+", "-", name).strip("-.") or "model"


def linked(names: list[str]) -> list[str]:
    """The runs that the address names and that are here."""
    return linked_runs(st.query_params.get("runs", "").split(","), names, "trained model")


def choose_runs(runs: list[Run]) -> tuple[list[Run], Run | None]:
    """The runs to compare and the one that is pinned; both remembered in the link."""
    names = [run.name for run in runs]
    if "train-compare" not in st.session_state:
        st.session_state["train-compare"] = linked(names) or names[:COMPARED]
        st.session_state["train-baseline"] = st.query_params.get("baseline", "")
    st.session_state["train-compare"] = [n for n in st.session_state["train-compare"] if n in names]
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        chosen = st.multiselect("Runs", names, key="train-compare", placeholder="choose trainings to compare")
        if st.session_state.get("train-baseline") not in ["", *chosen]:
            st.session_state["train-baseline"] = ""
        pinned = st.selectbox(
            "Baseline", ["", *chosen], key="train-baseline", width=260, format_func=lambda n: n or "none pinned",
            help="The run that the others are compared with: differences to it are shown.",
        )  # fmt: skip
    st.query_params["runs"] = ",".join(chosen)
    remember("baseline", pinned)
    by_name = {run.name: run for run in runs}
    return [by_name[n] for n in chosen], by_name.get(pinned)


def empty() -> None:
    with st.container(border=True):
        st.subheader("No model trained yet", anchor=False)
        st.write(
            "A cost model learns from measured programs which schedules of a task are fast, so that a tuner measures only the promising "
            "ones. Press **Start training**: it learns on some of the tasks, stops when the validation tasks no longer get better, and is "
            "scored on tasks that it never saw."
        )
        st.caption("Models that `tcl train … --out workspace/models/NAME` makes in a terminal appear here as well.")


left, right = st.columns([1, 3], gap="large")
with left:
    st.subheader("Train", anchor=False)
    dataset = choose_dataset()
    if dataset is not None:
        stats = dataset.stats()
        able = stats["measurements"] > stats["failures"]
        asked = setup(dataset) if able else []
        if not able:
            word = "Every measurement in this dataset failed" if stats["measurements"] else "Nothing was measured in this dataset yet"
            st.info(f"{word}: there is nothing to learn from. `tcl collect` or the Data page adds some.", icon=":material/info:")
        several = f" ({len(asked)} models)" if len(asked) > 1 else ""
        st.button(f"Start training{several}", type="primary", icon=":material/play_arrow:", width="stretch", disabled=not asked,
                  on_click=start, args=(asked,))  # fmt: skip
        for _, argv in asked[:1]:
            reproduce(*argv)
        if len(asked) > 1:
            st.caption(f"… and the same for {', '.join(argv[3] for _, argv in asked[1:])}. They run side by side and share the processor.")

with right:
    runs = all_runs()
    if not runs:
        linked([])
        empty()
    chosen, baseline = choose_runs(runs) if runs else ([], None)
    alive = any(run.alive for run in chosen)

    def fresh() -> tuple[list[Run], Run | None]:
        """The chosen runs as they are now, and the pinned one among them."""
        now = [Run(run.name, run.folder, run.job) for run in chosen]
        return now, next((run for run in now if baseline is not None and run.name == baseline.name), None)

    @st.fragment(run_every=1.0 if alive else None)
    def state() -> None:
        """Progress and results, each second while a run is at work."""
        now, pinned = fresh()
        for run in now:
            if run.job is not None and run.state != DONE:

                def more(run: Run = run) -> None:
                    if run.can_continue:
                        st.button("Continue", icon=":material/play_arrow:", key=f"continue-{run.name}", on_click=go_on, args=(run,),
                                  help="Go on after its last finished epoch")  # fmt: skip

                head(run.job, "train", more)
        if now:
            results_table(now, pinned)
        if alive and not any(run.alive for run in now):
            st.rerun()  # the timers end with the last training

    state()
    section = st.segmented_control(
        "Section", list(SECTIONS), default="Curves", key="train-section", label_visibility="collapsed", on_change=forget_opened,
        format_func=lambda s: f"{SECTIONS[s]} {s}",
    ) or "Curves"  # fmt: skip

    @st.fragment(run_every=1.0 if alive and section == "Curves" else None)
    def drawn() -> None:
        now, pinned = fresh()
        if section == "Benchmarks":
            benchmarks_section()
        elif not now:
            st.caption("Choose runs above." if runs else "Nothing to draw yet.")
        elif section == "Curves":
            curves_section(now, pinned)
        elif section == "Ranks":
            ranks_section(now, pinned)
        elif section == "Errors":
            errors_section(now, pinned)
        else:
            primitives_section(now)

    drawn()
