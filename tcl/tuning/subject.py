"""What a person asks to tune: an operator written as text, a network by name, or an exported model by its path."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from pathlib import Path

from tcl.errors import UserError
from tcl.programs.types import Task
from tcl.tuning.model_source import check_file, is_file, name_of, tasks_of
from tcl.tuning.networks import NETWORKS
from tcl.tuning.operators import OPERATORS, forms, is_operator, operator_task


@dataclass(frozen=True)
class Subject:
    """`tasks` and how often the subject holds each (`weights`); `operator` is the text of a single operator, else ""."""

    name: str
    operator: str
    tasks: list[Task]
    weights: list[float]

    @property
    def slug(self) -> str:
        """A name for folders."""
        return re.sub(r"[^A-Za-z0-9_]+", "-", self.name).strip("-")


def check_name(text: str) -> None:
    """Raise the UserError that `subject` would raise for `text`, without importing TVM."""
    from tcl.tuning.operators import parse

    if is_operator(text):
        parse(text)
    elif text not in NETWORKS:
        if is_file(text):
            return check_file(text)
        if Path(text).suffix or "/" in text:
            raise UserError(
                f"{text} cannot be tuned: it is neither a .pt2 file of torch.export.save nor an .onnx file.",
                hint=f"Networks: {', '.join(NETWORKS)}.",
            )
        close = difflib.get_close_matches(text, [*NETWORKS, *OPERATORS], n=3, cutoff=0.5)
        hint = f"Did you mean {' or '.join(close)}?" if close else f"Networks: {', '.join(NETWORKS)}. Operators: {forms()}."
        raise UserError(f"{text!r} is neither a network nor an operator known here.", hint=hint)


def subject(text: str) -> Subject:
    """The subject that `text` names.

    Raises:
        UserError: neither a network nor a well-formed operator; the hint holds the closest names.
    """
    text = text.strip()
    check_name(text)
    if is_operator(text):
        return Subject(text, text, [operator_task(text)], [1.0])
    tasks, name = tasks_of(text), name_of(text)
    return Subject(text, "", tasks, [next((u.weight for u in t.networks if u.network == name), 1.0) for t in tasks])
