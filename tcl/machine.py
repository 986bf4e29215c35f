"""One machine, many jobs: who may use the processor while programs are measured.

A measured latency is only worth something when nothing else runs. Every job that measures wraps its batches in
`quiet()` (exclusive), every other heavy step (a training epoch, a map) in `busy()` (shared). Two lock files make this fair:
whoever waits for quiet holds the gate, so that newcomers queue behind it instead of starving it. The locks are advisory,
span all processes of a user, and are released by the operating system when a process dies.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HELD = "TCL_MACHINE_LOCK"
"""Set to "held" in the environment of a process whose parent already holds the lock for it."""


def _lock_path(name: str) -> Path:
    return Path(os.environ.get("TCL_LOCK_DIR", tempfile.gettempdir())) / f"tcl-{os.getuid()}-{name}.lock"


@contextmanager
def _flock(name: str, mode: int) -> Iterator[None]:
    fd = os.open(_lock_path(name), os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(fd, mode)
        yield
    finally:
        os.close(fd)


_mine = threading.local()
"""`.mode`: "quiet" or "busy" while this thread is inside one; asking again would wait for itself."""


@contextmanager
def _marked(mode: str) -> Iterator[None]:
    _mine.mode = mode
    try:
        yield
    finally:
        _mine.mode = ""


@contextmanager
def quiet() -> Iterator[None]:
    """Hold the machine alone: returns once every `busy()` and `quiet()` of other processes has ended. Nested in itself it does nothing;
    inside `busy()` of the same thread it is a programming error: others would be computing beside the measurement."""
    mode = getattr(_mine, "mode", "")
    if mode == "busy":
        raise RuntimeError("quiet() inside busy(): leave busy() before measuring")
    if os.environ.get(HELD) == "held" or mode:
        yield
        return
    with _flock("gate", fcntl.LOCK_EX), _flock("work", fcntl.LOCK_EX), _marked("quiet"):
        yield


@contextmanager
def busy() -> Iterator[None]:
    """Use the processor beside other busy work, but never beside a measurement. Nested in `busy()` or `quiet()` it does nothing."""
    if os.environ.get(HELD) == "held" or getattr(_mine, "mode", ""):
        yield
        return
    with _flock("gate", fcntl.LOCK_EX):
        pass
    with _flock("work", fcntl.LOCK_SH), _marked("busy"):
        yield
