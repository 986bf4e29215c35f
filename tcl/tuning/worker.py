"""The worker process: builds programs in memory, keeps them, runs one when told to. Started by `tcl.tuning.worker_process`.

Requests and answers are JSON objects on a pipe. Nothing is pickled but the arguments that the process starts with. Whatever a program
or TVM prints goes to a file.

A candidate may crash, hang or eat memory: the process is disposable, and the coordinator knows what it was doing.
"""

from __future__ import annotations

import json
import os
import resource
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from tcl.tuning.placement import on_other_pages, placed

REFERENCE = "reference"
"""The name of the reference program's task, schedule and key."""


class Refused(Exception):
    """A candidate failed in a way the worker survives; `kind` is one of FAILURE_KINDS."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


class Worker:
    """One method per request; each returns the answer's fields."""

    def __init__(self) -> None:
        self.tasks: dict[str, Any] = {}  # task id -> module
        self.appliers: dict[tuple[str, str], Any] = {}  # (task id, target JSON) -> Applier
        self.built: dict[str, Any] = {}  # key of a built program -> library
        self.timers: dict[str, Callable[[list[Any]], float]] = {}  # key of a program that has run -> what times a repeat
        self.turns: dict[str, int] = {}  # task id -> the last turn in which a program of it ran
        self.on: dict[str, str] = {}  # key of a built program -> "cpu" or "cuda"
        self.arguments: dict[tuple[str, str], list[Any]] = {}  # (task id, device) -> tensors, of the reference and of the last task
        self.expected: tuple[str, list[np.ndarray]] | None = None

    def task(self, task: str, workload: str) -> dict[str, Any]:
        from tcl.tuning.workload import load

        self.tasks[task] = load(workload)
        return {}

    def forget(self, keep: str) -> dict[str, Any]:
        """Free the programs built so far, except one."""
        self.built = {key: library for key, library in self.built.items() if key == keep}
        self.timers = {key: timer for key, timer in self.timers.items() if key == keep}
        return {}

    def build(self, task: str, target: str, key: str, schedule: str) -> dict[str, Any]:
        """Compile a schedule of `task` ("" = unscheduled, "reference" = the reference program) in this process."""
        started = time.perf_counter()
        on = json.loads(target)
        if on["kind"] == "cuda" and schedule == "":  # an unscheduled program has no threads: it runs on the host
            on = on["host"]
        self.built[key] = self.compile(task, json.dumps(on), schedule)
        self.timers.pop(key, None)
        self.on[key] = "cuda" if on["kind"] == "cuda" else "cpu"
        if self.on[key] == "cuda":  # CUDA compiles at the first launch: that is building, and its time limit
            try:
                self._once(self.built[key], self._arguments(task, "cuda"), "cuda")
            except Exception as error:
                raise Refused(*failure_of(error, "build_error")) from None
        return {"seconds": time.perf_counter() - started}

    def compile(self, task: str, target: str, schedule: str, *, here: bool = True) -> Any:
        """A schedule of `task` as a library; see `build`, and `compile_module` for `here`. Raises Refused."""
        from tvm.target import Target

        from tcl.tuning.design_space import Applier, InvalidSchedule

        if (task, target) not in self.appliers:
            self.appliers[task, target] = Applier(self.tasks[task], Target(json.loads(target)))
        applier = self.appliers[task, target]
        try:
            if schedule == "":
                mod = applier.mod
            elif schedule == REFERENCE:
                mod = reference_schedule(applier.mod)
            else:
                mod = applier.schedule(schedule).mod
        except InvalidSchedule as error:
            raise Refused("invalid_schedule", str(error)) from None
        try:
            return compile_module(mod, applier.target, here=here)
        except MemoryError:
            raise
        except Exception as error:
            raise Refused(*failure_of(error, "build_error")) from None

    def run(self, task: str, key: str, turn: int, repeat_s: float, enough_s: float) -> dict[str, Any]:
        """Time one repeat of a built program, at least `repeat_s` seconds long: `cost` is the mean time of a run.

        Before its first repeat it is run to warm up; where that takes more than `enough_s` (and a repeat), it is the repeat. With
        another `turn` than the last one's of the task begins a round on other pages of memory.
        """
        on = self.on[key]
        arguments = self._arguments(task, on)
        if on == "cpu" and self.turns.setdefault(task, turn) != turn:
            self.turns[task] = turn
            arguments = self.arguments[task, on] = on_other_pages(arguments)
        try:
            if key not in self.timers:
                once = self._once(self.built[key], arguments, on)
                if once < repeat_s:  # the first run also pays for cold caches and lazy page mapping
                    once = self._once(self.built[key], arguments, on)
                if once > max(repeat_s, enough_s):
                    return {"cost": once}
                self.timers[key] = self._timer(self.built[key], on, once, repeat_s)
            return {"cost": self.timers[key](arguments)}
        except MemoryError:
            raise
        except Exception as error:
            raise Refused(*failure_of(error, "run_error")) from None

    def _timer(self, library: Any, on: str, once: float, repeat_s: float) -> Callable[[list[Any]], float]:
        """What times a repeat of a program that takes about `once` seconds."""
        import tvm

        if once >= repeat_s:  # TVM's evaluator would run it once more than needed
            return lambda arguments: self._once(library, arguments, on)
        number = min(round(repeat_s / max(once, 1e-7)) + 1, 100_000)
        evaluator = library.time_evaluator("main", tvm.device(on, 0), number=number, repeat=1)
        return lambda arguments: float(evaluator(*arguments).mean)

    def check(self, task: str, target: str, key: str) -> dict[str, Any]:
        """Run a built program and the unscheduled task on the same inputs; the largest error of the output."""
        if self.expected is None or self.expected[0] != task:
            self.build(task, target, "unscheduled", "")
            self.expected = (task, self._outputs(task, self.built.pop("unscheduled"), "cpu"))
        found = self._outputs(task, self.built[key], self.on[key])
        return {"error": max(largest_error(f, e) for f, e in zip(found, self.expected[1], strict=True))}

    def compare(self, key: str, example: str) -> dict[str, Any]:
        """Run a built program on the inputs of an .npz file (`input0`, …); the largest error of the output against `expected` there."""
        with np.load(example) as file:
            inputs = [file[f"input{i}"] for i in range(len(file.files) - 1)]
            expected = file["expected"]
        arguments = placed([*inputs, np.full_like(expected, np.nan)])
        self.built[key]["main"](*arguments)
        return {"error": largest_error(arguments[-1].numpy(), expected)}

    def _outputs(self, task: str, library: Any, on: str) -> list[np.ndarray]:
        """What a program writes to its output, the last argument; filled with NaN (77 for integers) before the run."""
        arguments = self._arguments(task, on)
        output = arguments[-1]
        blank = np.full(output.shape, np.nan if output.dtype.startswith("float") else 77, dtype=output.dtype)
        output.copyfrom(blank)
        library["main"](*arguments)
        return [output.numpy()]

    @staticmethod
    def _once(library: Any, arguments: list[Any], on: str) -> float:
        """Seconds of one run."""
        import tvm

        begin = time.perf_counter()
        library["main"](*arguments)
        if on != "cpu":
            tvm.device(on, 0).sync()
        return time.perf_counter() - begin

    def _arguments(self, task: str, on: str = "cpu") -> list[Any]:
        """Random inputs, made once per task and shared by its candidates. Floats lie in [0.1, 1): no denormal numbers, no
        square root of a negative variance; integers are 0 or 1, which index any table."""
        import tvm

        from tcl.tuning.workload import argument_shapes

        if (task, on) not in self.arguments:
            self.arguments = {key: tensors for key, tensors in self.arguments.items() if key[0] in (REFERENCE, task)}
            rng = np.random.default_rng(0)
            arrays = [
                rng.uniform(0.1, 1.0, shape).astype(dtype) if dtype.startswith("float") else rng.integers(0, 2, shape).astype(dtype)
                for shape, dtype in argument_shapes(self.tasks[task])
            ]
            here = on == "cpu"
            self.arguments[task, on] = placed(arrays) if here else [tvm.runtime.tensor(a, tvm.device(on, 0)) for a in arrays]
        return self.arguments[task, on]


