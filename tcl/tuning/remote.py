"""Measuring on other machines: programs are compiled here and run on the devices of a TVM RPC tracker.

    with RemoteMeasurer(Tracker("127.0.0.1", 9190, "rpi4")) as measurer:
        measurements = measurer.measure(platform, task, programs)

One worker process a device (`tcl.tuning.remote_worker`): each compiles a program, asks the tracker for a device of the key, runs it
there and gives the device back. So several devices measure at once, and one that drops out costs the time of the program that it
had: that program is tried again on another device, and only a program that fails twice is to blame.
"""

from __future__ import annotations

import json
import math
import queue
import shutil
import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from tcl.errors import UserError
from tcl.programs.types import Measurement, Platform, Program, Task, format_id
from tcl.tuning.measure import MeasureStats
from tcl.tuning.remote_worker import RemoteWorker
from tcl.tuning.targets import host_target, this_machine
from tcl.tuning.worker_process import Died, WorkerProcess

TRIES = 2
"""A program that takes its worker or its device down so often is to blame."""


@dataclass(frozen=True)
class Tracker:
    """A TVM RPC tracker, and the key under which the wanted devices have registered."""

    host: str
    port: int
    key: str

    @classmethod
    def parse(cls, address: str, key: str) -> Tracker:
        """From HOST:PORT. Raises UserError for anything else."""
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise UserError(f"{address!r} is no address of a tracker.", hint="Write it HOST:PORT, such as 192.168.1.10:9190.")
        if not key:
            raise UserError("The devices have no name.", hint="Give --key, the name under which they registered at the tracker.")
        return cls(host, int(port), key)

    def devices(self) -> int:
        """How many devices of the key are registered now.

        Raises:
            UserError: nothing answers at the address.
        """
        import socket

        from tvm import rpc

        try:
            socket.create_connection((self.host, self.port), timeout=5.0).close()  # TVM alone would try for a minute
            summary = rpc.connect_tracker(self.host, self.port).summary()
        except Exception as error:  # OSError, or RuntimeError after TVM's own retries
            raise UserError(
                f"No tracker answers at {self.host}:{self.port} ({str(error).strip().splitlines()[-1][:120]}).",
                hint="Start one: python -m tvm.exec.rpc_tracker --port 9190.",
            ) from None
        return sum(server["key"] == f"server:{self.key}" for server in summary["server_info"])


