"""Is a tuned kernel right? Compared with the unscheduled task, and for a single operator with PyTorch.

Two independent answers: the unscheduled task shares TVM's definition but not the schedule, PyTorch shares neither.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tcl.programs.types import Platform, Program, Task
from tcl.tuning.apart import ProcessFailed, call
from tcl.tuning.measure import Measurer

TOLERANCE = 1e-3
"""Largest error allowed, relative to the largest expected value: float32 sums in another order differ by far less."""


@dataclass(frozen=True, slots=True)
class Check:
    """The largest errors relative to the largest expected value; `pytorch` is None where the task is no single operator. NaN where
    a comparison could not be made at all: then nothing is known about the program."""

    unscheduled: float
    pytorch: float | None = None
    detail: str = ""

    @property
    def known(self) -> bool:
        return not (math.isnan(self.unscheduled) or (self.pytorch is not None and math.isnan(self.pytorch)))

    @property
    def correct(self) -> bool:
        return self.unscheduled <= TOLERANCE and (self.pytorch is None or self.pytorch <= TOLERANCE)


def check(measurer: Measurer, platform: Platform, task: Task, program: Program, spec: str = "") -> Check:
    """Run `program` and compare its output; never in this process, since a wrong kernel may write anywhere.

    Args:
        spec: the operator's text (`matmul:256,256,256`) where the task is a single operator.
    """
    unscheduled = measurer.check(platform, task, program)
    if not spec or not unscheduled <= TOLERANCE:
        return Check(unscheduled)
    try:
        return Check(unscheduled, call(_against_pytorch, spec, task, program, platform.target, threads=measurer.threads, timeout_s=300.0))
    except ProcessFailed as failure:  # it ran before, so the fault is the comparison's
        return Check(unscheduled, math.nan, str(failure))


def _against_pytorch(spec: str, task: Task, program: Program, target: str) -> float:
    import json

    import numpy as np
    import torch
    import tvm

    from tcl.tuning.design_space import apply, module
    from tcl.tuning.operators import parse, reference
    from tcl.tuning.worker import compile_module
    from tcl.tuning.workload import argument_shapes

    operator, values = parse(spec)
    rng = np.random.default_rng(1)
    inputs = [rng.standard_normal(shape).astype(np.float32) for shape in operator.shapes(*values)]
    with torch.inference_mode():
        expected = reference(spec, [torch.from_numpy(x) for x in inputs]).numpy()
    shape, dtype = argument_shapes(module(task))[-1]
    output = tvm.runtime.tensor(np.full(shape, np.nan, dtype=dtype))
    library = compile_module(apply(task, program, json.loads(target)), tvm.target.Target(json.loads(target)))
    library["main"](*[tvm.runtime.tensor(x) for x in inputs], output)
    return largest_error(output.numpy(), expected)


def largest_error(found: Any, expected: Any) -> float:
    """The largest absolute difference relative to the largest absolute expected value; infinite for NaN or another shape."""
    import numpy as np

    if found.shape != expected.shape:
        return float("inf")
    difference = np.abs(found.astype(np.float64) - expected.astype(np.float64))
    error = float(np.max(difference, initial=0.0) / (np.max(np.abs(expected), initial=0.0) + 1e-12))
    return error if np.isfinite(error) else float("inf")
