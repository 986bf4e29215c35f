"""`tcl bench steps`: one matrix product, scheduled by hand one primitive at a time, and measured after each.

    tcl bench steps --out assets/lessons/matmul_steps.json

What the first lesson shows. Two of the moves try a primitive on the wrong loop: they stand before the right one, and no later move builds
on them. The moves are ours, chosen to teach: each is what people do first to a matrix product on a CPU, not what a search would find.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tcl.bench import report
from tcl.machine import quiet
from tcl.progress import Progress

VECTOR, ROWS, PIECE = 32, 8, 4
"""Columns computed by one vector statement, rows that share what it loads, products added in one turn of the inner loop."""
SPEEDUP = 20.0


@dataclass(frozen=True)
class Move:
    """One step. do: applies it to a TVM schedule, with the loops by name; None: nothing is applied. wrong: the right primitive on the wrong
    loop, which no later move builds on."""

    name: str
    text: str
    do: Callable[[Any, dict[str, Any]], None] | None = None
    wrong: bool = False


def _reorder(s: Any, at: dict[str, Any]) -> None:
    s.reorder(at["i"], at["k"], at["j"])


def _reorder_badly(s: Any, at: dict[str, Any]) -> None:
    s.reorder(at["j"], at["k"], at["i"])


def _split_j(s: Any, at: dict[str, Any]) -> None:
    at["j0"], at["j1"] = s.split(at["j"], [None, VECTOR])
    s.reorder(at["i"], at["j0"], at["k"], at["j1"])


def _vectorize(s: Any, at: dict[str, Any]) -> None:
    s.vectorize(at["j1"])


def _split_i(s: Any, at: dict[str, Any]) -> None:
    at["i0"], at["i1"] = s.split(at["i"], [None, ROWS])
    s.reorder(at["i0"], at["j0"], at["k"], at["i1"], at["j1"])


def _unroll(s: Any, at: dict[str, Any]) -> None:
    s.unroll(at["i1"])


def _cache(s: Any, at: dict[str, Any]) -> None:
    copy = s.cache_write(at["block"], 0, "global")
    s.reverse_compute_at(copy, at["j0"])
    s.vectorize(s.get_loops(copy)[-1])


def _parallel(s: Any, at: dict[str, Any]) -> None:
    s.parallel(at["i0"])


def _parallel_inside(s: Any, at: dict[str, Any]) -> None:
    s.parallel(at["j0"])


def _unroll_k(s: Any, at: dict[str, Any]) -> None:
    _, inner = s.split(at["k"], [None, PIECE])
    s.unroll(inner)


MOVES = (
    Move("as written", "Three loops, as a textbook has them: rows i, columns j, and the sum over k innermost."),
    Move("start value apart", "The start value 0 is set in loops of its own: the inner loop need not ask any more whether it begins."),
    Move(
        "reorder to j, k, i", "The loop over rows innermost: every step jumps a whole row ahead in A and in C.",
        _reorder_badly, wrong=True,
    ),
    Move("reorder to i, k, j", "The loop over columns innermost: B and C are read one after the other, as they lie in memory.", _reorder),
    Move("split j", f"Columns in groups of {VECTOR}, the loop over k between: a group of C stays near while the sum runs.", _split_j),
    Move("vectorize", f"The {VECTOR} columns of a group become a single vector statement.", _vectorize),
    Move("split i", f"{ROWS} rows at a time: what was loaded of B serves {ROWS} rows instead of one.", _split_i),
    Move("unroll", f"The {ROWS} rows are written out one below the other, without a loop.", _unroll),
    Move("cache write", "Sums collect in a small buffer that fits the registers, and are written to C once, at the end.", _cache),
    Move("unroll k", f"{PIECE} steps of the sum are written out: fewer jumps, more to do at once.", _unroll_k),
    Move(
        "parallel inside", "The loop over groups of columns is shared by all cores: a new start for each group of rows.",
        _parallel_inside, wrong=True,
    ),
    Move("parallel", "The outermost loop is shared by all cores: they meet once, at the end.", _parallel),
)  # fmt: skip
"""The second move applies nothing: TVM's post-processing, which all but the first go through, moves the start value out."""


