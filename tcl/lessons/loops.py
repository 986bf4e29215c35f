"""Lesson 1: one matrix product, scheduled one primitive at a time, measured after each (`tcl bench steps`)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from tcl.lessons import DATA
from tcl.lessons.question import Question, how_much, which
from tcl.views.lessons import base_of
from tcl.views.palette import latency_text

COMMAND = ("bench", "steps", "--out", "assets/lessons/matmul_steps.json")
"""What measures it again, after `tcl`."""


@dataclass(frozen=True)
class Steps:
    """rows: a step each (`tcl.bench.steps.run`, with its text, primitives and script), and gain: how many times faster than the step it
    builds on (below 1: slower). disturbed: share of the measuring turns beside which other work was noticed."""

    rows: pd.DataFrame
    subject: str
    platform: str
    flops: float
    disturbed: float
    machine: dict[str, Any]

    @property
    def kept(self) -> pd.DataFrame:
        """Without the wrong turns."""
        return self.rows[~self.rows["wrong"]]


def load(path: Path = DATA / "matmul_steps.json") -> Steps:
    result = json.loads(path.read_text())
    rows = pd.DataFrame([row | more for row, more in zip(result["rows"], result["steps"], strict=True)])
    latency, wrong = rows["latency_s"], rows["wrong"].tolist()
    rows["gain"] = [latency[base_of(wrong, i)] / latency[i] if i else 1.0 for i in range(len(rows))]
    return Steps(rows, result["subject"], result["platform"], float(result["flops"]), float(result["disturbed"]), result["machine"])


def speed(steps: Steps, step: int) -> float:
    """GFLOP/s after a step."""
    return steps.flops / float(steps.rows["latency_s"].iloc[step]) / 1e9


def guess(steps: Steps, step: int) -> Question:
    """Faster or slower? Asked before a step is shown."""
    row = steps.rows.iloc[step]
    options = ("much faster (2 × or more)", "somewhat faster", "about the same", "slower")
    gain = float(row["gain"])
    answer = 0 if gain >= 2 else 1 if gain >= 1.05 else 2 if gain > 0.95 else 3
    change = f"{gain:.2f} × as fast" if answer != 3 else f"{1 / gain:.2f} × slower"
    before = float(row["latency_s"]) * gain
    why = f"{latency_text(before)} became {latency_text(row['latency_s'])}: {change}."
    return Question(f"What will **{row['name']}** do to the latency?", options, answer, why)


def wrong_turns(steps: Steps) -> pd.DataFrame:
    """One row a wrong turn: wrong, right (the move that was taken instead), cost (how many times slower it is than that)."""
    rows = steps.rows
    pairs = [(i, next(j for j in range(i, len(rows)) if not rows["wrong"].iloc[j])) for i in range(len(rows)) if rows["wrong"].iloc[i]]
    return pd.DataFrame(
        [(rows["name"][i], rows["name"][j], rows["latency_s"][i] / rows["latency_s"][j]) for i, j in pairs],
        columns=["wrong", "right", "cost"],
    )


def questions(steps: Steps) -> list[Question]:
    """Four, about all steps."""
    moves = steps.kept.iloc[1:].sort_values("gain", ascending=False)
    best, least = moves.iloc[0], moves.iloc[-1]
    some = moves.iloc[[0, 1, len(moves) // 2, len(moves) - 1]].sort_values("step")["name"].tolist()
    first, last = steps.rows.iloc[0], steps.kept.iloc[-1]
    whole = float(first["latency_s"] / last["latency_s"])
    told = ", ".join(f"{name} {gain:.2f} ×" for name, gain in zip(moves["name"], moves["gain"], strict=True))
    turns = wrong_turns(steps).sort_values("cost", ascending=False)
    bad = "; ".join(f"{r.wrong} {r.cost:.1f} × slower than {r.right}" for r in turns.itertuples())
    return [
        which(
            "Which of these steps made the product faster by the largest factor?", some, best["name"],
            f"Each step against the one before, wrong turns left out: {told}.",
        ),
        how_much(
            "How many times faster is the last program than the one as written?", whole, (10, 30, 100, 300),
            f"{latency_text(first['latency_s'])} became {latency_text(last['latency_s'])}: {whole:.0f} ×, that is "
            f"{speed(steps, int(first['step'])):.1f} and {speed(steps, int(last['step'])):.0f} GFLOP/s. Both compute the same numbers.",
        ),
        which(
            "Which one brought least, or even cost something?", some, least["name"],
            f"{least['name']}: {least['gain']:.2f} × as fast as before. A primitive is worth what the ones around it make of it: "
            "some only prepare the next one.",
        ),
        which(
            "Two moves tried the right primitive on the wrong loop. Which of them cost more?", sorted(turns["wrong"]),
            turns["wrong"].iloc[0], f"{bad}. The same primitive on another loop: the *decision* is what counts.",
        ),
    ]  # fmt: skip
