"""A worker process as its coordinator sees it: requests go in, answers come out, and a deadline that is fair to a slow machine."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tcl.programs.types import Program
from tcl.tuning.worker import receive, send

START_TIMEOUT_S = 120.0
SPINS = 200
"""How often a thread of TVM's pool looks for work before it sleeps. By default it goes on for a tenth of a second, and takes the
processor from the next program where another worker runs that: kernels of 20 us then took up to twice as long."""
SHARE, PATIENCE = 0.9, 3.0
"""A worker over its time limit is killed when it computed for this share of it; one that had to wait for the processor gets up to
this many times the limit. So a crowded or stalled machine, or one whose clock jumped, condemns nobody."""


class Died(Exception):
    """The worker ended or was killed while it worked on a request. `stalled`: killed over time though it hardly computed."""

    def __init__(self, kind: str, detail: str, stalled: bool = False) -> None:
        super().__init__(detail)
        self.kind = kind
        self.stalled = stalled


class WorkerProcess:
    """A worker process and the tasks it knows."""

    def __init__(self, threads: int, memory_bytes: int, module: str = "tcl.tuning.worker") -> None:
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as the process)
        package_root = str(Path(__file__).resolve().parents[2])
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(p for p in (package_root, os.environ.get("PYTHONPATH")) if p),
            "PYTHONWARNINGS": "ignore",
            "TVM_NUM_THREADS": str(threads),
            "TVM_THREAD_POOL_SPIN_COUNT": str(SPINS),
            "OMP_NUM_THREADS": str(threads),
            "TCL_WORKER_MEMORY": str(memory_bytes),
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, env=environment,
        )  # fmt: skip
        self.tasks: set[str] = set()
        self.built: list[Program] = []
        self.current: Program | None = None
        self.deadline = 0.0
        self.ready = False
        self._asked = time.monotonic()  # when the last request was sent, and the processor time used until then
        self._used = 0.0

    def wait_ready(self) -> None:
        if not self.ready:
            answer = self.answer(time.monotonic() + START_TIMEOUT_S, "unknown_error")
            self.ready = "ready" in answer

    def request(self, **message: Any) -> None:
        self._asked = time.monotonic()
        self._used = self._cpu_s()
        with contextlib.suppress(OSError):  # it died since its last answer; the next `answer` says how
            send(self.process.stdin, message)

    def answered(self, seconds: float) -> bool:
        """Whether an answer is there, or comes within so many seconds."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            return bool(selector.select(seconds))

    def answer(self, deadline: float, kind: str) -> dict[str, Any]:
        """The next answer; `kind` is what a crash counts as. Raises Died."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            limit = max(deadline - self._asked, 0.0)
            while not selector.select(max(0.0, deadline - time.monotonic())):
                waited, used = time.monotonic() - self._asked, self._cpu_s() - self._used
                if used < SHARE * limit and waited < PATIENCE * limit:
                    deadline = time.monotonic() + max(0.1, SHARE * limit - used)  # it had no processor: not the candidate's fault
                    continue
                self.kill()
                timeout = kind.replace("error", "timeout") if kind != "unknown_error" else kind
                raise Died(timeout, f"killed after {waited:.1f} s", stalled=used < 0.6 * waited)
        message = receive(self.process.stdout)
        if message is None:
            code = self.process.wait()
            tail = self._stderr_tail()
            name = signal.Signals(-code).name if code < 0 else f"status {code}"
            memory = "bad_alloc" in tail or "MemoryError" in tail or "Cannot allocate" in tail
            raise Died("out_of_memory" if memory else kind, f"the process ended with {name}")
        return message

    def call(self, deadline_s: float, kind: str, **message: Any) -> dict[str, Any]:
        self.request(**message)
        return self.answer(time.monotonic() + deadline_s, kind)

    def know(self, task_id: str, workload: str) -> None:
        if task_id not in self.tasks:
            self.call(60.0, "unknown_error", do="task", task=task_id, workload=workload)
            self.tasks.add(task_id)

    def _cpu_s(self) -> float:
        """Processor time the worker has used, seconds."""
        import psutil

        try:
            times = psutil.Process(self.process.pid).cpu_times()
        except psutil.NoSuchProcess:
            return 0.0
        return times.user + times.system

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.kill()
        for stream in (self.process.stdin, self.process.stdout, self.errors):
            with contextlib.suppress(OSError):
                stream.close()

    def _stderr_tail(self) -> str:
        self.errors.seek(0, os.SEEK_END)
        self.errors.seek(max(0, self.errors.tell() - 4096))
        return self.errors.read().decode(errors="replace")
