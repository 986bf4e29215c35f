"""The roofline of this machine (Williams et al., CACM 2009): no program is faster than its arithmetic at peak FLOP/s, or its memory
traffic at peak bandwidth. Both peaks are measured, once for a number of threads, and kept in the workspace.
Measured again (`tcl roofline --again`), the higher value of each counts: other work on the machine only ever lowers what is attained.

    roof = roofline(threads=2)
    share = roof.share(task, latency_s)

What is attained, not what a data sheet promises: the fastest of a few large matrix products in PyTorch (a vendor's library), and
the fastest of a few sums of arrays that fit no cache. A task that stays in cache moves data faster than memory does, so its share
may be more than 1 where bandwidth is what limits it.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tcl.files import write_json
from tcl.machine import quiet
from tcl.programs.types import Task
from tcl.tuning.apart import ProcessFailed, call
from tcl.tuning.targets import this_machine
from tcl.workspace import workspace

SIZES = (768, 1536)
"""Edges of the matrix products."""
ARRAY_BYTES = 1 << 28
SECONDS = 1.0
"""How long each of the two is repeated at least."""


@dataclass(frozen=True, slots=True)
class Roofline:
    """Attained peaks on `threads` threads: float32 FLOP/s, and bytes read and written per second."""

    flops: float
    bandwidth: float
    threads: int
    measured_at: float  # seconds since 1970; the last time that it was measured

    def least_s(self, task: Task) -> float:
        """The least time of a task, seconds: all its arithmetic at peak or all its arguments moved once, whichever is longer."""
        return max(task.flops / self.flops, task.bytes / self.bandwidth)

    def share(self, task: Task, latency_s: float | None) -> float | None:
        """Which share of the roofline a latency is; None where there is none."""
        return self.least_s(task) / latency_s if latency_s else None

    def told(self) -> dict[str, Any]:
        """As runs record it: flops, bandwidth, threads, and machine, which says whose it is."""
        return {"flops": self.flops, "bandwidth": self.bandwidth, "threads": self.threads, "machine": this_machine().slug}


def known_roofline(threads: int) -> Roofline | None:
    """This machine's as it was measured before; None where it was not."""
    try:
        return Roofline(**json.loads(_path(threads).read_text()))
    except (OSError, ValueError, TypeError):  # none yet, or of another version
        return None


def roofline(threads: int, *, again: bool = False) -> Roofline | None:
    """This machine's, from the workspace or measured now (a few seconds, alone on the machine); None where measuring failed.

    again: measure in any case, and keep the higher value of each peak.
    """
    known = known_roofline(threads)
    if known and not again:
        return known
    try:
        with quiet():
            found = Roofline(**call(_measure, threads, threads=threads, timeout_s=120.0))
    except ProcessFailed:
        return known
    if known:
        found = replace(found, flops=max(found.flops, known.flops), bandwidth=max(found.bandwidth, known.bandwidth))
    path = _path(threads)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, asdict(found))
    return found


def _path(threads: int) -> Path:
    return workspace() / "cache" / f"roofline-{this_machine().slug}-{threads}.json"


def _measure(threads: int) -> dict[str, Any]:
    import torch

    torch.set_num_threads(threads)

    def fastest(run: Any) -> float:
        begin, best = time.perf_counter(), float("inf")
        while time.perf_counter() - begin < SECONDS:
            started = time.perf_counter()
            run()
            best = min(best, time.perf_counter() - started)
        return best

    with torch.inference_mode():
        flops = 0.0
        for n in SIZES:
            a, b, c = (torch.rand(n, n) for _ in range(3))
            flops = max(flops, 2.0 * n**3 / fastest(lambda a=a, b=b, c=c: torch.matmul(a, b, out=c)))
        x, y, z = (torch.ones(ARRAY_BYTES // 4) for _ in range(3))
        bandwidth = 3.0 * ARRAY_BYTES / fastest(lambda: torch.add(x, y, out=z))
    return {"flops": flops, "bandwidth": bandwidth, "threads": threads, "measured_at": time.time()}
