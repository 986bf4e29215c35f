"""Building and timing programs: fast, isolated, and honest about a machine that is busy with something else.

    with Measurer() as measurer:
        measurements = measurer.measure(platform, task, programs)

Why not MetaSchedule's own builder and runner: they start fresh processes for every batch, each of which imports every
tensor intrinsic of every target (27-40 s, longer than their own time limit), writes an archive, links it and loads it.
Here worker processes stay warm, compile in memory (LLVM's JIT) and run what they compiled.

- All programs of a batch are built first, by all workers at once; then they run one after another, each on all cores: a repeat
  each in turns, so that what slows the machine down for a while slows all of them down.
- A candidate that crashes, hangs or eats memory costs itself: its worker is replaced, what that worker had built is built
  again, the failure keeps its kind.
- A reference program is timed before and after the runs of a batch. When it is slower than usual, something else was
  running, and the batch is timed again: that counts alone if nothing disturbed it, else together with what was timed before.
"""

from __future__ import annotations

import json
import math
import selectors
import statistics
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from tcl.errors import UserError
from tcl.machine import quiet
from tcl.programs.types import Measurement, Platform, Program, Task, format_id
from tcl.tuning.cuda import missing
from tcl.tuning.targets import this_machine
from tcl.tuning.worker import REFERENCE
from tcl.tuning.worker_process import Died, WorkerProcess

STEADY = 1.08
"""The machine counts as busy when the reference program takes this many times its usual latency."""
RETRIES = 2
"""How often a batch is timed again because the machine was busy."""
SPIKE = 2.0
"""What else runs on the machine may slow a single repeat down by so much."""
LEAST_BUILD_S = 0.5
"""`build_patience` never gives a build up before so many seconds."""


@dataclass
class MeasureStats:
    """What a `Measurer` did so far; seconds of wall time."""

    measured: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    waiting_s: float = 0.0  # for other work to end
    build_s: float = 0.0
    run_s: float = 0.0
    timed_again: int = 0  # batches
    busy: int = 0  # batches that stayed disturbed after all retries
    restarts: int = 0


