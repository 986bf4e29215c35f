"""What tuning has to beat: the same operator or network untuned, and in PyTorch on the same number of threads."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tcl.machine import quiet
from tcl.programs.types import Platform, Program, Task
from tcl.tuning.apart import ProcessFailed, call
from tcl.tuning.measure import Measurer

WARM_UP_S = 0.3
TIMED_S = 1.0
"""Runs are timed one by one until this much time has passed (at least 5, at most 1000 of them)."""


def untuned_latency(measurer: Measurer, platform: Platform, task: Task) -> float:
    """Seconds of the task's plain loop nest, as TVM compiles it without a schedule; NaN where it cannot be run in time."""
    return measurer.measure(platform, task, [Program(task.id, "")])[0].latency_s


def pytorch_operator(spec: str, threads: int) -> float:
    """Seconds of an operator (`matmul:256,256,256`) in PyTorch eager, in a process of its own; NaN where it fails."""
    try:
        with quiet():
            return call(_time_operator, spec, threads, threads=threads, timeout_s=120.0)
    except ProcessFailed:
        return math.nan


def pytorch_network(source: str, folder: Path, threads: int) -> float:
    """Seconds of a network in PyTorch eager, in a process of its own.

    Writes `inputs.npz` (arrays input0, input1, …) and `expected.npz` (output0, …) to `folder`.

    Raises:
        ProcessFailed: the network cannot be run.
    """
    with quiet():
        return call(_time_network, source, str(folder), threads, threads=threads, timeout_s=600.0)


def _time_operator(spec: str, threads: int) -> float:
    import torch

    from tcl.tuning.operators import parse, reference

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    operator, values = parse(spec)
    inputs = [torch.rand(shape) for shape in operator.shapes(*values)]
    with torch.inference_mode():
        return time_runs(lambda: reference(spec, inputs))


def _time_network(source: str, folder: str, threads: int) -> float:
    import numpy as np
    import torch

    from tcl.tuning.model_source import model_of

    torch.set_num_threads(threads)
    model, inputs = model_of(source)
    with torch.inference_mode():
        seconds = time_runs(lambda: model(*inputs))
        output = model(*inputs)
    outputs = [output] if isinstance(output, torch.Tensor) else list(output)
    np.savez(Path(folder) / "inputs.npz", **{f"input{i}": x.numpy() for i, x in enumerate(inputs)})
    np.savez(Path(folder) / "expected.npz", **{f"output{i}": x.numpy() for i, x in enumerate(outputs)})
    return seconds


def time_runs(run: Callable[[], Any]) -> float:
    """The median of single runs, seconds, after a warm-up."""
    begin = time.perf_counter()
    while time.perf_counter() - begin < WARM_UP_S:
        run()
    costs: list[float] = []
    while len(costs) < 5 or (sum(costs) < TIMED_S and len(costs) < 1000):
        started = time.perf_counter()
        run()
        costs.append(time.perf_counter() - started)
    return statistics.median(costs)
