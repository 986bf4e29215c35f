"""Appending to a dataset: one writer at a time, all of a commit or nothing.

    with Writer(dataset) as writer:
        writer.add_tasks(tasks)
        writer.add_programs(programs)
        writer.add_measurements(measurements)

Programs and measurements that are already there are left out and counted. Leaving the block commits; an exception leaves the
dataset as it was.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from filelock import FileLock

from tcl.files import write_json
from tcl.programs.dataset import Dataset
from tcl.programs.id_index import IdIndex, load_run, save_run
from tcl.programs.manifest import MANIFEST
from tcl.programs.part_writer import ROWS_A_PART, PartWriter
from tcl.programs.schema import TABLES, measurements_table, programs_table, tasks_table
from tcl.programs.types import Measurement, Platform, Program, Task, content_id

SMALL_PARTS = 24
"""More small part files than this in one table are merged at a commit (a collection appends a few rows at a time)."""
ABANDONED_S = 600
"""A part file that no manifest names is removed when it is this old: a reader of the manifest before may still open it."""
ROWS_WORTH_A_FILE = 65_536
"""The ids of a part with fewer rows are read from it each time; those of a larger one are kept sorted in `.index/`."""

_KEY = {"tasks": "task", "programs": "program", "measurements": "record"}
_PAIR = "pair"
"""The index of (platform, program) pairs: tells whether a program was measured on a platform before."""


class Writer:
    """Use as a context manager. `added` and `duplicates` count rows by table; `remeasured` counts the added measurements of
    programs that had one on the same platform already.
    """

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        self.added: Counter[str] = Counter()
        self.duplicates: Counter[str] = Counter()
        self.remeasured = 0
        self._lock = FileLock(str(dataset.path / ".lock"))

    def __enter__(self) -> Writer:
        self._lock.acquire()
        try:
            self.dataset.refresh()
            self._remove_abandoned()
            self._platforms = self.dataset.platforms()
            self._parts = {name: PartWriter(self.dataset.path, name) for name in TABLES}
            self._indexes: dict[str, IdIndex] = {}
            self._index_files: list[Path] = []
            self._tasks = {t.id: t for t in self.dataset.task_list()}
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
        fresh = []
        for task in tasks:
            old = self._tasks.get(task.id)
            if old is not None and set(task.networks) <= set(old.networks):
                self.duplicates["tasks"] += 1
                continue
            self._tasks[task.id] = task
            self.added["tasks"] += old is None
            fresh.append(task)
        if fresh:
            self._parts["tasks"].append(tasks_table(fresh))

    def add_programs(self, programs: Iterable[Program] | pa.Table) -> int:
        """Add programs to the pool; returns how many were new."""
        table = programs if isinstance(programs, pa.Table) else programs_table(programs)
        table = self._only_new("programs", table)
        for task, n in _counts(table["task"]):
            self._pool[self._tasks[task].operator] += n
        self._put("programs", table)
        return table.num_rows

    def add_measurements(self, measurements: Iterable[Measurement] | pa.Table) -> int:
        """Add measurements of programs that are in the pool; returns how many were new."""
        table = measurements if isinstance(measurements, pa.Table) else measurements_table(measurements)
        table = self._only_new("measurements", table)
        pairs = _pairs(table)
        first = np.zeros(len(pairs), dtype=bool)
        first[np.unique(pairs, return_index=True)[1]] = True
        self.remeasured += int((~first | self._index(_PAIR).contains(pairs)).sum())
        self._index(_PAIR).add(pairs)
        keys = table.select(["platform", "task", "error"])
        keys = keys.set_column(0, "platform", pc.cast(keys["platform"], pa.string()))
        keys = keys.set_column(2, "error", pc.cast(keys["error"], pa.string()))
        for row in keys.group_by(["platform", "task", "error"]).aggregate([([], "count_all")]).to_pylist():
            self._tally[row["platform"], self._tasks[row["task"]].operator, row["error"]] += row["count_all"]
        self._put("measurements", table)
        return table.num_rows

    def known(self, table: str) -> np.ndarray:
        """Sorted ids (int64) that the committed table holds, all in memory: 8 bytes a row. `contains` needs no such array."""
        return np.unique(self.dataset.table(table, [_KEY[table]])[_KEY[table]].to_numpy())

    def contains(self, table: str, ids: np.ndarray) -> np.ndarray:
        """For each of `ids` (int64) whether the table holds it, committed or added by this writer; a boolean array."""
        return self._index(table).contains(np.asarray(ids, dtype=np.int64))

    # -- inner workings ------------------------------------------------------------------------------------------------

    def _only_new(self, name: str, table: pa.Table) -> pa.Table:
        ids = table[_KEY[name]].to_numpy()
        keep = np.zeros(len(ids), dtype=bool)
        keep[np.unique(ids, return_index=True)[1]] = True  # the first of equal ids in this table
        keep &= ~self._index(name).contains(ids)
        self._index(name).add(ids[keep])
        self.added[name] += int(keep.sum())
        self.duplicates[name] += int(len(ids) - keep.sum())
        return table if keep.all() else table.filter(pa.array(keep))

    def _put(self, name: str, table: pa.Table) -> None:
        if self._parts[name].append(table):
            self._index_finished_part(name)

    def _index(self, name: str) -> IdIndex:
        """The ids of one table ("pair" for measured pairs), read from the parts on first use."""
        if name not in self._indexes:
            self._indexes[name] = index = IdIndex()
            table = "measurements" if name == _PAIR else name
            for part in self.dataset.manifest["tables"][table]:
                run = load_run(self._index_file(part["file"], name))
                if run is None:
                    columns = ["program", "platform"] if name == _PAIR else [_KEY[name]]
                    rows = pq.read_table(self.dataset.path / part["file"], columns=columns, partitioning=None)
                    run = np.unique(_pairs(rows) if name == _PAIR else rows[_KEY[name]].to_numpy())
                    if part["rows"] >= ROWS_WORTH_A_FILE:
                        run = save_run(self._index_file(part["file"], name), run)
                if part["rows"] >= ROWS_WORTH_A_FILE:
                    index.attach(run)
                else:
                    index.add(run)
        return self._indexes[name]

    def _index_finished_part(self, name: str) -> None:
        """A part file is full: move its ids from memory to a file."""
        for key in (name, _PAIR) if name == "measurements" else (name,):
            path = self._index_file(self._parts[name].parts[-1]["file"], key)
            self._index_files.append(path)
            self._index(key).attach(save_run(path, self._index(key).take_loose()))

    def _index_file(self, part: str, key: str) -> Path:
        return self.dataset.path / ".index" / f"{Path(part).stem}.{key}.npy"

    def _commit(self) -> None:
        manifest = self.dataset.manifest
        try:
            for writer in self._parts.values():
                writer.close()
            tables = {name: manifest["tables"][name] + self._parts[name].parts for name in TABLES}
            changed = any(writer.parts for writer in self._parts.values())
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
        for writer in self._parts.values():
            writer.discard()
        for path in self._index_files:
            path.unlink(missing_ok=True)

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
        tasks = Counter(t.operator for t in self._tasks.values())
        for operator, n in tasks.items():
            operators.setdefault(operator, {"tasks": 0, "programs": 0, "measurements": 0})["tasks"] = n
        return {
            "tasks": len(self._tasks),
            "programs": old.get("programs", 0) + self.added["programs"],
            "by_platform": platforms,
            "by_operator": operators,
        }

    def _merge_small(self, name: str, parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
        small = [p for p in parts if p["rows"] < ROWS_A_PART // 4]
        if len(small) <= SMALL_PARTS:
            return parts
        merged = PartWriter(self.dataset.path, name)
        for part in small:
            merged.append(pq.read_table(self.dataset.path / part["file"], schema=TABLES[name], partitioning=None))
        merged.close()
        self._parts[name].parts += merged.parts  # removed again should the commit fail
        return [p for p in parts if p not in small] + merged.parts

    def _remove_abandoned(self) -> None:
        root = self.dataset.path
        named = {root / part["file"] for parts in self.dataset.manifest["tables"].values() for part in parts}
        stems = {path.stem for path in named}
        old = time.time() - ABANDONED_S
        for name in TABLES:
            for path in (root / f"{name}.parquet").glob("*.parquet"):
                with contextlib.suppress(FileNotFoundError):
                    if path not in named and path.stat().st_mtime < old:
                        path.unlink()
        for path in (root / ".index").glob("*.npy"):
            if path.name.split(".")[0] not in stems:
                path.unlink(missing_ok=True)


def _pairs(table: pa.Table) -> np.ndarray:
    """One int64 for each row's (platform, program)."""
    platforms = pc.cast(table["platform"], pa.string()).combine_chunks().dictionary_encode()
    salts = np.array([content_id("platform", name) for name in platforms.dictionary.to_pylist()], dtype=np.int64)
    programs = table["program"].to_numpy()
    return programs ^ salts[platforms.indices.to_numpy()] if len(programs) else programs


def _counts(column: pa.ChunkedArray) -> list[tuple[int, int]]:
    return [(pair["values"].as_py(), pair["counts"].as_py()) for pair in pc.value_counts(column)]
