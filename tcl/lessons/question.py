"""A question of a lesson: choices, and an answer that was computed from the lesson's data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Question:
    """text and why: Markdown; why tells the figures behind the answer. answer: the right one's place among the options."""

    text: str
    options: tuple[str, ...]
    answer: int
    why: str

    def __post_init__(self) -> None:
        if not 0 <= self.answer < len(self.options) or len(set(self.options)) != len(self.options):
            raise ValueError(f"{self.text!r} needs different options and one of them as its answer")

    @property
    def right(self) -> str:
        return self.options[self.answer]


def which(text: str, options: Sequence[str], right: str, why: str) -> Question:
    """A question whose answer is one of some names."""
    return Question(text, tuple(options), list(options).index(right), why)


def how_much(text: str, value: float, limits: Sequence[float], why: str, form: str = "{:g}") -> Question:
    """A question whose answer is the interval that a number falls into: below the first limit, between two, or from the last on."""
    words = [form.format(limit) for limit in limits]
    options = [f"less than {words[0]}", *(f"{a} to {b}" for a, b in pairwise(words)), f"{words[-1]} or more"]
    return Question(text, tuple(options), sum(value >= limit for limit in limits), why)
