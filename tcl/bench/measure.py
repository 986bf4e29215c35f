"""`tcl bench measure`: programs measured per minute, ours beside stock MetaSchedule; and whether a measurement can be repeated.

Both measure the same random programs of a matrix product, a convolution and a softmax, on the same target and threads, one
after the other in one run. Stock is `LocalBuilder` + `LocalRunner` at their defaults and 64 programs a batch, except for the
builder's time limit of 30 s: under it nothing is built where importing TVM's tensor intrinsics takes longer than that, so
the limit is raised until a probe of two programs succeeds. Its failed probes are not held against its rate.

Ours is timed from a cold start: the workers' start counts. Our second measurement of the same programs, `pause_s` later (stock
has its turn meanwhile), tells whether a measurement can be repeated, and the rate of workers that are already warm: stock
starts fresh ones for every batch. A third one, by other workers, tells whether it matters which worker measures a program.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tcl.bench import report
from tcl.errors import UserError
from tcl.machine import quiet
from tcl.progress import Progress

if TYPE_CHECKING:
    from tcl.programs.types import Platform, Program, Task

OPERATORS = ("matmul:256,256,256", "conv2d:1,64,28,28,64,3,3,1,1", "softmax:512,1024")
BATCH = 64
"""MetaSchedule's `num_trials_per_iter`."""
LIMITS_S = (30.0, 60.0, 120.0, 300.0)
SPEEDUP, FLOOR, AGREEMENT = 10.0, 4.0, 0.05


def run(
    seeds: int = 1,
    programs: int = BATCH,
    pause_s: float = 120.0,
    stock: bool = True,
    operators: Sequence[str] = OPERATORS,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure.

    Args:
        seeds: how often everything is repeated, each time with other programs.
        programs: programs of each operator.
        pause_s: at least so long between the two measurements of a program; stock has its turn in it.
        stock: false leaves MetaSchedule's own builder and runner out (they take minutes).

    Returns:
        {"bench", "rows", "goals", "machine"}. A row is one method on one operator: `measured`, `failed`, `seconds`,
        `per_minute`; for our first also `spread` (largest / smallest repeat of a program, median over programs), for our second
        `disagreement` (|second - first| / first of two measurements `pause_s` apart: the median over programs) and
        `other_workers` (the same of the third beside the second, as if both had been equally fast over all programs).
    """
    from tcl.tuning.design_space import sample_programs
    from tcl.tuning.operators import operator_task
    from tcl.tuning.targets import host_target, platform_for

    progress = progress or Progress()
    platform = platform_for("native")
    rows: list[dict[str, Any]] = []
    steps = seeds * len(operators) * (3 if stock else 2)
    for seed in range(seeds):
        for operator in operators:
            task = operator_task(operator)
            pool = sample_programs(task, host_target(), programs, seed=seed)
            about = {"operator": operator, "seed": seed}
            cold, warm, other = _turns(platform, task, pool, pause_s, stock)
            rows += [{"method": "tcl", **about, **cold}, {"method": "tcl, warm", **about, **warm}]
            rows += [{"method": "stock", **about, **other}] if other else []
            progress.step(len(rows), steps, operator)
            progress.check()
    rates = {(r["operator"], r["seed"]): r["per_minute"] for r in rows if r["method"] == "stock"}
    ratios = [_ratio(r, rates) for r in rows if r["method"] == "tcl" and _ratio(r, rates)]
    warm = [_ratio(r, rates) for r in rows if r["method"] == "tcl, warm" and _ratio(r, rates)]
    disagreement, others = (statistics.median(r[of] for r in rows if of in r) for of in ("disagreement", "other_workers"))
    return {
        "bench": "measure",
        "rows": rows,
        "goals": [
            report.goal(
                "times stock's programs per minute (median over operators)", SPEEDUP, statistics.median(ratios) if ratios else None
            ),
            report.goal("the same, our workers being warm", SPEEDUP, statistics.median(warm) if warm else None),
            report.goal("the floor: times stock's programs per minute, worst operator", FLOOR, min(ratios, default=None)),
            report.goal("two measurements of a program differ by (median)", AGREEMENT, disagreement, at_most=True),
            report.goal("measurements by other workers differ by (median, at one pace)", AGREEMENT, others, at_most=True),
        ],
        "machine": {**report.machine(), "target": json.loads(platform.target)},
    }


def _ratio(row: dict[str, Any], others: dict[tuple[str, int], float]) -> float | None:
    """How many times stock's rate a row of ours has; None where stock was not run or measured nothing."""
    other = others.get((row["operator"], row["seed"]))
    return row["per_minute"] / other if other else None


def _turns(
    platform: Platform, task: Task, pool: list[Program], pause_s: float, stock: bool
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any] | None]:
    """Our first measurement from a cold start, stock's, and our second and third: the fields of three rows."""
    from tcl.tuning.measure import Measurer

    begin = time.monotonic()
    with Measurer() as measurer:
        first = measurer.measure(platform, task, pool)
        cold = _rate(measurer, time.monotonic() - begin - measurer.stats.waiting_s)
        ended = time.monotonic()
        other = _stock(platform, task, pool) if stock else None
        time.sleep(max(0.0, pause_s - (time.monotonic() - ended)))
        measurer.stats = type(measurer.stats)()
        begin = time.monotonic()
        second = measurer.measure(platform, task, pool)
        warm = _rate(measurer, time.monotonic() - begin - measurer.stats.waiting_s)
    with Measurer() as fresh:
        third = fresh.measure(platform, task, pool)
    pairs = [(a, b) for a, b in zip(first, second, strict=True) if not a.error and not b.error]
    ratios = [c.latency_s / b.latency_s for b, c in zip(second, third, strict=True) if not b.error and not c.error]
    if not pairs or not ratios:
        raise UserError("Nothing could be measured.", hint="See `tcl collect` for what fails.")
    cold["spread"] = statistics.median([max(a.costs_s) / min(a.costs_s) for a, _ in pairs if len(a.costs_s) > 1] or [1.0])
    differ = sorted(abs(b.latency_s - a.latency_s) / a.latency_s for a, b in pairs)
    pace = statistics.median(ratios)
    warm["other_workers"] = statistics.median(abs(ratio / pace - 1.0) for ratio in ratios)
    return cold, warm | {"disagreement": statistics.median(differ), "disagreement_p90": differ[int(0.9 * (len(differ) - 1))]}, other


