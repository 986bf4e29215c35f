"""Small datasets of the shapes that break pages: nothing, one record, every measurement failed, and something to look at."""

from __future__ import annotations

import numpy as np
import orjson
import pytest

from tcl.programs.dataset import Dataset
from tcl.programs.types import Measurement, NetworkUse, Platform, Program, Task
from tcl.programs.writer import Writer

DIVISORS = [1, 2, 4, 8, 16, 32, 64]


def ansor_schedule(rng: np.random.Generator) -> str:
    """A tiling of a 64x64x64 matrix product as Ansor writes it."""
    a, b, c = (int(rng.choice(DIVISORS)) for _ in range(3))
    unroll = int(rng.choice([0, 16, 64, 512]))
    steps = [
        ["SP", 2, 0, 64, [a, 1, 1], 1], ["SP", 2, 4, 64, [b, 1, 1], 1], ["SP", 2, 8, 64, [c], 1],
        ["RE", 2, [0, 4, 1, 5, 8, 2, 6, 9, 3, 7]], ["FU", 2, [0, 1]], ["AN", 2, 0, 3], ["PR", 2, 0, f"auto_unroll_max_step${unroll}"],
    ]  # fmt: skip
    return orjson.dumps(steps).decode()


def fill(path, programs_a_task: int = 60, platforms=("avx2", "avx512"), failing: float = 0.1, tasks: int = 3, unmeasured: float = 0.25):
    """A dataset of random tilings; the latency depends on the tile, so that maps have something to show."""
    rng = np.random.default_rng(0)
    dataset = Dataset.create(path)
    with Writer(dataset) as writer:
        for platform in platforms:
            writer.add_platform(Platform(platform, description=f"{platform} of a test"))
        for t in range(tasks):
            extent = 64 * (t + 1)
            operator = ["matmul", "softmax", "pooling"][t % 3]
            used = (NetworkUse("net-a" if t < 2 else "net-b", 1.0),)
            workload = f'["{operator}",{extent}]'
            task = Task(f"{operator} {extent}", operator, "ansor", workload, (extent, 64, 64), 8192.0 * extent, 4.0 * extent, used)
            writer.add_tasks([task])
            made = {p.id: p for p in (Program(task.id, ansor_schedule(rng)) for _ in range(programs_a_task))}
            writer.add_programs(made.values())
            for program in made.values():
                if rng.random() < unmeasured:
                    continue
                steps = orjson.loads(program.schedule)
                for i, platform in enumerate(platforms):
                    if rng.random() < failing:
                        failed = {"error": "run_timeout", "detail": "longer than 1 s"}
                        measurement = Measurement(program.id, task.id, platform, measured_at=1.0, **failed)
                    else:
                        base = 1e-4 * (1 + abs(np.log2(steps[0][4][0] * steps[1][4][0]) - 6 + i))
                        costs = tuple(float(base * rng.uniform(1.0, 1.05)) for _ in range(3))
                        measurement = Measurement(program.id, task.id, platform, costs, measured_at=1.0)
                    writer.add_measurements([measurement])
    return dataset


@pytest.fixture(autouse=True)
def own_workspace(tmp_path, monkeypatch):
    monkeypatch.setenv("TCL_WORKSPACE", str(tmp_path / "workspace"))
    monkeypatch.setenv("TCL_LOCK_DIR", str(tmp_path))


@pytest.fixture
def dataset(tmp_path):
    return fill(tmp_path / "data")
