"""A command in a terminal, kept as a job: it is watched, paused and stopped in the app, and replayed and reported afterwards.

with kept("tune", "matmul:256,256,256, decisions/xgb, 64 trials", ConsoleProgress()) as progress:
    tune(..., progress=progress)
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tcl.errors import UserError
from tcl.files import write_json
from tcl.jobs.store import CANCELLED, DONE, FAILED, RUNNING, STOPPED, new_job, write_process
from tcl.jobs.worker import JobProgress, set_state
from tcl.progress import Progress


class Kept(Progress):
    """Tells `told` and a job's folder the same. The folder is made with the first event, so that a mistake in the command line leaves
    none. What cannot be written (a full disk) is not kept, and the work goes on."""

    def __init__(self, kind: str, title: str, told: Progress) -> None:
        self._kind, self._title, self._told = kind, title, told
        self._kept: JobProgress | None = None
        self._begun = False

    def event(self, kind: str, **data: Any) -> None:
        self._told.event(kind, **data)
        with self._writing():
            if not self._begun:
                self._begin()
            if self._kept is not None:
                self._kept.event(kind, **data)
                if kind == "result":
                    write_json(self._kept.folder / "result.json", data)

    def step(self, done: float, total: float, message: str = "") -> None:
        self._told.step(done, total, message)
        with self._writing():
            if self._kept is not None:
                self._kept.step(done, total, message)

    def check(self) -> None:
        """Pauses and stops as whoever watches the job asks."""
        self._told.check()
        if self._kept is not None:
            self._kept.check()

    def end(self, state: str, **more: Any) -> None:
        """How the command ended. `DONE` after a stop that was asked for is `STOPPED`."""
        with self._writing():
            if self._kept is not None:
                self._kept.flush()
                set_state(self._kept.folder, STOPPED if state == DONE and self._kept.asked == "stop" else state, **more)
                self._kept.close()

    def _begin(self) -> None:
        self._begun = True
        folder = new_job(self._kind, sys.argv[1:], self._title)
        write_process(folder, os.getpid())
        set_state(folder, RUNNING)
        self._kept = JobProgress(folder)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError:
            kept, self._kept = self._kept, None
            if kept is not None:
                with contextlib.suppress(OSError):
                    kept.close()


@contextmanager
def kept(kind: str, title: str, told: Progress) -> Iterator[Progress]:
    """What the command reports through. In a background job that is `told` itself, which a job keeps already."""
    if isinstance(told, JobProgress):
        yield told
        return
    run = Kept(kind, title, told)
    try:
        yield run
    except KeyboardInterrupt:
        run.end(CANCELLED)
        raise
    except UserError as error:
        run.end(FAILED, status=error.exit_status, error=str(error))
        raise
    except BaseException as error:
        run.end(FAILED, status=1, error=f"{type(error).__name__}: {error}")
        raise
    run.end(DONE)
