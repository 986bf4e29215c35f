"""A question on a page: a guess, and the answer when it is asked for."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from app.shared import reproduce
from tcl.lessons.question import Question


def ask(question: Question, key: str) -> None:
    """One question; the choice and whether the answer is shown belong to the session."""
    with st.container(border=True):
        guess = st.radio(question.text, question.options, index=None, key=f"guess-{key}")
        if not st.toggle("Show the answer", key=f"answer-{key}"):
            return
        if guess == question.right:
            st.success(f"Yes: {question.right}. {question.why}", icon=":material/check:")
        else:
            words = "The answer is" if guess is None else "Not quite:"
            st.info(f"{words} **{question.right}**. {question.why}", icon=":material/lightbulb:")


def questions(asked: Sequence[Question], key: str) -> None:
    """All questions of a lesson, two beside each other."""
    st.subheader("Questions", anchor=False)
    for start in range(0, len(asked), 2):
        for column, number in zip(st.columns(2, gap="medium"), range(start, min(start + 2, len(asked))), strict=False):
            with column:
                ask(asked[number], f"{key}-{number}")


def made_by(*commands: Sequence[str]) -> None:
    """The commands behind a lesson's data."""
    with st.expander("Where these figures come from", icon=":material/terminal:"):
        for command in commands:
            reproduce(*command)
