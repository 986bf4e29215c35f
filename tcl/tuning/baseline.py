"""What tuning has to beat: the same operator or network untuned, and in what production uses, on the same number of threads.

Each rival runs in a process of its own, one after the other, alone on the machine; what cannot be run (a rival that is not
installed, an operator that an exporter does not know) has no latency, and the reason is kept.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tcl.errors import UserError
from tcl.machine import quiet
from tcl.programs.types import Platform, Program, Task
from tcl.tuning.apart import ProcessFailed, call
from tcl.tuning.measure import Measurer

if TYPE_CHECKING:
    import numpy as np
    import torch

RIVALS = ("pytorch", "torch_compile", "onnxruntime")
"""PyTorch eager, `torch.compile` with its default backend, ONNX Runtime with its default optimisations."""
WARM_UP_S = 0.3
TIMED_S = 1.0
"""Runs are timed one by one until this much time has passed (at least 5, at most 1000 of them)."""


def untuned_latency(measurer: Measurer, platform: Platform, task: Task) -> float:
    """Seconds of the task's plain loop nest, as TVM compiles it without a schedule; NaN where it cannot be run in time."""
    return measurer.measure(platform, task, [Program(task.id, "")])[0].latency_s


def rival_latencies(subject: str, rivals: Sequence[str], threads: int) -> dict[str, Any]:
    """`{rival}_latency_s` of an operator (`matmul:256,256,256`) or a network, None where it cannot be run, and `rivals_failed`:
    {rival: why}.

    Raises:
        UserError: an unknown rival.
    """
    check_rivals(rivals)
    found: dict[str, Any] = {f"{name}_latency_s": None for name in RIVALS}
    failed = {}
    for name in rivals:
        try:
            with quiet():
                seconds = call(_time_rival, subject, name, threads, threads=threads, timeout_s=300.0)
            found[f"{name}_latency_s"] = seconds if math.isfinite(seconds) else None
        except (ProcessFailed, UserError) as failure:
            failed[name] = str(failure)[:300]
    return found | {"rivals_failed": failed}


def check_rivals(rivals: Sequence[str]) -> None:
    """Raise UserError for a name that is none of RIVALS."""
    for name in rivals:
        if name not in RIVALS:
            raise UserError(f"There is nothing called {name!r} to compare with.", hint=f"Choose from: {', '.join(RIVALS)}.")


def write_reference(source: str, folder: Path, threads: int) -> None:
    """Write `inputs.npz` (arrays input0, input1, …) and what the network's own framework computes from them, `expected.npz`
    (output0, …), to `folder`.

    Raises:
        ProcessFailed: the network cannot be run.
    """
    call(_write_reference, source, str(folder), threads=threads, timeout_s=600.0)


def onnxruntime_runner(model: bytes, inputs: Sequence[np.ndarray], threads: int = 0) -> Callable[[], Sequence[np.ndarray]]:
    """A function that runs a serialised ONNX model; `threads` 0 leaves the number to ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    feeds = {i.name: x for i, x in zip(session.get_inputs(), inputs, strict=True)}
    return lambda: session.run(None, feeds)


def _time_rival(subject: str, rival: str, threads: int) -> float:
    import tempfile

    import torch

    from tcl.tuning.model_source import OnnxSource, TorchSource, export_onnx, source_of
    from tcl.tuning.operators import is_operator

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    if is_operator(subject):
        model, inputs = _operator_module(subject)
    else:
        source = source_of(subject)
        if isinstance(source, OnnxSource):
            if rival != "onnxruntime":
                raise UserError("An ONNX file has no PyTorch module.")
            return time_runs(onnxruntime_runner(source.model.SerializeToString(), source.inputs(), threads))
        assert isinstance(source, TorchSource)
        model, inputs = source.torch
    if rival == "onnxruntime":
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            export_onnx(model, inputs, path)
            return time_runs(onnxruntime_runner(path.read_bytes(), [x.numpy() for x in inputs], threads))
    with torch.inference_mode():
        if rival == "torch_compile":
            model = torch.compile(model)
        return time_runs(lambda: model(*inputs))


def _operator_module(spec: str) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    import torch

    from tcl.tuning.operators import parse, reference

    class Operator(torch.nn.Module):
        def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
            return reference(spec, inputs)

    operator, values = parse(spec)
    return Operator().eval(), tuple(torch.rand(shape) for shape in operator.shapes(*values))


def _write_reference(source: str, folder: str) -> None:
    import numpy as np

    from tcl.tuning.model_source import source_of

    network = source_of(source)
    inputs, outputs = network.inputs(), network.runner()()
    np.savez(Path(folder) / "inputs.npz", **{f"input{i}": x for i, x in enumerate(inputs)})
    np.savez(Path(folder) / "expected.npz", **{f"output{i}": x for i, x in enumerate(outputs)})


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