def run(size: int = 256, target: str = "native", turns: int = 9, progress: Progress | None = None) -> dict[str, Any]:
    """Schedule and measure a size x size x size float32 matrix product, move by move.

    Args:
        size: a multiple of 32.
        target: "native" or an instruction-set profile of this machine.
        turns: how often all steps are measured, one after the other.

    Returns:
        {"bench", "rows", "goals", "machine", "subject", "platform", "flops", "disturbed", "steps"}. A row is one move: step, name, wrong,
        latency_s (the fastest repeat: what disturbs a run only makes it slower, and the steps are to be compared), median_s, repeats,
        error (of the output, relative), seed (0: nothing is drawn). disturbed: share of the turns beside which other work was noticed.
        steps: text, primitives (sentences) and script (TVMScript of what was measured) of each.
    """
    from tcl.errors import UserError
    from tcl.tuning.measure import Measurer
    from tcl.tuning.targets import platform_for
    from tcl.views.schedule import steps_of

    if size < VECTOR or size % VECTOR:
        raise UserError(f"The size must be a multiple of {VECTOR}, not {size}.")
    progress = progress or Progress()
    platform, task = platform_for(target), _task(size)
    made = [_program(task, number) for number in range(len(MOVES))]
    costs: list[list[float]] = [[] for _ in MOVES]
    with quiet(), Measurer() as measurer:  # quiet throughout: the steps are compared with each other
        for turn in range(turns):
            progress.step(turn, turns + 1, "measuring")
            progress.check()
            for step, measurement in enumerate(measurer.measure(platform, task, made)):
                if measurement.error:
                    raise UserError(f"A step could not be measured: {measurement.error}, {measurement.detail}.")
                costs[step] += measurement.costs_s
        progress.step(turns, turns + 1, "checking the outputs")
        errors = [measurer.check(platform, task, program) for program in made]
        disturbed = measurer.stats.busy / turns
    rows, steps = [], []
    for number, (move, program, seconds, error) in enumerate(zip(MOVES, made, costs, errors, strict=True)):
        row = {"step": number, "name": move.name, "wrong": move.wrong, "latency_s": min(seconds), "median_s": statistics.median(seconds),
               "repeats": len(seconds), "error": error, "seed": 0}  # fmt: skip
        rows.append(row)
        sentences = [s.text for s in steps_of(program.schedule, "metaschedule", "matmul", (size,) * 3)] if program.schedule else []
        steps.append({"text": move.text, "primitives": sentences, "script": _script(task, program, platform.target)})
        progress.event("bench_row", bench="steps", **row)
    goals = [
        report.goal("the last step, times faster than the first", SPEEDUP, rows[0]["latency_s"] / rows[-1]["latency_s"]),
        report.goal("largest relative error of an output", 1e-4, max(errors), at_most=True),
    ]
    about = {"subject": task.name, "platform": platform.name, "flops": task.flops, "disturbed": disturbed, "steps": steps}
    return {"bench": "steps", "rows": rows, "goals": goals, "machine": report.machine(), **about}


def _task(size: int) -> Any:
    """The matrix product with the names of a textbook: C[i, j] = sum over k of A[i, k] * B[k, j]."""
    from tvm import te
    from tvm.s_tir.meta_schedule.tune_context import _normalize_mod

    from tcl.tuning.workload import make_task

    return make_task(_normalize_mod(_function(te, size)), operator="matmul", name=f"matmul:{size},{size},{size}")


def _function(te: Any, size: int) -> Any:
    k = te.reduce_axis((0, size), name="k")
    a, b = te.placeholder((size, size), name="A"), te.placeholder((size, size), name="B")
    return te.create_prim_func([a, b, te.compute((size, size), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")])


def _program(task: Any, number: int) -> Any:
    """The program after the move `number`, on all right moves before it."""
    from tvm.s_tir import Schedule

    from tcl.programs.types import Program
    from tcl.tuning.design_space import module, schedule_text

    if number == 0:
        return Program(task.id, "")  # measured without TVM's post-processing, which moves the start value
    schedule = Schedule(module(task))
    at: dict[str, Any] = {}
    if number > 1:
        at["block"] = schedule.get_sblock("C")
        at["i"], at["j"], at["k"] = schedule.get_loops(at["block"])
    for move in (*(m for m in MOVES[1:number] if not m.wrong), MOVES[number]):
        if move.do is not None:
            move.do(schedule, at)
    return Program(task.id, schedule_text(schedule.trace))


def _script(task: Any, program: Any, target: str) -> str:
    """TVMScript of what was measured, with the textbook's names."""
    import json

    import tvm
    from tvm import te
    from tvm.s_tir.meta_schedule.tune_context import _normalize_mod

    from tcl.tuning.design_space import Applier

    mod = _normalize_mod(_function(te, int(task.name.rpartition(",")[2])))
    if program.schedule:
        mod = Applier(mod, tvm.target.Target(json.loads(target))).schedule(program.schedule).mod
    return str(mod["main"].script())
