"""A small dataset of three GPUs, written in the format of real Ansor schedules: splits, annotations, and latencies that follow them."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from tcl.programs.dataset import Dataset
from tcl.programs.types import Measurement, Platform, Program, Task
from tcl.programs.writer import Writer

torch.set_num_threads(1)  # networks this small lose time to threads, and much of it on a busy machine
PLATFORMS = ("a100", "b200", "c300")


def schedule(tile: list[int], unroll: int) -> str:
    """Ansor steps: a split of one loop, a vectorised inner loop, an unroll pragma."""
    steps = [["SP", 2, 0, 64, tile, 1], ["AN", 2, 3, 2], ["PR", 2, 0, f"auto_unroll_max_step${unroll}"]]
    return json.dumps(steps, separators=(",", ":"))


def write(folder, platforms=PLATFORMS, tasks=8, programs=24, all_failed=(), kinds=None, disjoint=()):
    """all_failed: (platform, task number) whose programs all fail. disjoint: platforms that share no task with the others."""
    dataset = Dataset.create(folder)
    random = np.random.default_rng(0)
    with Writer(dataset) as writer:
        for p, name in enumerate(platforms):
            writer.add_platform(Platform(name, (kinds or {}).get(name, "gpu")))
            for t in range(tasks):
                shift = 100 if name in disjoint else 0
                operator = ("conv2d", "matmul")[t % 2]
                task = Task(
                    f"{operator} {t + shift}",
                    operator,
                    "ansor",
                    f'["{operator}",{t + shift}]',
                    (64, 8 * (t + 1), 16 + shift),
                    1e6 * (t + 1),
                    1e4,
                )
                writer.add_tasks([task])
                programs_of, measured = [], []
                for i in range(programs):
                    tile = [int(x) for x in 2 ** random.integers(0, 4, 3)]
                    program = Program(task.id, schedule(tile, 16 * (i % 3)))
                    latency = 1e-3 * (1 + abs(np.log2(tile[0]) - 1 - 0.3 * p) + 0.5 * abs(np.log2(tile[2]) - 2))
                    failed = (name, t) in all_failed
                    outcome = {"error": "run_error"} if failed else {"costs_s": (float(latency),)}
                    programs_of.append(program)
                    measured.append(Measurement(program.id, task.id, name, **outcome))
                writer.add_programs(programs_of)
                writer.add_measurements(measured)
    return Dataset.open(folder)


@pytest.fixture(scope="session")
def dataset(tmp_path_factory):
    return write(tmp_path_factory.mktemp("gpus") / "data")
