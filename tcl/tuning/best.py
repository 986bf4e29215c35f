"""What a tuning ends with: each task's fastest program whose output is right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tcl.programs.types import Measurement, Task
from tcl.tuning import events
from tcl.tuning import journal as sources
from tcl.tuning.check import Check, check
from tcl.tuning.journal import Trial
from tcl.tuning.measure import Measurer

if TYPE_CHECKING:
    from tcl.tuning.tune import Run

FINALISTS, SHARE = 5, 0.03
"""At least so many of the fastest programs, or this share of a task's trials, are measured once more at the end: the fastest of many
noisy latencies is partly luck."""
FINAL_REPEATS = 25
"""Repeats of each, in turns. On a busy host the medians of 15 repeats differed by 3 %, those of 45 by 1.5 %, those of 5 by 5 to 7 %."""


def best_trial(run: Run, task: Task) -> tuple[Trial | None, Check | None]:
    """The task's fastest program whose output is right, after measuring the fastest few once more; a wrong one is noted in
    the dataset (`wrong_output`) and the next is taken. What could not be checked is neither the best nor noted as wrong."""
    unknown = 0
    for trial in _measure_finalists(run, task):
        here = isinstance(run.measurer, Measurer) and run.platform.kind == "cpu"  # where PyTorch's comparison runs the program
        spec = run.subject.operator if here else ""
        with run.timed("check"):
            verdict = check(run.measurer, run.platform, task, trial.program, spec)
        if verdict.correct:
            events.best(run, task, trial)
            return trial, verdict
        if not verdict.known:  # a stalled machine, not a wrong program: another run may tell
            unknown += 1
            if unknown == FINALISTS:
                break
            continue
        detail = f"off by {verdict.unscheduled:.3g} from the unscheduled task, {verdict.pytorch} from PyTorch. {verdict.detail}"
        wrong = Measurement.now(
            program=trial.program.id, task=task.id, platform=run.platform.name, error="wrong_output", detail=detail[:300],
            source=sources.CHECK,
        )  # fmt: skip
        run.journal.add([trial.program], [wrong])
    return None, None


def _measure_finalists(run: Run, task: Task) -> list[Trial]:
    """The task's programs, fastest first, after measuring the fastest few once more; the others come after those, for what was
    measured once is faster by luck."""
    ranked = run.journal.ranked(task)
    programs = [t.program for t in ranked[: max(FINALISTS, round(SHARE * len(ranked)))]]
    if len(programs) > 1:
        run.journal.add(programs, run.measurer.measure(run.platform, task, programs, source=sources.FINAL, repeats=FINAL_REPEATS))
    finalists = {p.id for p in programs}
    return sorted(run.journal.ranked(task), key=lambda t: t.program.id not in finalists)
