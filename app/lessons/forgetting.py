"""Lesson 4 on a page: the same platforms learned without and with protection."""

from __future__ import annotations

import streamlit as st

from app.chart import chart
from app.lessons.ask import made_by, questions
from tcl.lessons import forgetting
from tcl.views import continual

ABOUT = {
    "unprotected": "One network goes on learning; nothing holds what it knew.",
    "protected": "The first platform's network is closed; later ones add small parts.",
}


@st.cache_resource(show_spinner=False)
def _runs(stamp: int) -> dict[str, continual.KnowledgeBaseFiles]:
    return forgetting.load()


def show() -> None:
    runs = _runs((forgetting.DATA / "protected" / continual.CARD).stat().st_mtime_ns)
    names = runs["unprotected"].names
    st.write(
        f"A model learns {len(names)} platforms one after the other: {', '.join(names)} (instruction sets of one chip). Read a heatmap "
        "row by row: after each platform, how well does it choose on every platform learned so far? **Read down a column to see "
        "forgetting.** The score is *top-1*: the latency of the fastest program / that of the one that the model puts first; 1 is perfect."
    )
    for column, (name, files) in zip(st.columns(2, gap="large"), runs.items(), strict=True):
        with column:
            st.markdown(f"**{name.capitalize()}**: {ABOUT[name]}")
            chart(continual.r_figure(files.names, forgetting.matrix(files)), key=f"forgetting-r-{name}", height=230, alt=f"R, {name}")
            st.caption(f"Earlier platforms changed by {forgetting.change(files):+.3f} top-1 on average")
    st.markdown("**Behind the average**: every operator, and what changed since its platform was learned (orange: forgotten)")
    which = st.segmented_control("Run", list(runs), default="unprotected", key="forgetting-run", label_visibility="collapsed")
    files = runs[which or "unprotected"]
    height = 110 + 44 * len(files.names)
    chart(continual.slices_figure(files.history), key="forgetting-slices", height=height, alt="Top-1 by platform and operator")
    questions(forgetting.questions(runs), "forgetting")
    made_by(*(forgetting.command(name) for name in runs))
