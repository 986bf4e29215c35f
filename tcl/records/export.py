"""A dataset as files for others: Ansor JSON lines, a flat Parquet or CSV table."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from tcl.programs.dataset import Dataset
from tcl.programs.types import format_id
from tcl.progress import Progress

TASKS_AT_ONCE = 64
"""Tasks whose programs are in memory at the same time."""
_NUMBERS = {"invalid_schedule": 1, "build_error": 2, "run_error": 4, "wrong_output": 5, "build_timeout": 6, "run_timeout": 7}
"""Failure kind -> error number of auto_scheduler; others are 8, unknown."""
_FLAT = pa.schema(
    [("platform", pa.string()), ("task", pa.string()), ("name", pa.string()), ("operator", pa.string()), ("format", pa.string()),
     ("workload", pa.string()), ("program", pa.string()), ("schedule", pa.string()), ("latency_s", pa.float64()),
     ("costs_s", pa.list_(pa.float64())), ("error", pa.string()), ("detail", pa.string()), ("measured_at", pa.float64())]
)  # fmt: skip


def export_ansor(
    dataset: Dataset, path: Path, platforms: Sequence[str] | None = None, target: str = "", progress: Progress | None = None
) -> dict[str, int]:
    """Write Ansor records (version v0.6), one JSON object a line. Returns counts of written and left out (of other formats).

    Several platforms may be named, yet a line does not say which it was measured on: better one file a platform. `target` is the
    target string to write; without it that of the platform, which imported logs lack.
    """
    known = dataset.platforms()
    written = skipped = 0
    with _Draft(path) as draft, draft.open("w") as file:
        for rows in _joined(dataset, platforms, progress):
            for row in rows.itertuples():
                if row.format != "ansor":
                    skipped += 1
                    continue
                costs = list(row.costs_s) if len(row.costs_s) else [1e10]
                number = _NUMBERS.get(row.error, 8) if row.error else 0
                head = [row.workload, target or known[row.platform].target, [], "", 0, []]
                record = {"i": [head, [[], "@"]], "r": [costs, number, 0, row.measured_at], "v": "v0.6"}
                file.write(json.dumps(record).replace('"@"', row.schedule) + "\n")
                written += 1
    return {"written": written, "left_out": skipped}


def export_table(
    dataset: Dataset, path: Path, format: str, platforms: Sequence[str] | None = None, progress: Progress | None = None
) -> dict[str, int]:
    """Write one row a measurement, task and schedule beside it, as "parquet" or "csv" (costs as JSON; ids as 16 hex digits)."""
    written = 0
    with _Draft(path) as draft:
        writer: Any = None
        file = None if format == "parquet" else draft.open("w", newline="")
        if file is None:
            writer = pq.ParquetWriter(draft, _FLAT, compression="zstd")
        else:
            sheet = csv.writer(file)
            sheet.writerow(_FLAT.names)
        for joined in _joined(dataset, platforms, progress):
            rows = joined.assign(task=joined["task"].map(format_id), program=joined["program"].map(format_id))[_FLAT.names]
            written += len(rows)
            if file is None:
                writer.write_table(pa.Table.from_pandas(rows, _FLAT, preserve_index=False))
            else:
                rows["costs_s"] = [json.dumps([float(c) for c in costs]) for costs in rows["costs_s"]]
                sheet.writerows(rows.itertuples(index=False, name=None))
        (writer if file is None else file).close()
    return {"written": written, "left_out": 0}


def _joined(dataset: Dataset, platforms: Sequence[str] | None, progress: Progress | None) -> Iterator[pd.DataFrame]:
    """Measurements with their tasks and schedules, some tasks at a time."""
    progress = progress or Progress()
    tasks = dataset.task_list()
    about = pd.DataFrame(
        {
            "task": [t.id for t in tasks], "name": [t.name for t in tasks], "operator": [t.operator for t in tasks],
            "format": [t.format for t in tasks], "workload": [t.workload for t in tasks],
        }
    )  # fmt: skip
    for first in range(0, len(about), TASKS_AT_ONCE):
        progress.check()
        progress.step(first, len(about), "Exporting, tasks:")
        some = about.iloc[first : first + TASKS_AT_ONCE]
        ids = some["task"].tolist()
        rows = dataset.measurements(platforms=platforms, tasks=ids).astype({"platform": str, "error": str})
        if len(rows):
            yield rows.merge(some, on="task").merge(dataset.programs(["program", "schedule"], ids), on="program")


class _Draft:
    """A file that appears under its name only when it is whole."""

    def __init__(self, path: Path) -> None:
        self.path, self.draft = path, path.with_name(f".{path.name}.draft")

    def __enter__(self) -> Path:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        return self.draft

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.draft.replace(self.path)
        else:
            self.draft.unlink(missing_ok=True)
