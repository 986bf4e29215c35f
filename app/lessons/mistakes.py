"""Lesson 3 on a page: where a cost model is wrong, and how much that matters."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from app.chart import chart
from app.lessons.ask import made_by, questions
from app.links import explore_query
from app.shared import dataset_name
from tcl.lessons import mistakes
from tcl.training import outcome
from tcl.views import training as figures
from tcl.views.palette import latency_text
from tcl.workspace import BUILT_IN


@st.cache_resource(show_spinner="Reading the model's predictions…")
def _models(stamp: int) -> dict[str, mistakes.Outcome]:
    return mistakes.both()


def show() -> None:
    models = _models((mistakes.DATA / mistakes.MODELS[-1] / outcome.SCORES).stat().st_mtime_ns)
    tasks = next(iter(models.values())).assignments
    st.write(
        "A cost model gives every program of a task a score; a tuner measures those on top. These two, boosted trees (xgb) and a "
        f"perceptron (mlp), learned from the same tasks and then ranked the programs of {len(tasks)} tasks they had never seen. **Look "
        "before you read the answers**: on the dotted line the model is right; far right and low, it praises a slow program."
    )
    left, right = st.columns(2, gap="large")
    with left:
        name = st.segmented_control("Model", list(models), default=mistakes.MODELS[0], key="mistakes-model") or mistakes.MODELS[0]
        found = models[name]
        table = found.assignments
        row = _choose(table)
        one = table.iloc[row]
        slower = f"{one['picked_s'] / one['best_s']:.2f} × the fastest" if pd.notna(one["picked_s"]) else "failed when it was measured"
        st.caption(
            f"Its choice is at measured rank **{one['picked_rank']}** of {one['programs']}: {latency_text(one['picked_s'])}, {slower} · "
            f"pairwise accuracy {one['pairwise']:.2f}"
        )
        chart(
            figures.rank_figure(found.programs(row)), key="mistakes-ranks", height=400,
            alt=f"Predicted against measured rank of {one['programs']} programs",
        )  # fmt: skip
        known = dataset_name(BUILT_IN)
        if known:
            st.page_link(
                "app_pages/explore.py", label="Its choice beside the fastest, in Explore", icon=":material/compare:",
                query_params=explore_query(known, [int(one["best_program"]), int(one["picked_program"])], str(one["platform"])),
            )  # fmt: skip
    with right:
        st.markdown("**By operator**, the worst on top: best latency / that of the model's choice")
        frame = figures.by_operator({n: m.assignments for n, m in models.items()}, "top1")
        colors = dict(zip(models, figures.palette.CATEGORIES, strict=False))
        height = figures.bars_height(len(frame), len(models))
        chart(figures.operator_figure(frame, "top1", colors), key="mistakes-operators", height=height, alt="top-1 by operator")
        names = {"pairwise": "pairwise accuracy", "top1_mean": "top-1, mean", "top5_mean": "top-5, mean"}
        scores = pd.DataFrame({n: {label: m.scores[key] for key, label in names.items()} for n, m in models.items()}).T
        st.dataframe(scores.style.format(precision=3), alt="Scores of both models")
    questions([*mistakes.questions(name, found), *mistakes.compared(models)], f"mistakes-{name}")
    made_by(*(mistakes.command(n) for n in models))


def _choose(table: pd.DataFrame) -> int:
    labels = [f"{r.name} · top-1 {r.top1:.2f}" for r in table.itertuples(index=False)]
    rows = range(len(labels))
    return st.selectbox("Task, the worst first", rows, format_func=labels.__getitem__, key="mistakes-task")
