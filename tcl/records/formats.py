"""Which format a line is of. Told by each line's own shape, so that a file's name or first line never misleads."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import orjson

from tcl.records import ansor, autotvm, metaschedule
from tcl.records.record import Record, Refused
from tcl.records.sources import Damaged, LogFile, Source, open_source

Parse = Callable[[bytes], tuple[str, Record | None]]


class Reader:
    """Reads the lines of all files of one import; knows which workload file belongs to which record file."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources
        self._databases: dict[str, dict[str, list[bytes]]] = {}  # folder -> name of a workload file -> its lines

    def for_file(self, log: LogFile) -> Parse:
        """The function that turns a line of `log` into (format, record), with no record for a workload. It raises `Refused`."""
        workloads: list[list[bytes] | None] = []  # found at the first record that needs them

        def parse(line: bytes) -> tuple[str, Record | None]:
            value = load(line)
            if ansor.claims(value):
                return "ansor", ansor.parse(value)
            if autotvm.claims(value):
                return "autotvm", autotvm.parse(value)
            if metaschedule.is_workload(value):
                metaschedule.read_module(line)
                return "metaschedule", None
            if metaschedule.is_record(value):
                if not workloads:
                    workloads.append(self._workloads_of(log))
                return "metaschedule", metaschedule.parse(value, workloads[0], log.shown)
            raise Refused("not a record of a known format")

        return parse

    def _workloads_of(self, log: LogFile) -> list[bytes] | None:
        """The workload file beside a record file: the one whose name fits, or the only one."""
        if log.folder not in self._databases:
            self._databases[log.folder] = self._find_workloads(log)
        found = self._databases[log.folder]
        fitting = _stem(log.shown).replace("tuning_record", "workload").replace("record", "workload")
        return found.get(fitting) or (next(iter(found.values())) if len(found) == 1 else None)

    def _find_workloads(self, log: LogFile) -> dict[str, list[bytes]]:
        archive = log.shown.split("!")[0] if "!" in log.shown else None
        named = [s for s in self._sources if (s.shown == archive if archive else str(s.path.parent) == log.folder)]
        if not archive:  # a user who names only the record file means the workloads beside it, too
            paths = {s.path.resolve() for s in named}
            beside = (p for p in sorted(Path(log.folder).iterdir()) if "workload" in p.name and p.is_file())
            named += [Source(p, str(p), p.stat().st_size) for p in beside if p.resolve() not in paths]
        found = {}
        for source in named:
            for other, _ in open_source(source):
                if other.folder == log.folder and other.shown != log.shown:
                    lines = _workload_lines(other)
                    if lines:
                        found[_stem(other.shown)] = lines
        return found


def _workload_lines(log: LogFile) -> list[bytes]:
    """All lines of a workload file, damaged ones too, for records count them; none for a file of another kind."""
    kept: list[bytes] = []
    try:
        for _, line in log.lines():
            if line is not None and line.isspace():
                continue
            if not kept:
                try:
                    if line is None or not metaschedule.is_workload(load(line)):
                        return []
                except Refused:
                    return []
            kept.append(line or b"")
    except Damaged:
        pass
    return kept


def _stem(shown: str) -> str:
    return PurePosixPath(shown.replace("!", "/")).name.split(".")[0]


def load(line: bytes) -> Any:
    """A line as JSON. NaN and Infinity, which Python's own logs may hold, are accepted."""
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        pass
    if line.lstrip()[:1] not in (b"{", b"["):
        raise Refused("not a record: a line of other text")
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        raise Refused("a line cut off or damaged: it is not whole JSON") from None
