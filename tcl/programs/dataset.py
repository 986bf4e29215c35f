"""A dataset on disk: a folder that grows by whole commits and is safe to read while it is written.

    dataset.json              the manifest: which part files count, and running totals; replaced atomically at each commit
    platforms.json            name -> platform
    tasks.parquet/            part files (Parquet, zstd), each written once and never changed
    programs.parquet/         every program of the pool, measured or not, once
    measurements.parquet/     every measurement, repeats and failures included
    selections/, maps/        what samplers picked; stored 2-D maps

A reader sees what the manifest names, nothing else: a writer that is killed leaves part files that nobody refers to, and the
next writer removes them. `pandas.read_parquet(folder / "programs.parquet")` works on a dataset at rest.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
from filelock import FileLock

from tcl.errors import UserError
from tcl.files import write_json
from tcl.programs.manifest import FORMAT, MANIFEST, read_manifest, stats
from tcl.programs.schema import TABLES, tasks_from_table
from tcl.programs.types import Platform, Task


class Dataset:
    """An opened dataset. Holds the manifest as it was when opened; `refresh()` sees later commits."""

    def __init__(self, path: Path, manifest: dict[str, Any]) -> None:
        self.path = path
        self.manifest = manifest

    @classmethod
    def open(cls, path: str | Path) -> Dataset:
        path = Path(path)
        return cls(path, read_manifest(path))

    @classmethod
    def create(cls, path: str | Path, description: str = "") -> Dataset:
        """Open the dataset at `path`, or make an empty one there. A folder that holds other things is refused."""
        path = Path(path)
        if (path / MANIFEST).exists():
            return cls.open(path)
        if path.exists() and (not path.is_dir() or any(p.name[0] != "." and p.name != "platforms.json" for p in path.iterdir())):
            raise UserError(f"{path} exists and is not a dataset.", hint="Name a new or empty folder.")
        path.mkdir(parents=True, exist_ok=True)
        with FileLock(str(path / ".lock")):  # somebody else may be making it just now
            if not (path / MANIFEST).exists():
                write_json(path / "platforms.json", {})
                write_json(
                    path / MANIFEST,
                    {"format": FORMAT, "description": description, "tables": {name: [] for name in TABLES}, "totals": {}},
                )
        return cls.open(path)

    def refresh(self) -> Dataset:
        """Read the manifest again; returns self."""
        self.manifest = Dataset.open(self.path).manifest
        return self

    # -- reading -------------------------------------------------------------------------------------------------------

    @property
    def version(self) -> str:
        """Changes with every commit: the key of anything cached from this dataset."""
        return str(self.manifest.get("version", "empty"))

    def platforms(self) -> dict[str, Platform]:
        return {name: Platform(**p) for name, p in json.loads((self.path / "platforms.json").read_text()).items()}

    def task_list(self) -> list[Task]:
        return tasks_from_table(self.table("tasks"))

    def tasks(self) -> pd.DataFrame:
        """One row a task: task, name, operator, format, extents, flops, bytes, group, networks (dict name -> weight)."""
        tasks = self.task_list()
        frame = pd.DataFrame([asdict(t) for t in tasks], columns=list(Task.__dataclass_fields__)).drop(columns="workload")
        frame.insert(0, "task", np.array([t.id for t in tasks], dtype=np.int64))
        frame["group"] = np.array([t.group for t in tasks], dtype=np.int64)
        frame["networks"] = [{u.network: u.weight for u in t.networks} for t in tasks]
        return frame

    def programs(self, columns: Sequence[str] | None = None, tasks: Sequence[int] | None = None) -> pd.DataFrame:
        """One row a program of the pool: program, task, schedule (leave `schedule` out when you need ids only)."""
        return self.table("programs", columns, tasks=tasks).to_pandas()

    def measurements(
        self, columns: Sequence[str] | None = None, platforms: Sequence[str] | None = None, tasks: Sequence[int] | None = None
    ) -> pd.DataFrame:
        """One row a measurement, failures included (see `tcl.programs.schema.MEASUREMENTS`)."""
        return self.table("measurements", columns, platforms=platforms, tasks=tasks).to_pandas()

    def labels(self, platforms: Sequence[str] | None = None, tasks: Sequence[int] | None = None) -> pd.DataFrame:
        """One row a (platform, program): the best successful latency, and the label that models learn.

        Columns: program, task, platform (categories), latency_s (NaN where every measurement failed), error ("" or the last
        failure's kind), measurements (how many), label in [0, 1] (best latency of the assignment / this latency, 0 for a
        failure). A failure never hides a success of the same program.
        """
        rows = self.measurements(["program", "task", "platform", "latency_s", "error"], platforms, tasks)
        return label_frame(rows)

    def table(
        self,
        name: str,
        columns: Sequence[str] | None = None,
        platforms: Sequence[str] | None = None,
        tasks: Sequence[int] | None = None,
    ) -> pa.Table:
        """Rows of one table as Arrow, filtered while reading."""
        condition = None
        if tasks is not None:
            condition = pads.field("task").isin(pa.array(np.asarray(tasks, dtype=np.int64)))
        if platforms is not None:
            chosen = pads.field("platform").cast(pa.string()).isin(pa.array(list(platforms), pa.string()))
            condition = chosen if condition is None else condition & chosen
        return self._scan(name).to_table(columns=list(columns) if columns else None, filter=condition)

    def batches(self, name: str, columns: Sequence[str] | None = None, rows: int = 65536) -> Iterator[pa.RecordBatch]:
        """One table as a stream of record batches, in bounded memory."""
        yield from self._scan(name).to_batches(columns=list(columns) if columns else None, batch_size=rows)

    def _scan(self, name: str) -> pads.Dataset:
        for attempt in range(2):
            files = [str(self.path / part["file"]) for part in self.manifest["tables"][name]]
            if all(Path(f).exists() for f in files):
                return pads.dataset(files, schema=TABLES[name], format="parquet") if files else pads.dataset(TABLES[name].empty_table())
            if attempt == 0:  # a writer merged small parts since this dataset was opened
                self.refresh()
        raise UserError(f"{self.path} misses part files of {name} that its manifest names.", hint="Run `tcl data validate` on it.")

    # -- knowing -------------------------------------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        """Counts from the manifest's running totals, so that a million records answer at once."""
        return stats(self.path, self.manifest)


def label_frame(rows: pd.DataFrame) -> pd.DataFrame:
    """Measurements (program, task, platform, latency_s, error) -> one row a (platform, program); see `Dataset.labels`."""
    rows = rows.assign(error=rows["error"].astype(str), platform=rows["platform"].astype("category"))
    grouped = rows.groupby(["platform", "program"], observed=True, sort=False)
    frame = grouped.agg(task=("task", "first"), latency_s=("latency_s", "min"), error=("error", "last"), measurements=("task", "size"))
    frame = frame.reset_index()
    frame.loc[frame["latency_s"].notna(), "error"] = ""
    best = frame.groupby(["platform", "task"], observed=True)["latency_s"].transform("min")
    frame["label"] = (best / frame["latency_s"]).fillna(0.0)
    return frame[["program", "task", "platform", "latency_s", "error", "measurements", "label"]]


def write_parquet(table: pa.Table, path: Path) -> None:
    """Write one part file, whole or not at all."""
    draft = path.with_name(f".{path.name}")
    try:
        pq.write_table(table, draft, compression="zstd", compression_level=9)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
