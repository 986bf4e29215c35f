"""The tuner's memory on disk: every batch goes into a dataset as soon as it is measured, and a later run reads it back.

A measurement's `source` says how its program came to be measured: "tune:random", "tune:search" (both are trials),
"tune:final" (the best programs once more) or "tune:check" (a wrong output). Whatever else the dataset holds of the same tasks
on the same platform is used as knowledge and not counted as trials.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from tcl.programs.dataset import Dataset
from tcl.programs.types import Measurement, Platform, Program, Task
from tcl.programs.writer import Writer
from tcl.tuning.workload import FORMAT

RANDOM, SEARCH, FINAL, CHECK = "tune:random", "tune:search", "tune:final", "tune:check"
TRIALS = (RANDOM, SEARCH)


@dataclass
class Trial:
    """One program and everything measured of it on the platform."""

    program: Program
    costs: list[tuple[float, ...]] = field(default_factory=list)  # one tuple a successful measurement
    error: str = ""  # kind of the last failure
    wrong: bool = False  # its output was found wrong: it is never the best
    random: bool = False
    counted: bool = False  # a trial of the tuner

    @property
    def latency_s(self) -> float:
        """The median of all its costs; NaN where every measurement failed or the output is wrong."""
        return statistics.median(itertools.chain(*self.costs)) if self.costs and not self.wrong else math.nan

    def add(self, measurement: Measurement) -> None:
        if measurement.costs_s:
            self.costs.append(measurement.costs_s)
        elif measurement.error == "wrong_output":
            self.wrong, self.error = True, measurement.error
        else:
            self.error = measurement.error
        self.random |= measurement.source == RANDOM
        self.counted |= measurement.source in TRIALS


class Journal:
    """Trials by task, in memory and on disk."""

    def __init__(self, path: Path, platform: Platform, tasks: Sequence[Task]) -> None:
        self.dataset = Dataset.create(path, "Measured while tuning")
        self.platform, self.tasks = platform, list(tasks)
        with Writer(self.dataset) as writer:
            writer.add_platform(platform)
            writer.add_tasks(self.tasks)
        self.trials: dict[int, dict[int, Trial]] = {t.id: {} for t in self.tasks}
        self._read(self.dataset)

    def add(self, programs: Sequence[Program], measurements: Sequence[Measurement]) -> None:
        """Write a batch, whole or not at all, then remember it."""
        with Writer(self.dataset) as writer:
            writer.add_programs(programs)
            writer.add_measurements(measurements)
        for program, measurement in zip(programs, measurements, strict=True):
            self._trial(program).add(measurement)

    def warm_start(self, path: Path) -> int:
        """Copy what another dataset knows of the same tasks on the same platform; returns how many measurements were new."""
        other = Dataset.open(path)
        ids = [t.id for t in self.tasks]
        programs = other.table("programs", tasks=ids)
        rows = other.table("measurements", platforms=[self.platform.name], tasks=ids)
        sources = [s if s not in TRIALS else s.replace("tune", "warm-start") for s in rows["source"].to_pylist()]
        index = rows.schema.get_field_index("source")
        rows = rows.set_column(index, rows.schema.field(index), pa.array(sources, pa.string()).cast(rows.schema.field(index).type))
        with Writer(self.dataset) as writer:
            writer.add_programs(programs)
            added = writer.add_measurements(rows)
        self.trials = {t.id: {} for t in self.tasks}
        self._read(self.dataset)
        return added

    def count(self, task: Task | None = None) -> int:
        """Trials made so far, failures included."""
        groups = [self.trials[task.id]] if task else self.trials.values()
        return sum(t.counted for group in groups for t in group.values())

    def ranked(self, task: Task) -> list[Trial]:
        """The task's programs that ran and are not known to be wrong, fastest first."""
        return sorted((t for t in self.trials[task.id].values() if np.isfinite(t.latency_s)), key=lambda t: t.latency_s)

    def best_s(self, task: Task) -> float:
        """The task's lowest latency so far, seconds; NaN where there is none."""
        return min((t.latency_s for t in self.trials[task.id].values() if np.isfinite(t.latency_s)), default=math.nan)

    def median_s(self, task: Task, *, random_only: bool) -> float:
        """The median latency of the task's trials, or of those drawn at random; NaN where there is none."""
        found = [t.latency_s for t in self.trials[task.id].values() if t.counted and (t.random or not random_only)]
        found = [x for x in found if np.isfinite(x)]
        return statistics.median(found) if found else math.nan

    def failures(self) -> Counter[str]:
        """Trials that failed, by kind."""
        return Counter(t.error for group in self.trials.values() for t in group.values() if t.counted and not np.isfinite(t.latency_s))

    def _trial(self, program: Program) -> Trial:
        return self.trials[program.task].setdefault(program.id, Trial(program))

    def _read(self, dataset: Dataset) -> None:
        ids = [t.id for t in self.tasks if t.format == FORMAT]
        rows = dataset.measurements(platforms=[self.platform.name], tasks=ids).sort_values("measured_at", kind="stable")
        if rows.empty:
            return
        schedules = dataset.programs(tasks=ids).set_index("program")["schedule"]
        for row in rows.itertuples():
            program = Program(int(row.task), schedules[row.program])
            found = Measurement(
                program=program.id, task=program.task, platform=self.platform.name, costs_s=tuple(map(float, row.costs_s)),
                error=str(row.error), detail=row.detail, measured_at=row.measured_at, source=str(row.source),
            )  # fmt: skip
            self._trial(program).add(found)
