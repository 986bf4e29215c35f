"""Lessons: what each is about, the data behind it, and questions whose answers are computed from that data. Light: no tvm, no torch.

The app (`app/lessons`) and the notebooks (`notebooks/`) tell the same five lessons from here, with figures of `tcl.views`. To add one: a
file here with `load` and `questions`, its name in `LESSONS`, a page part in `app/lessons`, a notebook.
"""

from __future__ import annotations

from dataclasses import dataclass

from tcl.workspace import ASSETS

DATA = ASSETS / "lessons"
"""What the lessons were measured on; its README.md names the commands."""
RECORDED = ASSETS / "recorded"
"""Jobs recorded for replay, one folder each."""


@dataclass(frozen=True)
class Lesson:
    """title and question: for people. minutes: about how long it takes. notebook: its file in `notebooks/`."""

    title: str
    question: str
    minutes: int
    notebook: str


LESSONS = {
    "loops": Lesson("A schedule and its loops", "What does a schedule do to a loop nest?", 2, "1_loops.ipynb"),
    "tenth": Lesson("A tenth of the measurements", "Why can measuring 10 % be enough, and when is it not?", 2, "2_tenth.ipynb"),
    "mistakes": Lesson("A model's mistakes", "How wrong is a cost model, and where?", 2, "3_mistakes.ipynb"),
    "forgetting": Lesson("Forgetting, seen", "What is lost when a model learns the next platform?", 2, "4_forgetting.ipynb"),
    "tuning": Lesson("Tune it yourself", "How does a tuner find a fast program?", 2, "5_tuning.ipynb"),
}
"""Name (in links and file names) -> lesson, in the order in which they are told."""
