"""Importing logs into a dataset: every line becomes a measurement, a duplicate, or a counted and located refusal.

    summary = import_logs(["logs/"], "mine", "v100")

All of an import is one commit: killed or stopped half-way it leaves the dataset as it was. A second run finds the same records and adds
nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tcl.programs.dataset import Dataset
from tcl.programs.schema import MEASUREMENTS, PROGRAMS
from tcl.programs.types import NetworkUse, Platform, Task, measurement_id, program_id
from tcl.programs.writer import Writer
from tcl.progress import Progress
from tcl.records.formats import Reader
from tcl.records.platform_map import NamedPlatform, PlatformMap
from tcl.records.record import Record, Refused
from tcl.records.sources import Damaged, LogFile, find_sources, open_source
from tcl.records.tenset_networks import find_networks

ROWS_A_BATCH = 20_000
LINES_SHOWN = 10
"""Refused lines kept for each reason; all are counted."""
FILES_SHOWN = 500


@dataclass
class Summary:
    """What an import read and did. `lines == imported + duplicates + sum(refused.values())`; `failed` are among the first two."""

    files: int = 0
    lines: int = 0  # lines that are not blank
    imported: int = 0  # first measurement of a program on a platform
    duplicates: int = 0  # of a program that was measured already: `remeasured` are kept beside it, `repeated` are the same record again
    remeasured: int = 0
    repeated: int = 0
    blank: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    refused_lines: list[dict[str, Any]] = field(default_factory=list)
    by_format: Counter[str] = field(default_factory=Counter)
    by_platform: dict[str, Counter[str]] = field(default_factory=dict)
    by_file: list[dict[str, Any]] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)  # file -> why nothing was read from it
    tasks: int = 0
    programs: int = 0
    seconds: float = 0.0

    def refuse(self, reason: str, file: str, line: int, text: bytes = b"") -> None:
        self.refused[reason] += 1
        if self.refused[reason] <= LINES_SHOWN:
            shown = text[:80].decode("utf-8", "replace").strip()
            self.refused_lines.append({"reason": reason, "file": file, "line": line, "text": shown})

    def to_dict(self) -> dict[str, Any]:
        return {
            name: dict(value) if isinstance(value, Counter) else {k: dict(v) for k, v in value.items()} if name == "by_platform" else value
            for name, value in vars(self).items()
        }


def import_logs(
    paths: Sequence[str | Path],
    out: str | Path,
    platform: str | NamedPlatform | PlatformMap,
    progress: Progress | None = None,
    description: str = "",
) -> Summary:
    """Import every record that `paths` (files, folders, globs, archives) hold into the dataset at `out` (made when it is not there).

    `platform`: what all of it was measured on, or a map from folders to platforms. Raises `UserError` for what makes the whole
    import impossible; a bad line never does.
    """
    import time

    started = time.monotonic()
    progress = progress or Progress()
    sources = find_sources(paths)
    named = NamedPlatform(platform) if isinstance(platform, str) else platform
    mapping = named if isinstance(named, PlatformMap) else PlatformMap.single(named)
    mapping.check([s.shown for s in sources])
    summary = Summary(files=len(sources))
    total = sum(s.size for s in sources)
    with Writer(Dataset.create(out, description)) as writer:
        batch = _Batch(writer, summary, find_networks(sources))
        reader = Reader(sources)
        done = 0
        for source in sources:
            for log, raw in open_source(source):
                chosen = mapping.find(log.folder, log.shown)
                if chosen is None:
                    summary.skipped[log.shown] = "no entry of the platform map fits its folder"
                    continue
                _read(log, chosen, reader, batch, summary, lambda raw=raw, at=done: _tell(progress, at + raw.tell(), total))
            done += source.size
            _tell(progress, done, total)
        batch.flush()
    summary.tasks, summary.programs = writer.added["tasks"], writer.added["programs"]
    summary.seconds = time.monotonic() - started
    return summary


def _tell(progress: Progress, done: float, total: float) -> None:
    progress.check()
    progress.step(done / 1e6, total / 1e6, "Importing, MB:")


def _read(log: LogFile, platform: NamedPlatform, reader: Reader, batch: _Batch, summary: Summary, tell: Callable[[], None]) -> None:
    before = summary.lines, sum(summary.refused.values())
    parse, formats, rows, number = reader.for_file(log), Counter[str](), 0, 0
    try:
        for number, line in log.lines():
            if line is None:
                summary.lines += 1
                summary.refuse("a line that is longer than 32 MB", log.shown, number)
                continue
            if line.isspace():
                summary.blank += 1
                continue
            summary.lines += 1
            try:
                kind, record = parse(line)
            except Refused as refusal:
                summary.refuse(str(refusal), log.shown, number, line)
                continue
            formats[kind] += 1
            if record is None:  # a workload of a MetaSchedule database: needed by the records, not one itself
                summary.lines -= 1
                continue
            try:
                batch.add(record, kind, platform)
            except Refused as refusal:
                summary.refuse(str(refusal), log.shown, number, line)
            rows += 1
            if rows % 2000 == 0:
                tell()
    except Damaged as damage:
        if number == 0:
            summary.skipped[log.shown] = str(damage)
        else:
            summary.lines += 1
            summary.refuse(str(damage), log.shown, number + 1)
    if number == 0 and not log.problem and log.shown not in summary.skipped:
        summary.skipped[log.shown] = "an empty file"
    summary.by_format.update(formats)
    if len(summary.by_file) < FILES_SHOWN:
        lines, refused = summary.lines - before[0], sum(summary.refused.values()) - before[1]
        summary.by_file.append(
            {"file": log.shown, "format": "+".join(formats) or "unknown", "platform": platform.name, "lines": lines, "refused": refused}
        )


class _Batch:
    """Rows on their way into the dataset, as columns."""

    def __init__(self, writer: Writer, summary: Summary, networks: dict[str, tuple[NetworkUse, ...]]) -> None:
        self.writer, self.summary, self.networks = writer, summary, networks
        self._tasks: dict[tuple[str, Any], int | Refused] = {}
        self._fresh: list[Task] = []
        self._platforms: dict[str, Platform] = {}
        self._clear()

    def _clear(self) -> None:
        self._program_columns: tuple[list, ...] = ([], [], [])
        self._columns: tuple[list, ...] = tuple([] for _ in MEASUREMENTS)

    def add(self, record: Record, kind: str, platform: NamedPlatform) -> None:
        key = (kind, record.key)
        task = self._tasks.get(key)
        if task is None:
            try:
                made = record.make_task()
                if record.key in self.networks:
                    made = replace(made, networks=self.networks[record.key])
                self._fresh.append(made)
                task = made.id
            except Refused as refusal:
                task = refusal
            self._tasks[key] = task
        if isinstance(task, Refused):
            raise task
        name = platform.name
        if name not in self._platforms:
            self._platforms[name] = platform.platform(record.gpu)
            self.summary.by_platform[name] = Counter()
        program = program_id(task, record.schedule)
        error, costs = record.error, record.costs_s
        latency = float(np.median(costs)) if len(costs) > 1 else costs[0] if costs else float("nan")
        identity = measurement_id(program, name, record.measured_at, error, costs)
        row = (identity, program, task, name, costs, latency, error, record.detail, record.measured_at, "import")
        for column, value in zip(self._program_columns, (program, task, record.schedule), strict=True):
            column.append(value)
        for column, value in zip(self._columns, row, strict=True):
            column.append(value)
        if error:
            self.summary.failed[error] += 1
        if len(self._columns[0]) >= ROWS_A_BATCH:
            self.flush()

    def flush(self) -> None:
        writer, summary = self.writer, self.summary
        for platform in self._platforms.values():
            if platform.name not in writer.dataset.platforms():  # what is known there already may be more
                writer.add_platform(platform)
        writer.add_tasks(self._fresh)
        self._fresh = []
        schedules = pa.array(self._program_columns[2], pa.binary()).cast(pa.string())
        columns = [pa.array(c, f.type) for c, f in zip(self._program_columns[:2], PROGRAMS, strict=False)]
        writer.add_programs(pa.table([*columns, schedules], schema=PROGRAMS))
        table = pa.table([pa.array(c, f.type) for c, f in zip(self._columns, MEASUREMENTS, strict=True)], schema=MEASUREMENTS)
        remeasured = writer.remeasured
        added = writer.add_measurements(table)
        remeasured = writer.remeasured - remeasured
        summary.imported += added - remeasured
        summary.remeasured += remeasured
        summary.repeated += table.num_rows - added
        summary.duplicates = summary.remeasured + summary.repeated
        for name, n in Counter(self._columns[3]).items():
            summary.by_platform[name]["lines"] += n
        self._clear()
