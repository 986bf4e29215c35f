"""What this machine is, and the TVM targets its programs are compiled for.

A *profile* says for which instruction set programs are compiled: "native" (everything this processor has) or one of the
older sets that it still runs. One chip measured under several profiles gives several platforms that rank the same
programs differently; they are ISA profiles of one chip, and their names and descriptions say so.

Nothing here imports TVM (except `native_mcpu`): a target is its plain JSON description, so that pages and worker
coordinators can speak of targets at no cost.
"""

from __future__ import annotations

import functools
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tcl.errors import UserError
from tcl.programs.types import Platform
from tcl.tuning.lean_tvm import load_tvm


@dataclass(frozen=True, slots=True)
class IsaProfile:
    """An instruction set that a chip may run: LLVM's name of the processor that introduced it, and what it needs."""

    name: str
    title: str
    mcpu: str
    flags: tuple[str, ...]  # as /proc/cpuinfo spells them
    vector_bits: int


ISA_PROFILES = {
    p.name: p
    for p in (
        IsaProfile("sse42", "SSE4.2", "nehalem", ("sse4_2", "popcnt"), 128),
        IsaProfile("avx2", "AVX2", "haswell", ("avx2", "fma", "bmi1", "bmi2", "f16c", "movbe"), 256),
        IsaProfile(
            "avx512",
            "AVX-512",
            "skylake-avx512",
            ("avx512f", "avx512dq", "avx512cd", "avx512bw", "avx512vl", "adx", "rdseed"),
            512,
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Machine:
    """The processor that this process may use."""

    model: str
    cores: int  # cores that this process may run on, not hyperthreads
    flags: frozenset[str]
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    clock_hz: float
    memory_bytes: int

    @property
    def vector_bits(self) -> int:
        return max((p.vector_bits for p in ISA_PROFILES.values() if self.flags.issuperset(p.flags)), default=128)

    @property
    def slug(self) -> str:
        """A short name for platform names: "xeon", "ryzen-9-5950x"."""
        text = re.sub(r"\((r|tm)\)|@.*|\b(intel|amd|cpu|processor|\d+-core)\b", " ", self.model.lower())
        return re.sub(r"[^a-z0-9]+", "-", text).strip("-")[:32] or "cpu"


@functools.cache
def this_machine() -> Machine:
    """Reads /proc/cpuinfo, /sys and psutil; figures that a container hides are 0."""
    import psutil

    info: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        info.setdefault(key.strip(), value.strip())
    usable = len(os.sched_getaffinity(0))
    frequency = psutil.cpu_freq()
    return Machine(
        model=info.get("model name") or info.get("Processor") or "unknown processor",
        cores=min(usable, psutil.cpu_count(logical=False) or usable),
        flags=frozenset((info.get("flags") or info.get("Features") or "").split()),
        l1_bytes=_cache_bytes(1),
        l2_bytes=_cache_bytes(2),
        l3_bytes=_cache_bytes(3),
        clock_hz=(frequency.max or frequency.current) * 1e6 if frequency else 0.0,
        memory_bytes=psutil.virtual_memory().total,
    )


def _cache_bytes(level: int) -> int:
    """The size of one instance of the data (or unified) cache of `level`, in bytes; 0 where unknown."""
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            if int((index / "level").read_text()) == level and (index / "type").read_text().strip() != "Instruction":
                size = (index / "size").read_text().strip()
                return int(size[:-1]) * {"K": 1 << 10, "M": 1 << 20}.get(size[-1], 1) if size[-1].isalpha() else int(size)
        except (OSError, ValueError):
            continue
    return 0


@functools.cache
def native_mcpu() -> str:
    """LLVM's name of this processor."""
    load_tvm()  # this is what needs TVM first, whatever is measured or tuned
    import tvm

    return str(tvm.get_global_func("target.llvm_get_system_cpu")())


def available_profiles() -> list[str]:
    """The profiles that this machine can run, oldest instruction set first, "native" last."""
    flags = this_machine().flags
    return [p.name for p in ISA_PROFILES.values() if flags.issuperset(p.flags)] + ["native"]


def target_json(profile: str = "native", *, cores: int | None = None) -> dict[str, Any]:
    """The TVM target of a profile of this machine.

    Args:
        profile: "native", an ISA profile ("sse42", "avx2", "avx512"), or "cuda" / "cuda:ARCH" (e.g. "cuda:sm_80").
        cores: number of threads that programs run on; default all cores of this machine.

    Raises:
        UserError: the profile is unknown, or this machine cannot run it.
    """
    machine = this_machine()
    if profile.split(":", maxsplit=1)[0] == "cuda":
        return cuda_target(profile.partition(":")[2] or None)
    if profile == "native":
        mcpu = native_mcpu()
    elif profile in ISA_PROFILES:
        isa = ISA_PROFILES[profile]
        mcpu = isa.mcpu
        missing = [flag for flag in isa.flags if flag not in machine.flags]
        if missing:
            raise UserError(
                f"This machine ({machine.model}) cannot run the {isa.title} profile: it lacks {', '.join(missing)}.",
                hint=f"It can run: {', '.join(available_profiles())}.",
            )
    else:
        raise UserError(
            f"{profile!r} is not a target.",
            hint=f"This machine can run: {', '.join(available_profiles())}; 'cuda' or 'cuda:sm_80' stand for a GPU.",
        )
    return {"kind": "llvm", "mcpu": mcpu, "num-cores": cores or machine.cores}


def host_target() -> dict[str, Any]:
    """The target that uses everything this processor has."""
    return target_json("native")


def cuda_target(arch: str | None = None) -> dict[str, Any]:
    """The CUDA target of the first GPU, or of `arch` ("sm_80") for compiling only.

    Raises:
        UserError: no GPU is there and no architecture was named.
    """
    if arch is None:
        import tvm

        device = tvm.cuda(0)
        if not device.exist:
            raise UserError("No CUDA device is present on this machine.", hint="Name an architecture to compile only, e.g. cuda:sm_80.")
        arch = f"sm_{device.compute_version.replace('.', '')}"
        limits = {
            "max_threads_per_block": int(device.max_threads_per_block),
            "max_shared_memory_per_block": int(device.max_shared_memory_per_block),
            "thread_warp_size": int(device.warp_size),
        }
    elif re.fullmatch(r"sm_\d{2,3}a?", arch):
        limits = {"max_threads_per_block": 1024, "max_shared_memory_per_block": 49152, "thread_warp_size": 32}
    else:
        raise UserError(f"{arch!r} is not a CUDA architecture.", hint="They are written sm_70, sm_80, sm_90, …")
    return {"kind": "cuda", "arch": arch, "max_num_threads": limits["max_threads_per_block"], **limits, "host": {"kind": "llvm"}}


def platform_for(profile: str = "native", *, cores: int | None = None) -> Platform:
    """The platform that programs compiled for `profile` are measured on here; see `target_json` for the errors."""
    target = target_json(profile, cores=cores)
    text = json.dumps(target, sort_keys=True, separators=(",", ":"))
    machine = this_machine()
    if target["kind"] == "cuda":
        name = f"cuda-{target['arch']}"
        return Platform(name=name, kind="gpu", description=f"CUDA GPU, {target['arch']}", target=text)
    used = target["num-cores"]
    what = f"{machine.model}, {used} core{'s' if used > 1 else ''}"
    if profile == "native":
        description, bits = what, machine.vector_bits
    else:
        isa = ISA_PROFILES[profile]
        description, bits = f"{isa.title} profile ({isa.mcpu}) of {what}", isa.vector_bits
    features = {
        "cores": float(used),
        "vector_bits": float(bits),
        "l1_bytes": float(machine.l1_bytes),
        "l2_bytes": float(machine.l2_bytes),
        "l3_bytes": float(machine.l3_bytes),
        "clock_hz": machine.clock_hz,
    }
    return Platform(
        name=f"{machine.slug}-{used}c-{profile}",
        description=description,
        target=text,
        features={key: value for key, value in features.items() if value},
    )


def remote_platform(name: str, target: str) -> Platform:
    """The platform of devices reached over RPC, called `name` (the tracker's key).

    Args:
        target: a profile of this machine ("native", "avx2", …) where the devices are like it, or TVM's description of them as
            JSON: `{"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a72", "num-cores": 4}`.

    Raises:
        UserError: the description is none, or not of a CPU.
    """
    if not target.lstrip().startswith("{"):
        found = target_json(target)
    else:
        try:
            found = json.loads(target)
        except ValueError as error:
            raise UserError(f"The target is no JSON: {error}.", hint='Write it {"kind": "llvm", "mtriple": …, "num-cores": 4}.') from None
    cores = found.get("num-cores")
    if found.get("kind") != "llvm" or not isinstance(cores, int) or cores < 1:
        raise UserError(
            "Only CPUs are tuned over RPC, and their cores must be known.",
            hint='Write {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a72", "num-cores": 4}.',
        )
    text = json.dumps(found, sort_keys=True, separators=(",", ":"))
    processor = " ".join(str(found[k]) for k in ("mcpu", "mtriple") if k in found) or "CPU"
    return Platform(name=name, description=f"{processor}, {cores} cores, over RPC", target=text, features={"cores": float(cores)})
