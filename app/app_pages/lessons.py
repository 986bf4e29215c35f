"""Lessons: five short ones, on real measurements, without a GPU or a compiler."""

from __future__ import annotations

from importlib import import_module

import streamlit as st

from app.links import mind_the_address
from app.shared import show_error
from tcl.errors import UserError
from tcl.lessons import LESSONS

KEY = "lesson"  # in the address


def go(name: str) -> None:
    st.session_state[KEY] = name


names = list(LESSONS)
st.session_state.setdefault(KEY, mind_the_address(KEY, names, "lesson") or names[0])
with st.container(horizontal=True, vertical_alignment="center", gap="small"):
    chosen = st.segmented_control(
        "Lesson", names, key=KEY, label_visibility="collapsed",
        format_func=lambda name: f"{names.index(name) + 1}. {LESSONS[name].title}",
    )  # fmt: skip
    st.space("stretch")
    st.caption(f"{sum(lesson.minutes for lesson in LESSONS.values())} minutes in all", width="content")
name = chosen or names[0]
st.query_params[KEY] = name  # a link opens this lesson
lesson = LESSONS[name]
st.subheader(lesson.question, anchor=False)
try:
    import_module(f"app.lessons.{name}").show()
except (OSError, UserError) as problem:
    show_error(problem if isinstance(problem, UserError) else UserError(f"The lesson's data cannot be read: {problem}."))
with st.container(horizontal=True, vertical_alignment="center", gap="small"):
    number = names.index(name)
    if number > 0:
        st.button(f"Before: {LESSONS[names[number - 1]].title}", icon=":material/arrow_back:", on_click=go, args=(names[number - 1],))
    if number + 1 < len(names):
        st.button(f"Next: {LESSONS[names[number + 1]].title}", icon=":material/arrow_forward:", on_click=go, args=(names[number + 1],))
    st.space("stretch")
    st.caption(f"The same as a notebook: notebooks/{lesson.notebook}", width="content")
