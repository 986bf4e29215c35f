"""What a tuned operator or network leaves behind for others.

export/
  database_workload.json, database_tuning_record.json   a MetaSchedule database that stock TVM loads
  kernel.so or network.so                               compiled for the tuned target
  inputs.npz, expected.npz                              arguments, and what PyTorch computes from them
  run.py                                                loads, runs, times and checks the library; needs TVM and NumPy only
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tcl.programs.types import Platform, Task
from tcl.tuning.journal import Trial

DATABASE = ("database_workload.json", "database_tuning_record.json")
"""The names that TVM's `JSONDatabase(work_dir=…)` looks for."""


def export_task(folder: Path, spec: str, task: Task, trial: Trial, platform: Platform, cc: str = "") -> dict[str, Any]:
    """Export the best program of a single operator. Returns what was written; `library` is None without a C compiler. `cc`: the
    compiler that links, "" for this machine's."""
    folder.mkdir(parents=True, exist_ok=True)
    write_database(folder, [(task, trial)], platform)
    library = None
    if cc or has_linker():
        library = folder / "kernel.so"
        _kernel_library(task, trial, platform, library, cc)
        _operator_examples(spec, folder)
        (folder / "run.py").write_text(_snippet(spec, _KERNEL, library.name))
    return _written(folder, library)


def export_network(folder: Path, name: str, tasks: Iterable[Task], bests: Mapping[int, Trial], platform: Platform) -> dict[str, Any]:
    """Add the database and the snippet to a folder in which `tcl.tuning.network_result` left `network.so` and the examples."""
    folder.mkdir(parents=True, exist_ok=True)
    write_database(folder, [(t, bests[t.id]) for t in tasks if t.id in bests], platform)
    library = folder / "network.so"
    if library.exists():
        (folder / "run.py").write_text(_snippet(name, _NETWORK, library.name))
    return _written(folder, library if library.exists() else None)


def write_database(folder: Path, bests: Iterable[tuple[Task, Trial]], platform: Platform) -> None:
    """A fresh MetaSchedule database with one record a task; an older one in the folder is replaced.

    The records hold whole traces, post-processing included, as TVM's own tuner writes them.
    """
    import tvm
    from tvm.s_tir.meta_schedule.arg_info import ArgInfo
    from tvm.s_tir.meta_schedule.database import JSONDatabase, TuningRecord

    from tcl.tuning.design_space import Applier, module

    drafts = [folder / f".draft-{name}" for name in DATABASE]
    for draft in drafts:
        draft.unlink(missing_ok=True)
    database = JSONDatabase(*map(str, drafts))
    target = tvm.target.Target(json.loads(platform.target))
    for task, trial in bests:
        mod = module(task)
        schedule = Applier(mod, target).schedule(trial.program.schedule)
        record = TuningRecord(
            schedule.trace, database.commit_workload(mod), [trial.latency_s], target, ArgInfo.from_entry_func(schedule.mod)
        )
        database.commit_tuning_record(record)
    for draft, name in zip(drafts, DATABASE, strict=True):
        draft.touch()  # TVM writes no file for an empty database
        draft.replace(folder / name)


def has_linker() -> bool:
    """Whether a shared library can be linked here: TVM calls the system's C compiler for that."""
    return any(shutil.which(name) for name in ("cc", "gcc", "clang", "c++", "g++"))


def _kernel_library(task: Task, trial: Trial, platform: Platform, path: Path, cc: str) -> None:
    import tvm
    from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

    from tcl.tuning import fast_math
    from tcl.tuning.design_space import apply

    fast_math.use()
    target = json.loads(platform.target)
    mod = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(apply(task, trial.program, target))
    draft = path.with_name(f".draft-{path.name}")
    try:
        tvm.tirx.build(mod, tvm.target.Target(target)).export_library(str(draft), **({"cc": cc} if cc else {}))
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _operator_examples(spec: str, folder: Path) -> None:
    import numpy as np
    import torch

    from tcl.tuning.operators import parse, reference

    operator, values = parse(spec)
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(shape).astype(np.float32) for shape in operator.shapes(*values)]
    with torch.inference_mode():
        expected = reference(spec, [torch.from_numpy(x) for x in inputs]).numpy()
    np.savez(folder / "inputs.npz", **{f"input{i}": x for i, x in enumerate(inputs)})
    np.savez(folder / "expected.npz", output0=expected)


def _snippet(title: str, call: str, library: str) -> str:
    return _SNIPPET.format(title=title, call=call.format(library=library))


def _written(folder: Path, library: Path | None) -> dict[str, Any]:
    return {
        "folder": str(folder),
        "database": [str(folder / name) for name in DATABASE],
        "library": str(library) if library else None,
        "snippet": str(folder / "run.py") if library else None,
        "note": "" if library else "No C compiler was found, so no shared library was linked; the database is complete.",
    }


_KERNEL = """\
library = tvm.runtime.load_module(str(here / "{library}"))
output = tvm.runtime.tensor(np.zeros_like(expected))
run = lambda: library["main"](*inputs, output)
result = lambda: output.numpy()"""

_NETWORK = """\
machine = relax.VirtualMachine(tvm.runtime.load_module(str(here / "{library}")), tvm.cpu())
last = []
run = lambda: last.__setitem__(slice(None), [machine["main"](*inputs)])
result = lambda: (last[0] if isinstance(last[0], tvm.runtime.Tensor) else last[0][0]).numpy()"""

_SNIPPET = '''\
"""Runs the tuned {title}: python run.py (needs apache-tvm and numpy)."""
import os
import time
from pathlib import Path

os.environ.setdefault("TVM_BIND_THREADS", "0")  # a bound thread may share its core with the one that calls: both take twice as long

import numpy as np
import tvm
from tvm import relax

here = Path(__file__).resolve().parent
with np.load(here / "inputs.npz") as file:
    inputs = [tvm.runtime.tensor(file[f"input{{i}}"]) for i in range(len(file.files))]
expected = np.load(here / "expected.npz")["output0"]

{call}

seconds = []
for _ in range(20):
    started = time.perf_counter()
    run()
    seconds.append(time.perf_counter() - started)
error = float(np.abs(result() - expected).max() / np.abs(expected).max())
print(f"{{np.median(seconds) * 1e3:.4f}} ms, largest relative error {{error:.2e}}")
raise SystemExit(error > 1e-3)
'''
