"""Figures and questions in a Jupyter notebook: live where plotly can draw, a picture elsewhere (`notebooks/execute.py` adds it)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Protocol

import plotly.graph_objects as go

PLOTLY = "application/vnd.plotly.v1+json"
INK = "#767676"
"""Text that can be read on a white page and on a black one."""


class Asked(Protocol):
    """A question of a lesson (`tcl.lessons.question.Question`)."""

    @property
    def text(self) -> str: ...
    @property
    def options(self) -> tuple[str, ...]: ...
    @property
    def right(self) -> str: ...
    @property
    def why(self) -> str: ...


def show(figure: go.Figure, height: int = 380, alt: str = "") -> None:
    """Display a figure of `tcl.views`, `height` pixels high; zoom, hover and legend work. alt: what it shows, in words."""
    from IPython.display import display

    shown = go.Figure(figure).update_layout(height=height, font={"color": INK, "size": 12}, dragmode="zoom")
    bundle = {PLOTLY: json.loads(shown.to_json()) | {"config": {"displaylogo": False}}, "text/plain": alt or "a figure"}
    display(bundle, raw=True)


def ask(questions: Iterable[Asked]) -> None:
    """Display questions; an answer unfolds when it is clicked."""
    from IPython.display import Markdown, display

    for number, question in enumerate(questions, start=1):
        options = "\n".join(f"- {option}" for option in question.options)
        answer = f"<details><summary>The answer</summary>\n\n**{question.right}**. {question.why}\n\n</details>"
        display(Markdown(f"**{number}. {question.text}**\n\n{options}\n\n{answer}"))
