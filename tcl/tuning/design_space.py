"""TVM MetaSchedule's design spaces: random programs of a task, and programs back into scheduled modules.

A program's `schedule` is the trace `[instructions, decisions]` before post-processing, as compact JSON. Post-processors are
a function of the trace (they turn annotations into parallel, vectorised and unrolled loops), so they run again whenever a
program is applied.

All CPUs share one rule set, MetaSchedule's plain "llvm" rules and one of ours (`tcl.tuning.transposed`): no rule looks at the
vector width, and the rules for VNNI and AMX match integer workloads only. So the same program can be built for every ISA profile.

Nothing here may construct TVM's Python `TuneContext`: its constructor imports every tensor intrinsic of every target, which
takes 27-40 s. `tune_context` calls the constructor underneath.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tcl.errors import UserError
from tcl.programs.metaschedule_text import trace_text
from tcl.programs.types import Program, Task
from tcl.tuning.workload import FORMAT, load

if TYPE_CHECKING:
    from tvm.ir import IRModule
    from tvm.s_tir import Schedule
    from tvm.s_tir.meta_schedule import TuneContext
    from tvm.s_tir.meta_schedule.search_strategy import SearchStrategy
    from tvm.target import Target

ROUND = 64
"""Candidates asked of TVM at a time."""
BARREN_ROUNDS = 4
"""Rounds without a new program after which a design space counts as exhausted."""


class InvalidSchedule(Exception):
    """A schedule cannot be applied to its task, or a post-processor rejected it."""


def tune_context(mod: IRModule, target: Target, strategy: SearchStrategy | None = None, seed: int = 1, threads: int = 1) -> TuneContext:
    """A TVM context with the schedule rules, post-processors and mutators of `target`'s kind."""
    import tvm  # noqa: F401  (loads the library that registers the functions below)
    from tvm.s_tir.meta_schedule import _ffi_api
    from tvm.s_tir.meta_schedule.logging import get_logger, get_logging_func
    from tvm.s_tir.meta_schedule.mutator import Mutator
    from tvm.s_tir.meta_schedule.postproc import Postproc
    from tvm.s_tir.meta_schedule.schedule_rule import ScheduleRule
    from tvm.s_tir.meta_schedule.space_generator import PostOrderApply

    from tcl.tuning.transposed import TileTransposed, has_transposed

    kind = "cuda" if target.kind.name == "cuda" else "llvm"
    rules = list(ScheduleRule.create(kind))
    if kind == "llvm" and has_transposed(mod):
        last = next(i for i, rule in enumerate(rules) if type(rule).__name__ == "ParallelizeVectorizeUnroll")
        rules.insert(last, TileTransposed())
    space = PostOrderApply(sch_rules=rules, postprocs=Postproc.create(kind), mutator_probs=Mutator.create(kind))
    log = get_logging_func(get_logger("tcl.tuning"))
    context = _ffi_api.TuneContext(mod, target, space, strategy, "main", threads, _seed(seed), log)
    _ffi_api.TuneContextInitialize(context)
    return context


def sample_programs(task: Task, target: dict[str, Any], n: int, *, seed: int = 0, exclude: Iterable[int] = ()) -> list[Program]:
    """Up to `n` distinct valid programs of `task`: every decision drawn uniformly, over all design spaces alike.

    Args:
        target: TVM's JSON description; only its kind and `num-cores` have an influence.
        exclude: program ids that are not wanted again.

    Returns:
        Fewer than `n` where the design space holds no more (an elementwise task may have a dozen programs).
    """
    import tvm
    from tvm.s_tir.meta_schedule.search_strategy import ReplayTrace

    neutral = {key: value for key, value in target.items() if key not in ("mcpu", "mattr")}
    context = tune_context(module(task), tvm.target.Target(neutral), ReplayTrace(), seed)
    spaces = context.generate_design_space()
    context.pre_tuning(1 << 30, min(ROUND, max(n, 4)), spaces)
    seen, found, barren = set(exclude), [], 0
    while len(found) < n and barren < BARREN_ROUNDS:
        before = len(found)
        for candidate in context.generate_measure_candidates() or ():
            program = Program(task.id, schedule_text(candidate.sch.trace))
            if program.id not in seen and len(found) < n:
                seen.add(program.id)
                found.append(program)
        barren = barren + 1 if len(found) == before else 0
    return found


def schedule_text(trace: Any) -> str:
    """A TVM trace as a program's `schedule`: dead instructions and post-processing removed, compact JSON."""
    return trace_text(json.loads(json.dumps(trace.simplified(remove_postproc=True).as_json(), default=_number)))


def _number(value: Any) -> int | float:
    """TVM leaves some constants of a trace boxed (IntImm, FloatImm)."""
    return float(value.value) if type(value).__name__ == "FloatImm" else int(value)


def module(task: Task) -> IRModule:
    """The task's TVM module, unscheduled.

    Raises:
        UserError: the task came from a log of another system.
    """
    if task.format != FORMAT:
        raise UserError(
            f"The task {task.name!r} comes from {task.format} records and cannot be compiled here.",
            hint="Only tasks collected or imported from TVM MetaSchedule can.",
        )
    return load(task.workload)


def apply(task: Task, program: Program, target: dict[str, Any]) -> IRModule:
    """The scheduled, post-processed module of `program` for `target`.

    Raises:
        InvalidSchedule: TVM refuses the schedule.
    """
    import tvm

    mod = module(task)
    return Applier(mod, tvm.target.Target(target)).schedule(program.schedule).mod


class Applier:
    """Applies many schedules of one task for one target."""

    def __init__(self, mod: IRModule, target: Target) -> None:
        self.mod = mod
        self.target = target
        self._postprocs = list(tune_context(mod, target).space_generator.postprocs)

    def schedule(self, text: str) -> Schedule:
        """The TVM schedule of a program's `schedule` text.

        Raises:
            InvalidSchedule: it does not fit the task, or a post-processor rejected it.
        """
        from tvm.s_tir import Schedule
        from tvm.s_tir.schedule import Trace

        # The seed settles the random choices that some GPU post-processors make: one text, one module.
        schedule = Schedule(self.mod, seed=_seed(len(text)))
        try:
            Trace.apply_json_to_schedule(json.loads(text), schedule)
            schedule.enter_postproc()
            for postproc in self._postprocs:
                if not postproc.apply(schedule):
                    raise InvalidSchedule(f"rejected by {type(postproc).__name__}")
        except InvalidSchedule:
            raise
        except Exception as error:
            raise InvalidSchedule(str(error).strip().splitlines()[-1][:300]) from None
        return schedule


def _seed(value: int) -> int:
    """TVM's seeds lie in [1, 2^31 - 1]."""
    return value % (2**31 - 1) or 1
