"""CUDA programs: is a GPU there, what a program takes of it, and compiling to PTX with a time limit, which needs no GPU.

MetaSchedule's rules and post-processors for CUDA bind blocks and threads, cache in shared memory and reject what is over the
target's limits (`VerifyGPUCode`). `source` shows the kernel that comes out, without a compiler; `compile_ptx` compiles it with nvcc.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tcl.errors import UserError

COMPILE_TIMEOUT_S = 60.0
_SIZES = {"float": 4, "int": 4, "uint": 4, "half": 2, "double": 8, "char": 1, "signed char": 1, "uchar": 1, "long": 8}


class CompileFailed(Exception):
    """The CUDA compiler refused a program or ran over its time; `kind` is one of FAILURE_KINDS."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Resources:
    """What a program takes of a GPU: the most of any of its kernels. Dynamic shared memory is not counted."""

    threads: int  # per block
    shared_bytes: int  # per block


def missing(target: dict[str, Any]) -> str:
    """Why programs for a CUDA target cannot be run here, in one sentence; "" where they can."""
    import tvm

    device = tvm.cuda(0)
    if not device.exist:
        return "No CUDA device is present on this machine, so programs for a GPU are compiled at most, not run."
    here = f"sm_{str(device.compute_version).replace('.', '')}"
    if target["arch"].rstrip("a") != here:
        return f"The CUDA device of this machine is {here}, not {target['arch']}."
    return ""


def source(mod: Any, target: dict[str, Any]) -> str:
    """CUDA C++ of a scheduled module's kernels."""
    import tvm

    library = tvm.tirx.build(mod, tvm.target.Target(target))
    return "\n".join(part.inspect_source() for part in library.imports)


def resources(text: str) -> Resources:
    """Threads and static shared memory per block, read off the source that TVM generates."""
    threads = [int(n) for n in re.findall(r"__launch_bounds__\((\d+)", text)]
    total, most = 0, 0
    for line in text.splitlines():
        if "__global__" in line:
            total = 0
        declared = re.search(r"__shared__ (?:alignas\(\d+\) )?([a-z ]+) \w+\[(\d+)\]", line)
        if declared:
            total += _SIZES.get(declared[1].strip(), 4) * int(declared[2])
            most = max(most, total)
    return Resources(max(threads, default=1), most)


def compile_ptx(text: str, arch: str, *, timeout_s: float = COMPILE_TIMEOUT_S) -> bytes:
    """PTX of CUDA C++ for an architecture ("sm_80").

    Raises:
        UserError: nvcc is not installed.
        CompileFailed: it refuses the program, or takes longer than `timeout_s`.
    """
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        raise UserError("The CUDA compiler nvcc is not installed.", hint="Install NVIDIA's CUDA toolkit.")
    with tempfile.TemporaryDirectory() as folder:
        written, out = Path(folder) / "kernel.cu", Path(folder) / "kernel.ptx"
        written.write_text(text)
        try:
            done = subprocess.run(
                [nvcc, "-ptx", f"-arch={arch}", "-o", str(out), str(written)],
                capture_output=True, text=True, timeout=timeout_s, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise CompileFailed("build_timeout", f"nvcc ran longer than {timeout_s:.1f} s") from None
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if "error" in line]
            raise CompileFailed("build_error", (errors or done.stderr.splitlines() or ["nvcc failed"])[0][:300])
        return out.read_bytes()