def largest_error(found: np.ndarray, expected: np.ndarray) -> float:
    """The largest absolute difference relative to the largest absolute expected value; infinite for NaN or another shape."""
    if found.shape != expected.shape:
        return float("inf")
    difference = np.abs(found.astype(np.float64) - expected.astype(np.float64))
    error = float(np.max(difference, initial=0.0) / (np.max(np.abs(expected), initial=0.0) + 1e-12))
    return error if np.isfinite(error) else float("inf")


def compile_module(mod: Any, target: Any, *, here: bool = True) -> Any:
    """TIR -> machine code in this process (LLVM's JIT): nothing is written, linked or loaded. `here=False`: for another machine."""
    import tvm
    from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

    from tcl.tuning import fast_math

    fast_math.use()
    # The checks of argument shapes are left out: they are a fifth of the machine code of a small kernel, never of its time.
    with tvm.transform.PassContext(config={"tirx.disable_assert": True}):
        library = tvm.tirx.build(RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(mod), target)
    if here:
        library["main"]  # LLVM compiles when the function is first asked for
    return library


def reference_schedule(mod: Any) -> Any:
    """A plain parallel, vectorised matrix product: the yardstick that tells when the machine is busy with something else."""
    from tvm.s_tir import Schedule

    schedule = Schedule(mod)
    i, j, k = schedule.get_loops(schedule.get_child_blocks(schedule.get_sblock("root"))[0])
    outer, inner = schedule.split(j, [None, 64])
    schedule.reorder(i, outer, k, inner)
    schedule.parallel(i)
    schedule.vectorize(inner)
    schedule.decompose_reduction(schedule.get_child_blocks(schedule.get_sblock("root"))[0], k)
    return schedule.mod


