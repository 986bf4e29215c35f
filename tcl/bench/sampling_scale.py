"""How long RDU takes and how much memory it needs on pools of real size, in a process of its own: peak memory never falls."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np

FEATURES = 175
PER_ASSIGNMENT = 1000


def measure(sizes: tuple[int, ...] = (100_000, 1_000_000), sampler: str = "rdu") -> list[dict[str, Any]]:
    """One row a size: programs, seconds, memory_gb (peak of the whole process) and, from the second on, times (the seconds)."""
    rows: list[dict[str, Any]] = []
    for n in sizes:
        out = subprocess.run(
            [sys.executable, "-m", "tcl.bench.sampling_scale", str(n), sampler], check=True, capture_output=True, text=True
        )
        row = json.loads(out.stdout)
        rows.append(row | ({"times": row["seconds"] / rows[-1]["seconds"]} if rows else {}))
    return rows


def main(n: int, sampler: str) -> dict[str, Any]:
    """Pick 10 % of `n` synthetic programs: assignments of 1,000, each in five clumps, judged by a model."""
    from tcl.sampling.base import Pool
    from tcl.sampling.registry import make_sampler

    rng = np.random.default_rng(0)
    assignment = np.arange(n) // PER_ASSIGNMENT
    clumps = rng.normal(size=(5 * (n // PER_ASSIGNMENT + 1), FEATURES)).astype(np.float32)
    vectors = clumps[5 * assignment + rng.integers(5, size=n)]
    for start in range(0, n, 50_000):
        part = vectors[start : start + 50_000]
        part += 0.3 * rng.standard_normal(part.shape, dtype=np.float32)
    pool = Pool(vectors, assignment, None, rng.random(n, dtype=np.float32), rng.random(n, dtype=np.float32))
    started = time.monotonic()
    picked = make_sampler(sampler).query(pool, n // 10, seed=0)
    seconds = time.monotonic() - started
    assert len(np.unique(picked)) == n // 10
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"programs": n, "sampler": sampler, "seconds": round(seconds, 2), "memory_gb": round(memory, 2)}


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), sys.argv[2])))
