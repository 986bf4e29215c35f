"""Lesson 4: three platforms learned one after the other, once unprotected and once protected, from the files of two real runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tcl.errors import UserError
from tcl.lessons import DATA
from tcl.lessons.question import Question, how_much, which
from tcl.views import continual
from tcl.views.continual import KnowledgeBaseFiles

RUNS = {"unprotected": "none", "protected": "freeze"}
"""Folder -> what `tcl distill --protect` was given."""


def command(run: str) -> tuple[str, ...]:
    """What makes a run again, after `tcl`."""
    return (
        "distill", "assets/builtin", "--order", "xeon-2c-sse42,xeon-2c-avx2,xeon-2c-avx512", "--per-task", "60", "--fraction", "0.2",
        "--epochs", "12", "--protect", RUNS[run], "--out", f"assets/lessons/{run}",
    )  # fmt: skip


def load(folder: Path = DATA) -> dict[str, KnowledgeBaseFiles]:
    """Both runs by name; their weights are not kept."""
    found = {name: continual.read(folder / name) for name in RUNS}
    missing = [name for name, files in found.items() if files is None]
    if missing:
        raise UserError(f"{folder} lacks the run {missing[0]}.", hint=f"Make it: tcl {' '.join(command(missing[0]))}")
    return {name: files for name, files in found.items() if files is not None}


def matrix(files: KnowledgeBaseFiles) -> np.ndarray:
    """R, float (T, T): top-1 on platform j after platform i was learned."""
    return continual.matrix(files.names, [h.get("row", {}) for h in files.history])


def change(files: KnowledgeBaseFiles) -> float:
    """Mean change of the earlier platforms' top-1 from when each was learned to now (negative: lost)."""
    r = matrix(files)
    return float(np.nanmean(r[-1, :-1] - np.diag(r)[:-1]))


def questions(runs: dict[str, KnowledgeBaseFiles]) -> list[Question]:
    """Four: the average, the worst operator behind it, what protection costs, and what was never learned."""
    free, kept = runs["unprotected"], runs["protected"]
    lost = continual.drops(free.history, "by_operator")
    worst = lost.iloc[0]
    names = list(
        dict.fromkeys(f"{r.slice} on {r.platform}" for r in lost.iloc[[0, len(lost) // 3, 2 * len(lost) // 3, len(lost) - 1]].itertuples())
    )
    first = free.names[0]
    r_free, r_kept = matrix(free), matrix(kept)
    last = r_kept[-1, -1] - r_free[-1, -1]
    steps = ("the unprotected one", "the protected one", "no clear difference (less than 0.01)")
    who = 2 if abs(last) < 0.01 else 1 if last > 0 else 0
    average = change(free)
    words = ("it fell by 0.05 or more", "it fell by less than 0.05", "it hardly changed (less than 0.005)", "it rose")
    place = 2 if abs(average) < 0.005 else 3 if average > 0 else 0 if average <= -0.05 else 1
    moved = continual.drops(free.history, "by_task")
    changed = int((moved["program_then"] != moved["program_now"]).sum())
    return [
        Question(
            "Unprotected: what happened to the average top-1 of the earlier platforms while later ones were learned?", words, place,
            f"{average:+.3f} on average, from {np.nanmean(np.diag(r_free)[:-1]):.3f} when each was learned to "
            f"{np.nanmean(r_free[-1, :-1]):.3f} at the end.",
        ),
        which(
            "Which operator on which platform lost most behind that average?", names, f"{worst['slice']} on {worst['platform']}",
            f"It fell by {worst['drop']:.3f}, from {worst['best']:.3f} to {worst['last']:.3f}. An average hides this.",
        ),
        how_much(
            f"Of the {len(moved)} test tasks of earlier platforms, for how many does the unprotected model now choose another program than "
            "when it was at its best?", 100 * changed / max(len(moved), 1), (10, 30, 60, 90),
            f"{changed} of {len(moved)}: even where the score stayed, the knowledge moved.", "{:g} %",
        ),
        Question(
            f"Which of the two ends with the better score on the last platform, {free.names[-1]}?", steps, who,
            f"Protected {r_kept[-1, -1]:.3f}, unprotected {r_free[-1, -1]:.3f}; on the first platform, {first}, they end with "
            f"{r_kept[-1, 0]:.3f} and {r_free[-1, 0]:.3f}. Protection changed the earlier platforms by {change(kept):+.3f} on average.",
        ),
    ]  # fmt: skip
