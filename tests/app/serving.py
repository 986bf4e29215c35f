"""The real app for the tests: as `tcl bench app` starts it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tcl.bench.browser import CHROMIUM, FLAGS, served

__all__ = ["CHROMIUM", "FLAGS", "app"]


@contextmanager
def app(workspace: Path, *datasets: Path, port: int | None = None, log: Path | None = None) -> Iterator[str]:
    """`tcl app` in a process of its own; yields its address."""
    with served(workspace, *datasets, port=port, log=log) as (address, _):
        yield address
