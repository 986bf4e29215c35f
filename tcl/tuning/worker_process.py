"""A worker process as its coordinator sees it: requests go in, answers come out, and a deadline that is fair to a slow machine."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import tempfile
import time
from typing import Any

from tcl.programs.types import Program
from tcl.tuning.apart import FREE_THREADS
from tcl.tuning.worker import Worker, serve

CONTEXT = multiprocessing.get_context("forkserver")
"""Workers are forked from a process that has imported what they need and started no thread."""
CONTEXT.set_forkserver_preload(["__main__", "tcl.tuning.worker_preload"])
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

    def __init__(self, threads: int, memory_bytes: int, make: type[Worker] | None = None) -> None:
        self.printed = tempfile.NamedTemporaryFile()  # noqa: SIM115  (lives as long as the process)
        environment = {
            "TVM_NUM_THREADS": str(threads), "TVM_THREAD_POOL_SPIN_COUNT": str(SPINS), **FREE_THREADS,
        }  # fmt: skip
        self.pipe, theirs = CONTEXT.Pipe()
        arguments = (theirs, self.printed.name, environment, memory_bytes, make or Worker)
        self.process = CONTEXT.Process(target=serve, args=arguments, daemon=True)
        self.process.start()
        theirs.close()
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
            self.pipe.send_bytes(json.dumps(message).encode())

    def answered(self, seconds: float) -> bool:
        """Whether an answer is there, or comes within so many seconds."""
        return self.pipe.poll(seconds)

    def answer(self, deadline: float, kind: str) -> dict[str, Any]:
        """The next answer; `kind` is what a crash counts as. Raises Died."""
        limit = max(deadline - self._asked, 0.0)
        while not self.pipe.poll(max(0.0, deadline - time.monotonic())):
            waited, used = time.monotonic() - self._asked, self._cpu_s() - self._used
            if used < SHARE * limit and waited < PATIENCE * limit:
                deadline = time.monotonic() + max(0.1, SHARE * limit - used)  # it had no processor: not the candidate's fault
                continue
            self.kill()
            timeout = kind.replace("error", "timeout") if kind != "unknown_error" else kind
            raise Died(timeout, f"killed after {waited:.1f} s", stalled=used < 0.6 * waited)
        try:
            return json.loads(self.pipe.recv_bytes())
        except (EOFError, OSError):
            self.process.join()
            code = self.process.exitcode or 0
            tail = self._printed_tail()
            name = signal.Signals(-code).name if code < 0 else f"status {code}"
            memory = "bad_alloc" in tail or "MemoryError" in tail or "Cannot allocate" in tail
            raise Died("out_of_memory" if memory else kind, f"the process ended with {name}") from None

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
        self.process.join()

    def close(self) -> None:
        self.kill()
        self.pipe.close()
        self.printed.close()

    def _printed_tail(self) -> str:
        self.printed.seek(0, os.SEEK_END)
        self.printed.seek(max(0, self.printed.tell() - 4096))
        return self.printed.read().decode(errors="replace")
