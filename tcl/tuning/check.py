"""Is a tuned kernel right? Compared with the unscheduled task, and for a single operator with PyTorch.

Two independent answers: the unscheduled task shares TVM's definition but not the schedule, PyTorch shares neither.
"""

from __future__ import annotations

import math
import tempfile
from dataclasses import dataclass
from pathlib import Path

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
    with tempfile.TemporaryDirectory() as folder:
        example = Path(folder) / "example.npz"
        try:
            call(_write_example, spec, str(example), threads=measurer.threads, timeout_s=300.0)
        except ProcessFailed as failure:
            return Check(unscheduled, math.nan, str(failure))
        return Check(unscheduled, measurer.check(platform, task, program, example))


def _write_example(spec: str, path: str) -> None:
    """Random inputs of an operator and what PyTorch computes from them."""
    import numpy as np
    import torch

    from tcl.tuning.operators import parse, reference

    operator, values = parse(spec)
    rng = np.random.default_rng(1)
    inputs = [rng.standard_normal(shape).astype(np.float32) for shape in operator.shapes(*values)]
    with torch.inference_mode():
        expected = reference(spec, [torch.from_numpy(x) for x in inputs]).numpy()
    np.savez(path, expected=expected, **{f"input{i}": x for i, x in enumerate(inputs)})
