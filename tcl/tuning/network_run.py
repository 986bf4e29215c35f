"""A whole network: compiled with the tuned schedules of its tasks, then run in the relax virtual machine.

    lowered = lower(import_network(*torch_network("resnet18")), target)
    build = build_network(lowered, {task.id: program}, target)
    build.export(Path("resnet18.so"))
    run = run_network(Path("resnet18.so"), Path("inputs.npz"), threads=2)

A function of the lowered module *is* a task when the normalised texts are equal (`tcl.tuning.workload.normalise`), the
identity under which the task was extracted and tuned. So no structural comparison of TVM's is needed, and the very text
that was measured is what is compiled.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tcl.programs.types import Program, Task, content_id
from tcl.tuning.apart import call
from tcl.tuning.workload import FORMAT, make_task, normalise

if TYPE_CHECKING:
    import numpy as np
    from tvm.ir import IRModule

SETTLE_S = 0.5
"""Time given to warm-up runs before the timed ones."""


@dataclass
class NetworkBuild:
    """A compiled network and how each of its tasks was scheduled (names of tasks, each once)."""

    executable: Any  # tvm.relax.VMExecutable
    tuned: list[str] = field(default_factory=list)
    default: list[str] = field(default_factory=list)  # no measured program: the first valid one of the design space
    unscheduled: list[str] = field(default_factory=list)  # nothing could be applied: the plain loop nest

    def export(self, path: Path, cc: str = "") -> None:
        """Write the shared library, whole or not at all. It holds the weights. `cc`: the compiler that links, "" for this machine's."""
        draft = path.with_name(f".draft-{path.name}")
        try:
            self.executable.export_library(str(draft), **({"cc": cc} if cc else {}))
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)


@dataclass(frozen=True)
class NetworkRun:
    """Latencies of single runs (seconds) and the outputs of the last one."""

    costs_s: tuple[float, ...]
    outputs: tuple[np.ndarray, ...]


def build_network(lowered: IRModule, programs: Mapping[int, Program], target: dict[str, Any], *, fill: bool = True) -> NetworkBuild:
    """Compile a lowered network (`tcl.tuning.networks.lower`) with `programs` (task id -> program).

    Args:
        fill: give a task without a program the first valid one of its design space; otherwise it stays unscheduled.
    """
    import tvm
    from tvm import relax
    from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

    from tcl.tuning import fast_math

    fast_math.use()
    build = NetworkBuild(None)
    scheduled: dict[int, Any] = {}
    functions = {}
    for variable, function in lowered.functions_items():
        if isinstance(function, tvm.tirx.PrimFunc):
            mod = as_task_module(function)
            identity = content_id(FORMAT, normalise(mod))
            if identity not in scheduled:
                scheduled[identity] = _schedule(make_task(mod), programs.get(identity), target, build, fill=fill)
            body = scheduled[identity]
            functions[variable] = function if body is None else body.with_attr("global_symbol", variable.name_hint)
        else:
            functions[variable] = function
    mod = tvm.IRModule(functions, attrs=lowered.attrs)
    with tvm.target.Target(target):
        mod = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(mod)
        mod = tvm.ir.transform.Sequential(_vm_passes(target))(mod)
        build.executable = relax.build(mod, tvm.target.Target(target), relax_pipeline=None)
    return build


def as_task_module(function: Any) -> IRModule:
    """A function of a lowered network in the form in which tasks are extracted: alone, and called `main`."""
    import tvm

    named = function.with_attr("global_symbol", "main").with_attr("tirx.noalias", True)
    return tvm.IRModule({"main": named})


def _schedule(task: Task, program: Program | None, target: dict[str, Any], build: NetworkBuild, *, fill: bool) -> Any:
    """The scheduled function of a task, or None for the plain one; notes in `build` what was done."""
    from tcl.tuning.design_space import InvalidSchedule, apply, sample_programs

    if program is not None:
        try:
            body = apply(task, program, target)["main"]
            build.tuned.append(task.name)
            return body
        except InvalidSchedule:
            pass  # a record of another TVM version; the default below is still right
    if fill:
        for candidate in sample_programs(task, target, 1):
            build.default.append(task.name)
            return apply(task, candidate, target)["main"]
    build.unscheduled.append(task.name)
    return None


def _vm_passes(target: dict[str, Any]) -> list[Any]:
    """TVM's own passes from fused functions to what the virtual machine runs (fusion has already happened)."""
    import tvm

    # by their modules: tvm.relax.pipeline's own dispatch misses them for CPUs in TVM 0.27
    if target["kind"] == "cuda":
        from tvm.relax.backend.cuda import pipeline
    else:
        from tvm.relax.backend.cpu_generic import pipeline
    on = tvm.target.Target(target)
    return [*pipeline.library_dispatch_passes(on), *pipeline.dataflow_lower_passes(on), *pipeline.finalize_passes(on)]


def run_network(library: Path, inputs: Path, *, threads: int, repeats: int = 10, timeout_s: float = 600.0) -> NetworkRun:
    """Run an exported network in a fresh process on `threads` threads.

    Args:
        inputs: an .npz file whose arrays `input0`, `input1`, … are the arguments in order.
        repeats: timed runs; fewer where they would take longer than 20 s together.
    """
    return call(_run, str(library), str(inputs), repeats, threads=threads, timeout_s=timeout_s)


def _run(library: str, inputs: str, repeats: int) -> NetworkRun:
    import time

    import numpy as np

    from tcl.tuning.lean_tvm import load_tvm

    load_tvm()
    import tvm
    from tvm import relax

    with np.load(inputs) as file:
        arguments = [tvm.runtime.tensor(file[f"input{i}"]) for i in range(sum(n.startswith("input") for n in file.files))]
    machine = relax.VirtualMachine(tvm.runtime.load_module(library), tvm.cpu())

    def once() -> tuple[float, Any]:
        started = time.perf_counter()
        out = machine["main"](*arguments)
        return time.perf_counter() - started, out

    warm = [once()[0]]
    while sum(warm) < SETTLE_S:
        warm.append(once()[0])
    count = max(1, min(repeats, math.floor(20.0 / min(warm))))
    runs = [once() for _ in range(count)]
    out = runs[-1][1]
    outputs = [out] if isinstance(out, tvm.runtime.Tensor) else list(out)
    return NetworkRun(tuple(seconds for seconds, _ in runs), tuple(o.numpy() for o in outputs))