class RemoteMeasurer:
    """Measures and checks like `tcl.tuning.measure.Measurer`, on the devices of a tracker.

    Args:
        cc: the compiler that links for the devices; "" for this machine's, where they have its architecture.
        patience_s: how long to wait for a device when none is left before giving up.
        repeats, repeat_s, cutoff, budget_s, build_timeout_s, run_timeout_s: as for `Measurer`; a run includes the transfer.
    """

    def __init__(
        self,
        tracker: Tracker,
        *,
        cc: str = "",
        threads: int | None = None,
        repeats: int = 5,
        repeat_s: float = 0.005,
        cutoff: float = 10.0,
        budget_s: float = 0.15,
        build_timeout_s: float = 20.0,
        run_timeout_s: float = 20.0,
        patience_s: float = 120.0,
    ) -> None:
        if cc and not shutil.which(cc):
            raise UserError(f"There is no compiler {cc} here.", hint="Install it, or name another one that links for the devices: --cc.")
        self.tracker, self.cc, self.patience_s = tracker, cc, patience_s
        devices = tracker.devices()
        if not devices:
            raise UserError(
                f"No device called {tracker.key!r} is registered at {tracker.host}:{tracker.port}.",
                hint=f"On the device: python -m tvm.exec.rpc_server --tracker {tracker.host}:{tracker.port} --key {tracker.key}.",
            )
        self.threads = threads or this_machine().cores
        self.repeats, self.repeat_s, self.cutoff, self.budget_s = repeats, repeat_s, cutoff, budget_s
        self.build_timeout_s, self.run_timeout_s = build_timeout_s, run_timeout_s
        self.stats = MeasureStats()
        self.best: dict[tuple[str, int], float] = {}
        """(platform, task) -> the lowest latency seen, seconds."""
        memory = max(2 << 30, this_machine().memory_bytes // (2 * devices))
        self._make = lambda: WorkerProcess(1, memory, RemoteWorker)
        self._workers = [self._make() for _ in range(devices)]
        self._lock = threading.Lock()

    def __enter__(self) -> RemoteMeasurer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the workers; their devices are free again."""
        for worker in self._workers:
            worker.close()

    def measure(
        self, platform: Platform, task: Task, programs: Sequence[Program], *, source: str = "", repeats: int | None = None
    ) -> list[Measurement]:
        """Build here and time on the devices; one measurement a program, in their order. `repeats`: another number than usual, with a
        budget to match.

        Raises:
            UserError: no device answered for `patience_s`. What was measured before this batch is kept by whoever asked.
        """
        found = self._all(platform, task, programs, partial(self._time, repeats=repeats or self.repeats))
        rows = []
        for program in programs:
            outcome = found[program.id]
            self.stats.measured += "costs" in outcome
            self.stats.failed.update([outcome["failed"]] if "failed" in outcome else [])
            rows.append(
                Measurement.now(
                    program=program.id, task=task.id, platform=platform.name, costs_s=tuple(outcome.get("costs", ())),
                    error=outcome.get("failed", ""), detail=outcome.get("detail", ""), source=source,
                )
            )  # fmt: skip
        return rows

    def check(self, platform: Platform, task: Task, program: Program) -> float:
        """The largest error of the program's output on a device against the unscheduled task's on this machine, relative to the
        largest expected value; infinity when it cannot be built or run."""
        return float(self._all(platform, task, [program], self._compare)[program.id].get("error", math.inf))

    # -- one batch -----------------------------------------------------------------------------------------------------

    def _all(self, platform: Platform, task: Task, programs: Sequence[Program], do: Any) -> dict[int, dict[str, Any]]:
        """What became of each program: a thread a worker takes them one by one."""
        waiting: queue.SimpleQueue[Program] = queue.SimpleQueue()
        for program in programs:
            waiting.put(program)
        found: dict[int, dict[str, Any]] = {}
        deaths: dict[int, int] = {}
        errors: list[UserError] = []
        begin = time.monotonic()

        def serve(index: int) -> None:
            while len(found) < len(programs) and not errors:
                try:
                    program = waiting.get(timeout=0.2)
                except queue.Empty:
                    continue  # another worker may yet lose its device and give its program back
                try:
                    outcome = self._one(self._workers[index], platform, task, program, do)
                except UserError as error:
                    errors.append(error)
                    return
                except Died as death:
                    self._replace(index)
                    deaths[program.id] = deaths.get(program.id, 0) + 1
                    if deaths[program.id] < TRIES and not (death.kind == "build_timeout" and not death.stalled):
                        waiting.put(program)
                        continue
                    outcome = {"failed": death.kind, "detail": str(death)}
                if _lost(outcome) and deaths.get(program.id, 0) + 1 < TRIES:
                    deaths[program.id] = deaths.get(program.id, 0) + 1
                    self._replace(index)
                    waiting.put(program)
                    continue
                found[program.id] = outcome

        threads = [threading.Thread(target=serve, args=(i,), daemon=True) for i in range(len(self._workers))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.stats.run_s += time.monotonic() - begin
        if errors:
            raise errors[0]
        return found

    def _one(self, worker: WorkerProcess, platform: Platform, task: Task, program: Program, do: Any) -> dict[str, Any]:
        worker.wait_ready()
        worker.know(format_id(task.id), task.workload)
        linked = worker.call(
            self.build_timeout_s, "build_error", do="link", task=format_id(task.id), target=platform.target,
            key=format_id(program.id), schedule=program.schedule, cc=self.cc,
        )  # fmt: skip
        if "failed" in linked:
            return linked
        self._acquire(worker)
        try:
            return do(worker, platform, task, program)
        finally:
            if worker.process.is_alive():
                worker.call(10.0, "run_error", do="release")

    def _acquire(self, worker: WorkerProcess) -> None:
        """Wait until the worker has a device. Raises UserError when there is none to wait for; Died, to try again, otherwise."""
        until = time.monotonic() + self.patience_s
        worker.request(
            do="acquire", host=self.tracker.host, port=self.tracker.port, key=self.tracker.key, session_s=self.run_timeout_s + 30.0
        )
        while not worker.answered(2.0):
            if time.monotonic() > until and not self.tracker.devices():
                raise UserError(
                    f"No device called {self.tracker.key!r} has answered for {self.patience_s:.0f} s.",
                    hint="Start its server again, then this command: it goes on where it was.",
                )
        answer = worker.answer(time.monotonic() + 5.0, "run_error")
        if "failed" in answer:  # the device vanished between the tracker's answer and ours
            worker.kill()
            raise Died("run_error", answer.get("detail", "no session"), stalled=True)

    def _time(self, worker: WorkerProcess, platform: Platform, task: Task, program: Program, repeats: int) -> dict[str, Any]:
        place, budget_s = (platform.name, task.id), self.budget_s * repeats / self.repeats
        answer = worker.call(
            self.run_timeout_s + budget_s, "run_error", do="run_there", task=format_id(task.id), key=format_id(program.id),
            repeats=repeats, repeat_s=self.repeat_s, best_s=self.best.get(place, 0.0), cutoff=self.cutoff, budget_s=budget_s,
        )  # fmt: skip
        if "costs" in answer:
            with self._lock:
                self.best[place] = min(self.best.get(place, math.inf), statistics.median(answer["costs"]))
        return answer

    def _compare(self, worker: WorkerProcess, platform: Platform, task: Task, program: Program) -> dict[str, Any]:
        # the unscheduled program, which runs here, is slow: seconds for a large convolution
        return worker.call(
            self.run_timeout_s + 60.0, "run_error", do="check_there", task=format_id(task.id), key=format_id(program.id),
            here=json.dumps(host_target()),
        )  # fmt: skip

    def _replace(self, index: int) -> None:
        self.stats.restarts += 1
        self._workers[index].close()
        self._workers[index] = self._make()


def _lost(outcome: dict[str, Any]) -> bool:
    """Whether a failure is the connection's and so perhaps not the program's: TVM reports a vanished device as an error of the call."""
    text = outcome.get("detail", "").lower()
    words = ("socket", "rpc", "connection", "broken pipe", "session", "recv", "channel")
    return outcome.get("failed") in ("run_error", "unknown_error") and any(word in text for word in words)


def run_network_there(library: Path, inputs: Path, tracker: Tracker, *, repeats: int = 10, timeout_s: float = 600.0) -> Any:
    """Run an exported network on a device of the tracker's, from a process of its own; as `tcl.tuning.network_run.run_network`."""
    from tcl.tuning.apart import call

    return call(_run_there, str(library), str(inputs), tracker, repeats, timeout_s=timeout_s)


def _run_there(library: str, inputs: str, tracker: Tracker, repeats: int) -> Any:
    import numpy as np
    import tvm
    from tvm import relax, rpc

    from tcl.tuning.network_run import NetworkRun

    session = rpc.connect_tracker(tracker.host, tracker.port).request(tracker.key, session_timeout=600.0)
    session.upload(library)
    device = session.cpu(0)
    machine = relax.VirtualMachine(session.load_module(Path(library).name), device)
    with np.load(inputs) as file:
        arguments = [tvm.runtime.tensor(file[f"input{i}"], device) for i in range(len(file.files))]
    machine.set_input("main", *arguments)
    machine.invoke_stateful("main")
    out = machine.get_outputs("main")
    timed = machine.time_evaluator("invoke_stateful", device, number=1, repeat=repeats)("main")
    outputs = [out] if not isinstance(out, tuple | list) else list(out)
    return NetworkRun(tuple(float(c) for c in timed.results), tuple(o.numpy() for o in outputs))
