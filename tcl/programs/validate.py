"""Checking a dataset: everything that a reader relies on, in bounded memory, told in plain sentences."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tcl.programs.dataset import Dataset
from tcl.programs.id_index import IdIndex
from tcl.programs.schema import TABLES
from tcl.programs.types import FAILURE_KINDS, format_id, measurement_id, program_id
from tcl.progress import Progress

EXAMPLES = 3
"""Ids shown for each kind of problem; all are counted."""


def validate(dataset: Dataset, progress: Progress | None = None) -> list[str]:
    """The problems of a dataset; empty where it is sound.

    Checks that part files are there, readable and of the promised length; that each id is the hash of its content and no id
    occurs twice; that programs belong to tasks and measurements to programs and platforms; that costs are positive, medians are
    medians, and every failure has a known kind and no cost; that the running totals are those of the rows.
    """
    progress = progress or Progress()
    check = _Check(dataset, progress)
    try:
        dataset.platforms()
    except Exception as error:
        return [f"platforms.json cannot be read: {error}."]
    check.parts()
    if not check.problems:  # rows of unreadable parts would only repeat it
        check.tasks()
        check.programs()
        check.measurements()
        check.totals()
    return check.sentences()


class _Check:
    def __init__(self, dataset: Dataset, progress: Progress) -> None:
        self.dataset, self.progress = dataset, progress
        self.problems: Counter[str] = Counter()
        self.examples: dict[str, list[str]] = {}
        self.operator: dict[int, str] = {}
        self.counts: dict[str, Any] = {"programs": 0, "by_platform": {}, "by_operator": {}}
        self.programs_seen = IdIndex()
        self.done = 0

    def note(self, problem: str, example: str = "", n: int = 1) -> None:
        self.problems[problem] += n
        shown = self.examples.setdefault(problem, [])
        if example and len(shown) < EXAMPLES:
            shown.append(example)

    def note_rows(self, problem: str, bad: np.ndarray, ids: np.ndarray) -> None:
        if bad.any():
            for i in np.flatnonzero(bad)[:EXAMPLES]:
                self.note(problem, format_id(int(ids[i])), 0)
            self.problems[problem] += int(bad.sum())

    def sentences(self) -> list[str]:
        return [
            f"{problem} ({n:,} time{'s' if n > 1 else ''}{': ' if self.examples.get(problem) else ''}"
            f"{', '.join(self.examples.get(problem, []))}{', …' if n > EXAMPLES else ''})."
            for problem, n in self.problems.items()
        ]

    def parts(self) -> None:
        for name, parts in self.dataset.manifest["tables"].items():
            if name not in TABLES:
                self.note("The manifest names an unknown table", name)
                continue
            for part in parts:
                path = self.dataset.path / part["file"]
                try:
                    found = pq.ParquetFile(path)
                    columns_match = found.schema_arrow.names == TABLES[name].names
                except (OSError, pa.ArrowInvalid) as error:
                    kind = "is missing" if isinstance(error, FileNotFoundError) else "cannot be read"
                    self.note(f"A part file {kind}", part["file"])
                    continue
                if not columns_match:
                    self.note("A part file has other columns than its table", part["file"])
                elif found.metadata.num_rows != part["rows"]:
                    self.note("A part file has another number of rows than the manifest says", part["file"])

    def tasks(self) -> None:
        rows = self.dataset.table("tasks", ["task", "operator"])
        stored = set(rows["task"].to_pylist())
        for task in self.dataset.task_list():
            self.operator[task.id] = task.operator
            if task.id not in stored:
                self.note("A task's id is not the hash of its workload", task.name)
            if any(e <= 0 for e in task.extents) or not (math.isfinite(task.flops) and task.flops >= 0 and task.bytes >= 0):
                self.note("A task has an extent, FLOPs or bytes that cannot be", task.name)

    def programs(self) -> None:
        for batch in self._batches("programs"):
            ids = batch["program"].to_numpy()
            tasks = batch["task"].to_pylist()
            texts = batch["schedule"].to_pylist()
            hashed = np.array([program_id(t, s) for t, s in zip(tasks, texts, strict=True)], dtype=np.int64)
            self.note_rows("A program's id is not the hash of its task and schedule", hashed != ids, ids)
            unknown = np.array([t not in self.operator for t in tasks], dtype=bool)
            self.note_rows("A program belongs to a task that is not there", unknown, ids)
            self._once("A program is stored twice", ids, self.programs_seen)
            for task, n in Counter(tasks).items():
                self._operator(task)["programs"] += n
            self.counts["programs"] += len(ids)

    def measurements(self) -> None:
        platforms, seen = set(self.dataset.platforms()), IdIndex()
        for batch in self._batches("measurements"):
            rows = batch.to_pydict()
            ids = batch["record"].to_numpy()
            hashed, median, cost, kind = (np.zeros(len(ids), dtype=bool) for _ in range(4))
            for i, (program, platform, costs, latency, error, at) in enumerate(
                zip(*(rows[c] for c in ("program", "platform", "costs_s", "latency_s", "error", "measured_at")), strict=True)
            ):
                hashed[i] = measurement_id(program, platform, at, error, tuple(costs)) != ids[i]
                cost[i] = bool(error) == bool(costs) or any(not math.isfinite(c) or c <= 0 for c in costs)
                middle = float(np.median(costs)) if costs else math.nan
                median[i] = math.isnan(middle) != (latency is None or math.isnan(latency)) or (costs and middle != latency)
                kind[i] = bool(error) and error not in FAILURE_KINDS
            self.note_rows("A measurement's id is not the hash of its content", hashed, ids)
            self.note_rows("A measurement has neither positive costs nor an error, or both", cost, ids)
            self.note_rows("A measurement's latency is not the median of its costs", median, ids)
            self.note_rows("A failure has an unknown kind", kind, ids)
            known = self.programs_seen.contains(batch["program"].to_numpy())
            strange = np.array([p not in platforms for p in rows["platform"]], dtype=bool)
            self.note_rows("A measurement belongs to a program that is not there", ~known, ids)
            self.note_rows("A measurement is of an unknown platform", strange, ids)
            self._once("A measurement is stored twice", ids, seen)
            for (platform, task, error), n in Counter(zip(rows["platform"], rows["task"], rows["error"], strict=True)).items():
                counts = self.counts["by_platform"].setdefault(platform, {"measurements": 0, "failures": {}})
                counts["measurements"] += n
                if error:
                    counts["failures"][error] = counts["failures"].get(error, 0) + n
                self._operator(task)["measurements"] += n

    def totals(self) -> None:
        for task in self.operator:
            self._operator(task)["tasks"] += 1
        totals = self.dataset.manifest["totals"]
        for key, value in {"tasks": len(self.operator), **self.counts}.items():
            if totals.get(key, type(value)()) != value:
                self.note(f"The running totals of {key} are not those of the rows")

    def _once(self, problem: str, ids: np.ndarray, seen: IdIndex) -> None:
        first = np.zeros(len(ids), dtype=bool)
        first[np.unique(ids, return_index=True)[1]] = True
        self.note_rows(problem, ~first | seen.contains(ids), ids)
        seen.add(ids)

    def _operator(self, task: int) -> dict[str, int]:
        name = self.operator.get(task, "?")
        return self.counts["by_operator"].setdefault(name, {"tasks": 0, "programs": 0, "measurements": 0})

    def _batches(self, table: str) -> Any:
        total = sum(sum(p["rows"] for p in self.dataset.manifest["tables"][t]) for t in ("programs", "measurements"))
        for batch in self.dataset.batches(table, rows=32_768):
            self.progress.check()
            self.done += batch.num_rows
            self.progress.step(self.done, total, "Checking, rows:")
            if batch.num_rows:
                yield _decoded(batch)


def _decoded(batch: pa.RecordBatch) -> pa.Table:
    table = pa.Table.from_batches([batch])
    for i, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(i, field.name, pc.cast(table[field.name], pa.string()))
    return table