class Measurer:
    """Warm workers that build and time programs of any task on any CPU platform of this machine.

    Args:
        workers: processes that build at the same time; default one per core.
        threads: threads that a program runs on; default all cores.
        repeats: timed repeats of a program, each time that its batch is timed.
        repeat_s: a repeat runs the program as often as it takes to last this long.
        cutoff: a candidate this many times slower than the task's best so far gets no further repeat.
        budget_s: no further repeat starts when a candidate has run this long.
        build_timeout_s, run_timeout_s: a candidate that takes longer is killed.
        build_patience: so is one whose build takes this many times the median of its task, and more than half a second. What LLVM
            compiles for so long has unrolled too much to be fast, and a tuner has better things to do. As long as no build of a
            task has ended, the reference program's counts, doubled with every two builds that were given up.
        check_timeout_s: for a check of its output, the unscheduled task's run included.
        memory_bytes: address space a worker may take beyond what TVM itself maps.
    """

    def __init__(
        self,
        *,
        workers: int | None = None,
        threads: int | None = None,
        repeats: int = 5,
        repeat_s: float = 0.005,
        cutoff: float = 10.0,
        budget_s: float = 0.15,
        build_timeout_s: float = 5.0,
        build_patience: float = math.inf,
        run_timeout_s: float = 5.0,
        check_timeout_s: float = 60.0,
        memory_bytes: int | None = None,
    ) -> None:
        machine = this_machine()
        self.threads = threads or machine.cores
        self.repeats, self.repeat_s, self.cutoff, self.budget_s = repeats, repeat_s, cutoff, budget_s
        self.build_timeout_s, self.run_timeout_s, self.check_timeout_s = build_timeout_s, run_timeout_s, check_timeout_s
        self.build_patience = build_patience
        count = workers or machine.cores
        self.memory_bytes = memory_bytes or max(2 << 30, machine.memory_bytes // (2 * count))
        self.stats = MeasureStats()
        self.best: dict[tuple[str, int], float] = {}
        """(platform, task) -> the lowest latency seen, seconds; seed it when resuming, so that the cut-off works at once."""
        self.reference_s: list[float] = []
        """Every latency of the reference program, in the order of measuring."""
        self._workers = [WorkerProcess(self.threads, self.memory_bytes) for _ in range(count)]
        self._reference_task: tuple[str, str] | None = None
        self._reference_build_s = 0.1  # until it is built
        self._suspects: set[int] = set()
        self._turns = 0
        self._build_s: dict[tuple[str, int], list[float]] = {}  # (platform, task) -> seconds of its builds
        self._given_up: Counter[tuple[str, int]] = Counter()  # builds that took too long

    def __enter__(self) -> Measurer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the workers."""
        for worker in self._workers:
            worker.close()

    def measure(
        self, platform: Platform, task: Task, programs: Sequence[Program], *, source: str = "", repeats: int | None = None
    ) -> list[Measurement]:
        """Build and time `programs` of `task` on `platform`, alone on the machine.

        Returns one measurement a program, in their order: its costs, up to `repeats` each time that the batch was timed, or the kind
        of failure. The n-th costs of all were timed in the same turn. `repeats`: another number than usual, with a budget to match;
        such a batch is timed once, however busy the machine, and no candidate is cut off.
        """
        if platform.kind != "cpu" and (why := missing(json.loads(platform.target))):
            raise UserError(f"{platform.name} cannot be measured: {why}")
        found: dict[int, dict[str, Any]] = {}
        begin = time.monotonic()
        with quiet():
            self.stats.waiting_s += time.monotonic() - begin
            self._build_and_run(platform, task, list(programs), found, repeats)
        measurements = []
        for program in programs:
            outcome = found[program.id]
            self.stats.measured += "costs" in outcome
            self.stats.failed.update([outcome["failed"]] if "failed" in outcome else [])
            measurements.append(
                Measurement.now(
                    program=program.id, task=task.id, platform=platform.name, costs_s=tuple(outcome.get("costs", ())),
                    error=outcome.get("failed", ""), detail=outcome.get("detail", ""), source=source,
                )
            )  # fmt: skip
        return measurements

    def check(self, platform: Platform, task: Task, program: Program, example: Path | None = None) -> float:
        """The largest error of the program's output against the unscheduled task's, or against what an example has (an .npz file of
        `input0`, … and `expected`), relative to the largest expected value; infinity when it cannot be built or run, NaN when
        that could not be told: the time ran out, twice."""
        with quiet():
            for _ in range(2):
                worker = self._workers[0]
                try:
                    return self._check(worker, platform, task, program, example)
                except Died as death:
                    self._restart(worker)
                    outcome = float("nan") if death.kind.endswith("timeout") or death.kind == "unknown_error" else float("inf")
            return outcome

    def _check(self, worker: WorkerProcess, platform: Platform, task: Task, program: Program, example: Path | None) -> float:
        self._prepare(worker, task)
        key, task_id = format_id(program.id), format_id(task.id)
        built = worker.call(
            self.build_timeout_s, "build_error", do="build", task=task_id, target=platform.target, key=key, schedule=program.schedule
        )
        if "failed" in built:
            return float("inf")
        unscheduled = {"do": "check", "task": task_id, "target": platform.target}
        beside = unscheduled if example is None else {"do": "compare", "example": str(example)}
        answer = worker.call(self.check_timeout_s, "run_error", key=key, **beside)  # unscheduled, a large convolution takes seconds
        return float(answer.get("error", "inf"))

    # -- one batch -----------------------------------------------------------------------------------------------------

    def _build_and_run(
        self, platform: Platform, task: Task, programs: list[Program], found: dict[int, dict[str, Any]], repeats: int | None
    ) -> None:
        for index in range(len(self._workers)):
            self._forget(index)
        self._suspects = set()
        waiting = programs
        while waiting:  # more than once only where a crash took built programs with it
            self._build(platform, task, waiting, found)
            for _ in range(0 if self.reference_s else 3):
                self.time_reference()  # the first ones are slow: caches and clocks are cold, and the batch would be timed again for it
            retries = RETRIES if repeats is None else 0
            timings: list[dict[int, dict[str, Any]]] = []
            for attempt in range(retries + 1):
                before = self.time_reference()
                cutoff = self.cutoff if repeats is None else math.inf
                timings.append(self._run(platform, task, repeats or self.repeats, cutoff))
                after = self.time_reference()
                steady = max(before, after) <= STEADY * self._usual_reference()
                if steady or attempt == retries:
                    self.stats.busy += not steady
                    break
                self.stats.timed_again += 1
            found |= together(timings[-1:] if steady else timings)
            for worker in self._workers:
                worker.built = []
            waiting = [p for p in programs if p.id not in found]

    def _build(self, platform: Platform, task: Task, programs: list[Program], found: dict[int, dict[str, Any]]) -> None:
        begin = time.monotonic()
        queue = deque(programs)
        place = (platform.name, task.id)
        seconds = self._build_s.setdefault(place, [])
        while queue or any(w.current for w in self._workers):
            for worker in list(self._workers):
                starting = not worker.ready and not worker.answered(0.0)
                if starting and any(w.current for w in self._workers):
                    continue  # the others need not wait for it
                if worker.current is None and queue:
                    self._prepare(worker, task)
                    worker.current = queue.popleft()
                    worker.deadline = time.monotonic() + self._build_limit(place)
                    worker.request(
                        do="build", task=format_id(task.id), target=platform.target,
                        key=format_id(worker.current.id), schedule=worker.current.schedule,
                    )  # fmt: skip
            for worker in self._first_to_answer():
                if worker.current is None:
                    worker.wait_ready()
                    continue
                program, worker.current = worker.current, None
                try:
                    answer = worker.answer(worker.deadline, "build_error")
                except Died as death:
                    self._given_up[place] += death.kind == "build_timeout"
                    if self._is_convicted(program, death):
                        found[program.id] = {"failed": death.kind, "detail": str(death)}
                    else:
                        queue.append(program)
                    queue.extend(worker.built)
                    self._restart(worker)
                    continue
                if "failed" in answer:
                    found[program.id] = answer
                else:
                    worker.built.append(program)
                    seconds.append(answer["seconds"])
        self.stats.build_s += time.monotonic() - begin

    def _build_limit(self, place: tuple[str, int]) -> float:
        known = self._build_s[place] or [self._reference_build_s * 2 ** (self._given_up[place] // 2)]
        usual = statistics.median(known)
        return min(self.build_timeout_s, max(LEAST_BUILD_S, self.build_patience * usual))

    def _first_to_answer(self) -> list[WorkerProcess]:
        """The workers that have answered (or started), or are over their time limit."""
        busy = [w for w in self._workers if w.current is not None]
        with selectors.DefaultSelector() as selector:
            for worker in busy + [w for w in self._workers if not w.ready]:
                selector.register(worker.pipe, selectors.EVENT_READ, worker)
            patience = min((w.deadline for w in busy), default=0.0) - time.monotonic()
            ready = [key.data for key, _ in selector.select(max(0.0, patience))]
        return ready or [w for w in busy if w.deadline <= time.monotonic()]

    def _run(self, platform: Platform, task: Task, repeats: int, cutoff: float) -> dict[int, dict[str, Any]]:
        """Run what the workers hold, one program at a time, a repeat each in turns: `costs` or `failed` of each; what is lost with a
        worker that died is missing."""
        begin = time.monotonic()
        found: dict[int, dict[str, Any]] = {}
        place, budget_s = (platform.name, task.id), self.budget_s * repeats / self.repeats
        best_s = self.best.get(place, math.inf)
        costs: dict[int, list[float]] = {}
        left: dict[int, int] = {}  # repeats that a program has left
        for _ in range(repeats):
            self._turns += 1
            for worker in list(self._workers):
                for program in [p for p in worker.built if left.get(p.id, repeats)]:
                    try:
                        answer = worker.call(
                            self.run_timeout_s, "run_error", do="run", task=format_id(task.id), key=format_id(program.id),
                            turn=self._turns, repeat_s=self.repeat_s, enough_s=min(2 * budget_s, SPIKE * cutoff * best_s),
                        )  # fmt: skip
                    except Died as death:
                        for lost in (p for p in worker.built if left.get(p.id, repeats)):
                            costs.pop(lost.id, None)
                        if self._is_convicted(program, death):
                            found[program.id] = {"failed": death.kind, "detail": str(death)}
                        self._restart(worker)
                        break
                    if "failed" in answer:
                        costs.pop(program.id, None)
                        found[program.id], left[program.id] = answer, 0
                        continue
                    known = costs.setdefault(program.id, [])
                    known.append(answer["cost"])
                    best_s = min(best_s, known[-1])
                    affordable = max(1, int(budget_s / max(known[0], self.repeat_s)))
                    hopeless = min(known) > cutoff * best_s * (SPIKE if len(known) == 1 else 1.0)
                    left[program.id] = 0 if hopeless else min(repeats, affordable) - len(known)
        for known in costs.values():
            self.best[place] = min(self.best.get(place, math.inf), statistics.median(known))
        self.stats.run_s += time.monotonic() - begin
        return found | {program_id: {"costs": known} for program_id, known in costs.items()}

    def _is_convicted(self, program: Program, death: Died) -> bool:
        """Whether the program is to blame. A worker that ran out of time while it computed is proof; anything else must
        happen twice, for the first time may have been bad luck (a stalled machine, another process that took the memory)."""
        if program.id in self._suspects or (death.kind.endswith("timeout") and not death.stalled):
            return True
        self._suspects.add(program.id)
        return False

    # -- the reference program -----------------------------------------------------------------------------------------

    def time_reference(self) -> float:
        """The latency, in seconds, of a fixed 256x256x256 matrix product right now."""
        for _ in range(2):
            worker = self._workers[0]
            try:
                worker.wait_ready()
                if REFERENCE not in worker.tasks:
                    self._build_reference(worker)
                ask = {"do": "run", "task": REFERENCE, "key": REFERENCE, "turn": 0, "repeat_s": 0.005, "enough_s": math.inf}
                costs = [worker.call(10.0, "run_error", **ask)["cost"] for _ in range(5)]
                self.reference_s.append(statistics.median(costs))
                return self.reference_s[-1]
            except Died:
                self._restart(worker)
        raise UserError("The worker process ends as soon as it starts.", hint="Check that TVM works: python -c 'import tvm'.")

    def _usual_reference(self) -> float:
        """The median of the last hundred; on a quiet machine single values differ from it by up to 5 %."""
        return statistics.median(self.reference_s[-100:])

    def _build_reference(self, worker: WorkerProcess) -> None:
        if self._reference_task is None:
            from tcl.tuning.operators import operator_task

            self._reference_task = (operator_task("matmul:256,256,256").workload, json.dumps({"kind": "llvm", "num-cores": self.threads}))
        workload, target = self._reference_task
        worker.know(REFERENCE, workload)
        answer = worker.call(60.0, "build_error", do="build", task=REFERENCE, target=target, key=REFERENCE, schedule=REFERENCE)
        self._reference_build_s = answer["seconds"]

    # -- workers -------------------------------------------------------------------------------------------------------

    def _prepare(self, worker: WorkerProcess, task: Task) -> None:
        worker.wait_ready()
        worker.know(format_id(task.id), task.workload)

    def _forget(self, index: int) -> None:
        worker = self._workers[index]
        try:
            worker.wait_ready()
            worker.call(10.0, "unknown_error", do="forget", keep=REFERENCE)
            worker.built = []
        except Died:
            self._restart(worker)

    def _restart(self, worker: WorkerProcess) -> WorkerProcess:
        self.stats.restarts += 1
        worker.close()
        fresh = WorkerProcess(self.threads, self.memory_bytes)
        self._workers[self._workers.index(worker)] = fresh
        return fresh


def together(timings: Sequence[dict[int, dict[str, Any]]]) -> dict[int, dict[str, Any]]:
    """Several timings of a batch as one: all costs of a program; a failure counts always."""
    found: dict[int, dict[str, Any]] = {}
    for timing in timings:
        for program_id, outcome in timing.items():
            known = found.setdefault(program_id, outcome)
            if known is not outcome and "costs" in known:
                found[program_id] = {"costs": known["costs"] + outcome["costs"]} if "costs" in outcome else outcome
    return found
