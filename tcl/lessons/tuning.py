"""Lesson 5: a recorded tuning run, played again, and what it tells about a search."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tcl.errors import UserError
from tcl.jobs.store import Job, read_events
from tcl.lessons import RECORDED
from tcl.lessons.question import Question, how_much, which
from tcl.views import tuning
from tcl.views.palette import latency_text

FOLDER = RECORDED / "tune-matmul-256"
COMMAND = ("tune", "matmul:256,256,256", "--trials", "64", "--cost-model", "xgb")
"""What was recorded, after `tcl`."""


@dataclass(frozen=True)
class Run:
    """events: of the job (`tcl.tuning.tune`). frame: `tcl.views.tuning.measured`. result: the command's JSON object."""

    events: list[dict[str, Any]]
    frame: pd.DataFrame
    result: dict[str, Any]

    @property
    def references(self) -> dict[str, float]:
        """What the run is compared with, seconds."""
        names = {"untuned": "untuned_latency_s", "PyTorch": "pytorch_latency_s"}
        return {name: self.result[key] for name, key in names.items() if self.result.get(key)}


def load(folder: Path = FOLDER) -> Run:
    events = read_events(folder / "events.jsonl")
    if not events:
        raise UserError(f"{folder} holds no recording.", hint="Any job's folder does, once it has begun.")
    return Run(events, tuning.measured(events), Job(folder).result or {})


def questions(run: Run) -> list[Question]:
    """Four: when the best came, how rare good programs are, whether the model helped, and how far it got."""
    frame, result = run.frame, run.result
    fine = frame[frame["latency_s"].notna()]
    best = float(result["best_latency_s"])
    at = int(fine.loc[fine["latency_s"].idxmin(), "trial"])
    n = len(frame)
    drawn, chosen = fine[fine["predicted"].isna()], fine[fine["predicted"].notna()]
    a, b = float(drawn["latency_s"].median()), float(chosen["latency_s"].median())
    ratio = a / b
    helped = ("they are slower", "no clear difference (less than 10 %)", "1.1 to 3 × faster", "3 × faster or more")
    place = 0 if ratio < 1 / 1.1 else 1 if ratio < 1.1 else 2 if ratio < 3 else 3
    near = float((fine["latency_s"] <= 1.1 * float(fine["latency_s"].min())).mean())
    untuned = float(result["untuned_latency_s"])
    quarters = tuple(
        f"among the first {round(n * q)}" if q == 0.25 else f"{round(n * (q - 0.25)) + 1} to {round(n * q)}" for q in (0.25, 0.5, 0.75, 1.0)
    )
    found = min(int(np.ceil(4 * at / n)) - 1, 3)
    torch = result.get("pytorch_latency_s")
    beside = f" PyTorch takes {latency_text(torch)} on the same threads." if torch else ""
    return [
        which(f"When was the fastest of the {n} programs measured?", quarters, quarters[found],
              f"It was number {at}: {latency_text(float(fine['latency_s'].min()))}."),
        Question(
            "The first programs are random; later ones the model chose. How does the median of its choices compare?", helped, place,
            f"Random: {latency_text(a)} (median of {len(drawn)}, as a few of the later ones are, too); chosen: {latency_text(b)} (of "
            f"{len(chosen)}): {ratio:.2f} ×. The model had seen nothing but the programs of this very run.",
        ),
        how_much(
            "How many of the measured programs are within 10 % of the fastest?", 100 * near, (5, 15, 40),
            f"{100 * near:.0f} %, {round(near * len(fine))} of {len(fine)}. Among random programs good ones are rare: that is why it "
            "pays to learn.", "{:g} %",
        ),
        how_much(
            "How many times faster than the untuned program is the result?", untuned / best, (10, 50, 100, 300),
            f"{latency_text(untuned)} against {latency_text(best)}: {untuned / best:.0f} ×.{beside}",
        ),
    ]  # fmt: skip
