"""Which format a line is of. Told by each line's own shape, so that a file's name or first line never misleads."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from tcl.records import ansor
from tcl.records.record import Record, Refused
from tcl.records.sources import LogFile, Source

Parse = Callable[[bytes], tuple[str, Record | None]]


class Reader:
    """Reads the lines of all files of one import; knows which workload file belongs to which record file."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self.sources = sources

    def for_file(self, log: LogFile) -> Parse:
        """The function that turns a line of `log` into (format, record). It raises `Refused`."""

        def parse(line: bytes) -> tuple[str, Record | None]:
            value = load(line)
            if ansor.claims(value):
                return "ansor", ansor.parse(value)
            raise Refused("not a record of a known format")

        return parse


def load(line: bytes) -> Any:
    """A line as JSON. NaN and Infinity, which Python's own logs may hold, are accepted."""
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        pass
    head = line.lstrip()[:1]
    if head not in (b"{", b"["):
        raise Refused("not a record: a line of other text")
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        raise Refused("a line cut off or damaged: it is not whole JSON") from None
