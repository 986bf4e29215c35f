"""A tuned network as a whole: compiled with its tasks' best programs, run, and compared with PyTorch and with no tuning."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tcl.machine import busy, quiet
from tcl.programs.types import format_id
from tcl.tuning.apart import ProcessFailed
from tcl.tuning.baseline import rival_latencies, write_reference
from tcl.tuning.check import TOLERANCE
from tcl.tuning.journal import Trial
from tcl.tuning.model_source import source_of
from tcl.tuning.network_run import NetworkRun, build_network, run_network
from tcl.tuning.networks import lower
from tcl.tuning.remote import RemoteMeasurer, run_network_there
from tcl.tuning.worker import largest_error

if TYPE_CHECKING:
    from tcl.tuning.tune import Run


def finish_network(run: Run, bests: Mapping[int, Trial]) -> dict[str, Any]:
    """Compile, run and compare; leaves `network.so`, `inputs.npz` and `expected.npz` in the dataset's `export` folder.

    Raises:
        ProcessFailed: the tuned network cannot be run.
    """
    import numpy as np

    folder = run.journal.dataset.path / "export"
    folder.mkdir(parents=True, exist_ok=True)
    threads = run.measurer.threads
    with busy():
        write_reference(run.subject.name, folder, threads)
        lowered = lower(source_of(run.subject.name).relax(), run.target)
        tuned = build_network(lowered, {task: trial.program for task, trial in bests.items()}, run.target)
        tuned.export(folder / "network.so", run.cc)
        plain = build_network(lowered, {}, run.target, fill=False)
        plain.export(folder / "untuned.so", run.cc)
    outcome = _time(run, folder / "network.so", folder)
    try:
        untuned_s = statistics.median(_time(run, folder / "untuned.so", folder, repeats=3).costs_s)
    except ProcessFailed:  # a large network's plain loop nests may take minutes
        untuned_s = math.nan
    (folder / "untuned.so").unlink()
    with np.load(folder / "expected.npz") as expected:
        error = max(largest_error(found, expected[f"output{i}"]) for i, found in enumerate(outcome.outputs))
    latency = statistics.median(outcome.costs_s)
    medians = [run.journal.median_s(t, random_only=True) for t in run.subject.tasks]
    known = [w * m for w, m in zip(run.subject.weights, medians, strict=True) if math.isfinite(m)]
    return {
        "best_latency_s": latency,
        "median_latency_s": sum(known) if len(known) == len(medians) else None,
        "untuned_latency_s": untuned_s if math.isfinite(untuned_s) else None,
        **rival_latencies(run.subject.name, run.rivals, threads),
        "correct": error <= TOLERANCE,
        "max_error": error,
        "latency_costs_s": list(outcome.costs_s),
        "tasks_tuned": len(tuned.tuned),
        "tasks_default": tuned.default,
        "tasks_unscheduled": tuned.unscheduled,
        "tasks": task_rows(run, bests),
    }


def task_rows(run: Run, bests: Mapping[int, Trial]) -> list[dict[str, Any]]:
    """One row a task, the largest share of the network's time first."""
    rows = []
    for task, weight in zip(run.subject.tasks, run.subject.weights, strict=True):
        best = bests[task.id].latency_s if task.id in bests else None
        median = run.journal.median_s(task, random_only=False)
        rows.append({
            "task": format_id(task.id), "name": task.name, "operator": task.operator, "weight": weight, "flops": task.flops,
            "trials": run.journal.count(task), "best_latency_s": best, "median_latency_s": median if math.isfinite(median) else None,
            "best_program": format_id(bests[task.id].program.id) if best else None, "gflops": task.flops / best / 1e9 if best else None,
            "roofline_share": run.roofline.share(task, best) if run.roofline else None,
        })  # fmt: skip
    total = sum(r["weight"] * (r["best_latency_s"] or 0.0) for r in rows)
    for row in rows:
        row["share"] = row["weight"] * (row["best_latency_s"] or 0.0) / total if total else None
    return sorted(rows, key=lambda r: -(r["share"] or 0.0))


def _time(run: Run, library: Path, folder: Path, repeats: int = 10) -> NetworkRun:
    inputs = folder / "inputs.npz"
    if isinstance(run.measurer, RemoteMeasurer):
        return run_network_there(library, inputs, run.measurer.tracker, repeats=repeats)
    with quiet():
        return run_network(library, inputs, threads=run.measurer.threads, repeats=repeats, timeout_s=300.0)
