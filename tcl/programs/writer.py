"""Appending to a dataset: one writer at a time, all of a commit or nothing.

    with Writer(dataset) as writer:
        writer.add_tasks(tasks)
        writer.add_programs(programs)
        writer.add_measurements(measurements)

Programs and measurements that are already there are left out and counted. Leaving the block commits; an exception leaves the
dataset as it was.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from filelock import FileLock

from tcl.files import write_json
from tcl.programs.dataset import MANIFEST, Dataset, write_parquet
from tcl.programs.schema import TABLES, measurements_table, programs_table, tasks_table
from tcl.programs.types import Measurement, Platform, Program, Task

ROWS_A_PART = 500_000
"""Rows buffered before a part file is written; bounds a writer's memory."""
SMALL_PARTS = 24
"""More small part files than this in one table are merged at a commit (a collection appends a few rows at a time)."""
ABANDONED_S = 600
"""A part file that no manifest names is removed when it is this old: a reader of the manifest before may still open it."""

_KEY = {"tasks": "task", "programs": "program", "measurements": "record"}


class Writer:
    """Use as a context manager. `added` and `duplicates` count rows by table."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        self.added: Counter[str] = Counter()
        self.duplicates: Counter[str] = Counter()
        self._lock = FileLock(str(dataset.path / ".lock"))

    def __enter__(self) -> Writer:
        self._lock.acquire()
        try:
            self.dataset.refresh()
            self._remove_abandoned()
            self._platforms = self.dataset.platforms()
            self._buffers: dict[str, list[pa.Table]] = {name: [] for name in TABLES}
            self._parts: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
            self._known: dict[str, np.ndarray] = {}
            self._new: dict[str, set[int]] = {name: set() for name in TABLES}
            self._operators = {t.id: t.operator for t in self.dataset.task_list()}
            self._tally: Counter[tuple[str, str, str]] = Counter()  # (platform, operator, error) -> measurements
            self._pool: Counter[str] = Counter()  # operator -> programs
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if kind is None:
                self._commit()
            else:
                self._discard()
        finally:
            self._lock.release()

    # -- adding --------------------------------------------------------------------------------------------------------

    def add_platform(self, platform: Platform) -> None:
        self._platforms[platform.name] = platform

    def add_tasks(self, tasks: Iterable[Task]) -> None:
        """Add tasks; one that is known already is written again only when it now belongs to further networks."""
        known = {t.id: t for t in self.dataset.task_list()}
        fresh = []
        for task in tasks:
            old = known.get(task.id)
            if old is not None and set(task.networks) <= set(old.networks):
                self.duplicates["tasks"] += 1
                continue
            known[task.id] = task
            self._operators[task.id] = task.operator
            self.added["tasks"] += old is None
            fresh.append(task)
        self._put("tasks", tasks_table(fresh))

    def add_programs(self, programs: Iterable[Program] | pa.Table) -> int:
        """Add programs to the pool; returns how many were new."""
        table = programs if isinstance(programs, pa.Table) else programs_table(programs)
        table = self._only_new("programs", table)
        for task, n in _counts(table["task"]):
            self._pool[self._operators[task]] += n
        self._put("programs", table)
        return table.num_rows

    def add_measurements(self, measurements: Iterable[Measurement] | pa.Table) -> int:
        """Add measurements of programs that are in the pool; returns how many were new."""
        table = measurements if isinstance(measurements, pa.Table) else measurements_table(measurements)
        table = self._only_new("measurements", table)
        keys = table.select(["platform", "task", "error"])
        keys = keys.set_column(0, "platform", pc.cast(keys["platform"], pa.string()))
        keys = keys.set_column(2, "error", pc.cast(keys["error"], pa.string()))
        for row in keys.group_by(["platform", "task", "error"]).aggregate([([], "count_all")]).to_pylist():
            self._tally[row["platform"], self._operators[row["task"]], row["error"]] += row["count_all"]
        self._put("measurements", table)
        return table.num_rows

    def known(self, table: str) -> np.ndarray:
        """Sorted ids (int64) that the committed table holds."""
        if table not in self._known:
            column = self.dataset.table(table, [_KEY[table]])[_KEY[table]]
            self._known[table] = np.unique(column.to_numpy())
        return self._known[table]

    # -- inner workings ------------------------------------------------------------------------------------------------

    def _only_new(self, name: str, table: pa.Table) -> pa.Table:
        ids = table[_KEY[name]].to_numpy()
        known, new = self.known(name), self._new[name]
        place = np.minimum(np.searchsorted(known, ids), max(len(known) - 1, 0))
        keep = known[place] != ids if len(known) else np.ones(len(ids), dtype=bool)
        for i in np.flatnonzero(keep):
            identity = int(ids[i])
            if identity in new:
                keep[i] = False
            else:
                new.add(identity)
        self.added[name] += int(keep.sum())
        self.duplicates[name] += int(len(ids) - keep.sum())
        return table if keep.all() else table.filter(pa.array(keep))

    def _put(self, name: str, table: pa.Table) -> None:
        if table.num_rows:
            self._buffers[name].append(table)
            if sum(t.num_rows for t in self._buffers[name]) >= ROWS_A_PART:
                self._flush(name)

    def _flush(self, name: str) -> None:
        if self._buffers[name]:
            self._parts[name].append(self._write_part(name, pa.concat_tables(self._buffers[name])))
            self._buffers[name] = []

    def _write_part(self, name: str, table: pa.Table) -> dict[str, Any]:
        folder = self.dataset.path / f"{name}.parquet"
        folder.mkdir(exist_ok=True)
        path = folder / f"part-{time.time_ns():x}-{secrets.token_hex(3)}.parquet"
        write_parquet(table.unify_dictionaries(), path)
        return {"file": f"{name}.parquet/{path.name}", "rows": table.num_rows}

    def _commit(self) -> None:
        manifest = self.dataset.manifest
        try:
            for name in TABLES:
                self._flush(name)
            tables = {name: manifest["tables"][name] + self._parts[name] for name in TABLES}
            changed = any(self._parts.values())
            if changed:
                tables = {name: self._merge_small(name, parts) for name, parts in tables.items()}
            if self._platforms != self.dataset.platforms():
                write_json(self.dataset.path / "platforms.json", {n: asdict(p) for n, p in self._platforms.items()})
            if changed:
                manifest = manifest | {"tables": tables, "totals": self._totals(manifest["totals"]), "version": secrets.token_hex(8)}
                write_json(self.dataset.path / MANIFEST, manifest)
        except BaseException:
            self._discard()
            raise
        self.dataset.manifest = manifest

    def _discard(self) -> None:
        for parts in self._parts.values():
            for part in parts:
                (self.dataset.path / part["file"]).unlink(missing_ok=True)

    def _totals(self, old: dict[str, Any]) -> dict[str, Any]:
        platforms = {n: {"measurements": c["measurements"], "failures": dict(c["failures"])} for n, c in old.get("by_platform", {}).items()}
        operators = {n: dict(c) for n, c in old.get("by_operator", {}).items()}
        for task, n in self._pool.items():
            operators.setdefault(task, {"tasks": 0, "programs": 0, "measurements": 0})["programs"] += n
        for (platform, operator, error), n in self._tally.items():
            counts = platforms.setdefault(platform, {"measurements": 0, "failures": {}})
            counts["measurements"] += n
            if error:
                counts["failures"][error] = counts["failures"].get(error, 0) + n
            operators.setdefault(operator, {"tasks": 0, "programs": 0, "measurements": 0})["measurements"] += n
        tasks = Counter(self._operators.values())
        for operator, n in tasks.items():
            operators.setdefault(operator, {"tasks": 0, "programs": 0, "measurements": 0})["tasks"] = n
        return {
            "tasks": len(self._operators),
            "programs": old.get("programs", 0) + self.added["programs"],
            "by_platform": platforms,
            "by_operator": operators,
        }

    def _merge_small(self, name: str, parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
        small = [p for p in parts if p["rows"] < ROWS_A_PART // 4]
        if len(small) <= SMALL_PARTS:
            return parts
        import pyarrow.parquet as pq

        merged = pa.concat_tables([pq.read_table(self.dataset.path / p["file"], schema=TABLES[name]) for p in small])
        part = self._write_part(name, merged)
        self._parts[name].append(part)  # removed again should the commit fail
        return [p for p in parts if p not in small] + [part]

    def _remove_abandoned(self) -> None:
        named = {part["file"] for parts in self.dataset.manifest["tables"].values() for part in parts}
        for name in TABLES:
            for path in (self.dataset.path / f"{name}.parquet").glob("*.parquet"):
                if f"{name}.parquet/{path.name}" not in named and time.time() - path.stat().st_mtime > ABANDONED_S:
                    path.unlink(missing_ok=True)


def _counts(column: pa.ChunkedArray) -> list[tuple[int, int]]:
    return [(pair["values"].as_py(), pair["counts"].as_py()) for pair in pc.value_counts(column)]
