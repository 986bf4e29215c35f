"""What a tuning ends with: each task's fastest program whose output is right."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tcl.programs.types import Measurement, Task
from tcl.tuning import events
from tcl.tuning import journal as sources
from tcl.tuning.check import Check, check
from tcl.tuning.journal import Trial
from tcl.tuning.measure import Measurer
from tcl.tuning.pace import latencies

if TYPE_CHECKING:
    from tcl.tuning.tune import Run

SHARE, LAST = 0.03, 5
"""This share of a task's programs, the fastest, are measured once more at the end, and the fastest few of them yet again: the fastest of
many noisy latencies is partly luck."""
REPEATS = (15, 45)
"""Of each of both rounds, in turns. On a busy host medians of 15 differ by 3 %, those of 45 by 1.5 %, and those of 5 by 5 to 7 %."""


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
            if unknown == LAST:
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
    order = [t.program for t in run.journal.ranked(task)]
    many = round(SHARE * len(order))
    rounds = [(LAST, REPEATS[1])] if many <= LAST else [(many, REPEATS[0]), (LAST, REPEATS[1])]
    for count, repeats in rounds if len(order) > 1 else []:
        some = order[:count]
        measured = run.measurer.measure(run.platform, task, some, source=sources.FINAL, repeats=repeats)
        run.journal.add(some, measured)
        fastest = np.argsort(latencies(measured), kind="stable")  # what failed comes last
        order = [some[i] for i in fastest] + order[count:]
    known = {t.program.id: t for t in run.journal.ranked(task)}
    return [known[p.id] for p in order if p.id in known]