def _rate(measurer: Any, seconds: float) -> dict[str, Any]:
    stats = measurer.stats
    return {
        "measured": stats.measured, "failed": sum(stats.failed.values()), "seconds": seconds, "per_minute": 60 * stats.measured / seconds,
        "build_s": stats.build_s, "run_s": stats.run_s, "timed_again": stats.timed_again,
    }  # fmt: skip


def _stock(platform: Platform, task: Task, pool: list[Program]) -> dict[str, Any]:
    """Build and run `pool` with MetaSchedule's own classes."""
    import tvm
    from tvm.s_tir.meta_schedule.arg_info import ArgInfo
    from tvm.s_tir.meta_schedule.builder import BuilderInput, LocalBuilder
    from tvm.s_tir.meta_schedule.runner import LocalRunner, RunnerInput

    from tcl.tuning.design_space import Applier, module

    target = tvm.target.Target(json.loads(platform.target))
    mod = module(task)
    applier = Applier(mod, target)
    inputs = [BuilderInput(applier.schedule(p.schedule).mod, target) for p in pool]
    arguments = ArgInfo.from_entry_func(mod)
    with quiet():
        for limit in LIMITS_S:
            if any(r.artifact_path for r in LocalBuilder(timeout_sec=limit).build(inputs[:2])):
                break
        begin = time.monotonic()
        built = LocalBuilder(timeout_sec=limit).build(inputs)
        build_s = time.monotonic() - begin
        runner = LocalRunner(timeout_sec=limit)
        futures = runner.run([RunnerInput(b.artifact_path, "cpu", arguments) for b in built if b.artifact_path])
        results = [f.result() for f in futures]
        seconds = time.monotonic() - begin
    measured = sum(r.run_secs is not None for r in results)
    return {
        "measured": measured, "failed": len(pool) - measured, "seconds": seconds, "per_minute": 60 * measured / seconds,
        "build_s": build_s, "run_s": seconds - build_s, "limit_s": limit,
    }  # fmt: skip
