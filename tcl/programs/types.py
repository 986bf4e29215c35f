"""The domain's words as plain data: platform, task, program, measurement.

Identities are 64-bit integers taken from a hash of the content, so that the same program measured by two people on two
platforms gets the same identity without anybody keeping a registry. People and JavaScript see them as 16 hex digits
(`format_id`): JavaScript numbers hold only 53 bits.
"""

from __future__ import annotations

import math
import re
import statistics
import time
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from tcl.errors import UserError

FAILURE_KINDS = (
    "invalid_schedule",  # the schedule could not be applied, or a post-processor rejected it
    "build_error",  # the compiler refused the program
    "build_timeout",
    "run_error",  # the program ran and failed (or its worker died)
    "run_timeout",
    "out_of_memory",
    "wrong_output",
    "bad_cost",  # a log says it succeeded but its cost is zero, negative, NaN or a sentinel
    "unknown_error",
)
"""How a measurement can fail. Readers of other people's logs map their error numbers to these."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")


def content_id(*parts: str | bytes) -> int:
    """A signed 64-bit identity of `parts`; the same on every machine and Python version."""
    digest = blake2b(digest_size=8)
    for part in parts:
        raw = part.encode() if isinstance(part, str) else part
        digest.update(len(raw).to_bytes(8, "little"))
        digest.update(raw)
    return int.from_bytes(digest.digest(), "little", signed=True)


def program_id(task: int, schedule: str | bytes) -> int:
    """The identity of a program; what `Program.id` is, for code that handles a million of them without objects."""
    return content_id(task.to_bytes(8, "little", signed=True), schedule)


def measurement_id(program: int, platform: str, measured_at: float, error: str, costs_s: tuple[float, ...]) -> int:
    """The identity of a measurement; what `Measurement.id` is."""
    return content_id(f"{program} {platform} {measured_at!r} {error} {' '.join(map(repr, costs_s))}")


def format_id(identity: int) -> str:
    """The 16 hex digits under which people see an identity."""
    return f"{identity & 0xFFFFFFFFFFFFFFFF:016x}"


def parse_id(text: str) -> int:
    """The inverse of `format_id`."""
    try:
        value = int(text, 16)
    except ValueError:
        raise UserError(f"{text!r} is not a program or task id: those are 16 hex digits.") from None
    return value - (1 << 64) if value >= 1 << 63 else value


@dataclass(frozen=True, slots=True)
class Platform:
    """One hardware device that programs are measured on. The user names it; nothing guesses it from a target string.

    `features` are numbers about the hardware for models that read them (cores, vector_bits, l1_bytes, l2_bytes, l3_bytes,
    clock_hz, sm_count, shared_bytes, bandwidth_bytes_s, …); a number that is not known is left out.
    """

    name: str
    kind: str = "cpu"  # "cpu" or "gpu"
    description: str = ""
    target: str = ""  # the TVM target programs are compiled for, JSON; empty for imported logs
    features: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise UserError(
                f"{self.name!r} cannot name a platform.",
                hint="Use 1 to 64 letters, digits, '.', '_', '+' or '-', starting with a letter or digit.",
            )
        if self.kind not in ("cpu", "gpu"):
            raise UserError(f"A platform is of kind 'cpu' or 'gpu', not {self.kind!r}.")


@dataclass(frozen=True, slots=True)
class NetworkUse:
    """That a network holds a task `weight` times."""

    network: str
    weight: float


@dataclass(frozen=True, slots=True)
class Task:
    """One subgraph of a network, or a single operator: what TVM calls a task and Ansor a workload.

    `workload` is the format's own description, normalised (Ansor's workload key without its padding word, a TVM module as
    JSON): with `format` it *is* the task's identity. `group` puts near-duplicate workloads (the same operator and loop
    extents) together, so that a split never has one on each side.
    """

    name: str  # for people, e.g. "conv2d 1x64x56x56 64x64x3x3 s1"
    operator: str  # "conv2d", "depthwise", "matmul", "softmax", "pooling", "elementwise", "reduction", …
    format: str  # "metaschedule", "ansor", "autotvm"
    workload: str
    extents: tuple[int, ...] = ()  # loop extents of the main block
    flops: float = 0.0  # floating-point operations of one run; 0 where unknown
    bytes: float = 0.0  # bytes of the inputs and outputs; 0 where unknown
    networks: tuple[NetworkUse, ...] = ()

    @property
    def id(self) -> int:
        return content_id(self.format, self.workload)

    @property
    def group(self) -> int:
        return content_id(self.operator, ",".join(map(str, sorted(self.extents)))) if self.extents else self.id


@dataclass(frozen=True, slots=True)
class Program:
    """A task with one schedule. `schedule` is the format's own step list as compact JSON, normalised so that equal
    schedules are equal text (for MetaSchedule: `[instructions, decisions]` of the trace; for Ansor: the step array)."""

    task: int
    schedule: str

    @property
    def id(self) -> int:
        return program_id(self.task, self.schedule)


@dataclass(frozen=True, slots=True)
class Measurement:
    """A program run on a platform: its costs in seconds, one a repeat, or how it failed."""

    program: int
    task: int
    platform: str
    costs_s: tuple[float, ...] = ()
    error: str = ""  # "" or one of FAILURE_KINDS
    detail: str = ""  # the failure's message, shortened
    measured_at: float = 0.0  # Unix time, seconds; 0 where a log does not tell
    source: str = ""  # which import or collection it came from

    def __post_init__(self) -> None:
        if bool(self.error) == bool(self.costs_s) or any(not math.isfinite(c) or c <= 0 for c in self.costs_s):
            raise ValueError(f"a measurement has positive finite costs or an error, not {self.costs_s} and {self.error!r}")
        if self.error and self.error not in FAILURE_KINDS:
            raise ValueError(f"unknown failure kind {self.error!r}")

    @property
    def latency_s(self) -> float:
        """The median of the repeats; NaN for a failure."""
        return statistics.median(self.costs_s) if self.costs_s else math.nan

    @property
    def id(self) -> int:
        """Equal for the same record read twice; different for two measurements of one program."""
        return measurement_id(self.program, self.platform, self.measured_at, self.error, self.costs_s)

    @classmethod
    def now(cls, **kwargs: Any) -> Measurement:
        return cls(measured_at=time.time(), **kwargs)
