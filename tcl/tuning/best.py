"""What a tuning ends with: each task's fastest program whose output is right."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tcl.programs.types import Measurement, Task
from tcl.tuning import events
from tcl.tuning import journal as sources
from tcl.tuning.check import Check, check
from tcl.tuning.journal import Trial
from tcl.tuning.measure import Measurer

if TYPE_CHECKING:
    from tcl.tuning.tune import Run

FINALISTS = 5
"""Fastest programs measured once more at the end, in turns: the fastest of many noisy latencies is partly luck."""
FINAL_TURNS = 3
"""Turns that a program must have had to be the best."""


def best_trial(run: Run, task: Task) -> tuple[Trial | None, Check | None]:
    """The task's fastest program whose output is right, after measuring the fastest few once more; a wrong one is noted in
    the dataset (`wrong_output`) and the next is taken. What could not be checked is neither the best nor noted as wrong."""
    if run.subject.operator:
        _measure_finalists(run, task)
    unknown = 0
    for trial in run.journal.ranked(task):
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


def _measure_finalists(run: Run, task: Task) -> None:
    """Measure the fastest few in turns until the fastest has had `FINAL_TURNS`; one that drops back makes room for the next."""
    turns: Counter[int] = Counter()
    for _ in range(2 * FINAL_TURNS):
        programs = [t.program for t in run.journal.ranked(task)[:FINALISTS]]
        if len(programs) < 2 or turns[programs[0].id] >= FINAL_TURNS:
            return
        run.journal.add(programs, run.measurer.measure(run.platform, task, programs, source=sources.FINAL))
        turns.update(p.id for p in programs)