def failure_of(error: Exception, kind: str) -> tuple[str, str]:
    """The failure kind and one line of an exception that TVM raised."""
    text = str(error).strip()
    line = text.splitlines()[-1][:300] if text else type(error).__name__
    memory = any(word in text for word in ("bad_alloc", "Cannot allocate", "out of memory", "Failed to allocate"))
    return ("out_of_memory" if memory else kind), line


def serve(pipe: Connection, printed: str, environment: Mapping[str, str], memory_bytes: int, make: Callable[[], Worker]) -> None:
    """Answer requests until the pipe is closed.

    Args:
        printed: the file that gets what is printed.
        memory_bytes: address space that may be taken beyond what is mapped already.
        make: the kind of worker.
    """
    output = os.open(printed, os.O_WRONLY | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    _die_with_coordinator(pipe)
    os.environ.update(environment)
    import tcl.tuning.worker_preload  # noqa: F401  (before the limit: mapping the libraries is not the candidate's fault)

    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + memory_bytes, mapped + memory_bytes))
    worker = make()
    pipe.send_bytes(json.dumps({"ready": os.getpid()}).encode())
    while True:
        try:
            request = json.loads(pipe.recv_bytes())
        except EOFError:
            return
        try:
            answer = getattr(worker, request.pop("do"))(**request)
        except Refused as error:
            answer = {"failed": error.kind, "detail": str(error)}
        except MemoryError as error:
            answer = {"failed": "out_of_memory", "detail": str(error)[:300]}
        except Exception as error:  # a mistake of ours: told apart from a candidate's failure
            answer = {"failed": "unknown_error", "detail": f"{type(error).__name__}: {error}"[:300]}
        pipe.send_bytes(json.dumps(answer).encode())


def _die_with_coordinator(pipe: Connection) -> None:
    """A candidate that hangs must not outlive a coordinator that was killed. Linux (PR_SET_PDEATHSIG) ends this process with the one
    that it was forked from; that one ends with the coordinator, unless something holds the files that tell it so."""
    import ctypes
    import signal

    os.closerange(3, pipe.fileno())
    os.closerange(pipe.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
