"""`tcl bench import`: how fast, and in how much memory, a million Ansor records become a dataset.

Real records are repeated under new workload keys (a number is added to the key), so that every one is a program and a measurement
of its own. The import runs in a process of its own, whose peak memory is measured by the operating system.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tcl.bench.report import goal, machine
from tcl.errors import UserError
from tcl.progress import Progress


def run(*, progress: Progress | None = None, records: int = 1_000_000, source: str = "", keep: str = "") -> dict[str, Any]:
    """Import `records` records and say seconds, peak memory, seconds of `data stats`, and of a second import that adds nothing.

    Args:
        source: a folder or file of Ansor logs (`.log`, `.json`, `.gz`) to repeat; without it records are made here.
        keep: a folder to keep the dataset in; without it a temporary one is used.
    """
    progress = progress or Progress()
    with tempfile.TemporaryDirectory(prefix="tcl-bench-import-") as scratch:
        log, out = Path(scratch) / "records.json", Path(keep or scratch) / "dataset"
        size = _write(log, source, records, progress)
        rows = []
        for method in ("import", "import again"):
            started = time.monotonic()
            summary, memory, cpu_s = _measured(["import", str(log), "--platform", "bench", "--out", str(out), "--json"])
            seconds = time.monotonic() - started
            rows.append(
                {
                    "method": method, "seed": 0, "records": summary["lines"], "imported": summary["imported"],
                    "duplicates": summary["duplicates"], "seconds": round(seconds, 1), "cpu_s": round(cpu_s, 1),
                    "records_a_second": round(summary["lines"] / seconds), "peak_memory_gb": round(memory / 1e9, 3),
                }
            )  # fmt: skip
        started = time.monotonic()
        stats, *_ = _measured(["stats", str(out), "--json"])
        stats_s = time.monotonic() - started
        disk = sum(p.stat().st_size for p in out.rglob("*") if p.is_file())
    whole = records >= 1_000_000
    scale = records / 1_000_000
    return {
        "bench": "import",
        "rows": rows,
        "stats_s": round(stats_s, 2),
        "log_gb": round(size / 1e9, 3),
        "dataset_gb": round(disk / 1e9, 3),
        "measurements": stats["measurements"],
        "goals": [
            goal(f"seconds for {records:,} records", 600 * max(scale, 0.01), rows[0]["seconds"], at_most=True),
            goal("peak memory, GB", 1.0, rows[0]["peak_memory_gb"] if whole else None, at_most=True),
            goal("seconds of data stats", 2.0, round(stats_s, 2), at_most=True),
            goal("records accounted for", records, rows[0]["imported"] + rows[0]["duplicates"]),
            goal("records that a second import adds", 0, rows[1]["imported"], at_most=True),
        ],
        "machine": machine(),
    }


def _write(path: Path, source: str, records: int, progress: Progress) -> int:
    """Write the log; returns its size in bytes."""
    lines = list(_real(Path(source))) if source else list(_made())
    if not lines:
        raise UserError(f"There is no Ansor record in {source}.")
    with path.open("wb") as file:
        for i in range(records):
            if i % 50_000 == 0:
                progress.check()
                progress.step(i, records, "Writing records:")
            copy, line = divmod(i, len(lines))
            head, tail = lines[line]
            file.write(b"%b_copy%d%b\n" % (head, copy, tail))
    return path.stat().st_size


def _real(source: Path) -> Iterator[tuple[bytes, bytes]]:
    """The Ansor records of real logs, each cut behind the name in its workload key."""
    files = sorted(p for p in source.rglob("*") if p.is_file()) if source.is_dir() else [source]
    mark = b'{"i": [["[\\"'
    for path in files:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            for line in file:
                if line.startswith(mark):
                    cut = line.index(b'\\"', len(mark))
                    yield line[:cut], line[cut:].rstrip()


def _made() -> Iterator[tuple[bytes, bytes]]:
    """20,000 distinct records of a convolution, as long as real ones (about 1.1 kB)."""
    sizes = (128, 168, 42, 42, 1008)
    for i in range(20_000):
        factors = [2 ** (i >> shift & 3) for shift in (0, 2, 4, 6, 8, 10, 12)]
        splits = [["SP", 3, 5 * a, size, [factors[a], 1, factors[a + 1], 1 + i % 3], 1] for a, size in enumerate(sizes)]
        loads = [s for stage in (4, 2) for s in (["FU", stage, [0, 1, 2, 3]], ["SP", stage, 0, 96, [4], 1], ["AN", stage, 1, 6])]
        follow = [["FSP", 4, 4 * a, a + 1, 3] for a in range(4)]
        steps = [["CHW", 3, "local"], *splits, ["RE", 3, list(range(29))], *follow, ["CA", 3, 4, 11], ["CHR", 2, "shared", [3]], *loads * 3]
        steps += [["PR", 5, 0, f"auto_unroll_max_step${i}"]]
        target = ["cuda -keys=cuda,gpu -max_num_threads=1024 -thread_warp_size=32", [-1, 16, 64, 49152, 2147483647, 1024, 8, 32], "", 0, []]
        rest = json.dumps([target, [[], steps]])[2:]
        result = json.dumps([[1e-3 + i * 1e-7], 0, 8.0, 1649183262 + i])
        key = ', 128, 1008, 42, 42, 168, 1, 1, 1, \\"SAME\\"]", '
        yield b'{"i": [["[\\"conv2d_layer', f'\\"{key}{rest}, "r": {result}, "v": "v0.6"}}'.encode()


def _measured(arguments: list[str]) -> tuple[dict[str, Any], int, float]:
    """Run `tcl data …` in a process of its own: its JSON, its peak memory in bytes, its processor seconds."""
    code = (
        "import resource, sys; sys.argv[0] = 'tcl'\n"
        "from tcl.cli import main\n"
        "try:\n    main()\n"
        "finally:\n    used = resource.getrusage(resource.RUSAGE_SELF)\n"
        "    print('USED', used.ru_maxrss, used.ru_utime + used.ru_stime, file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, "data", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise UserError(f"tcl data {arguments[0]} failed: {done.stderr.strip().splitlines()[-1][:300]}")
    peak, cpu_s = next(line.split()[1:] for line in done.stderr.splitlines() if line.startswith("USED "))
    return json.loads(done.stdout), int(peak) * 1024, float(cpu_s)
