"""What stands beside a program's schedule: its task's own numbers, and the platform's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tcl.programs.types import Platform, Task

OPERATORS = (
    "conv2d", "depthwise", "matmul", "batch_matmul", "dense", "softmax", "layer_norm", "pooling", "reduction", "elementwise",
    "transpose", "other",
)  # fmt: skip
EXTENTS = 10
"""Loop extents kept of a task's main block."""
_FORMATS = ("metaschedule", "ansor", "autotvm")
TASK_FEATURES = (
    *(f"extent{i}" for i in range(EXTENTS)), "flops", "bytes", "intensity", "volume", *(f"operator_{o}" for o in OPERATORS),
    *(f"format_{f}" for f in _FORMATS),
)  # fmt: skip
HARDWARE = (
    "cores", "threads", "vector_bits", "l1_bytes", "l2_bytes", "l3_bytes", "clock_hz", "sm_count", "shared_bytes", "registers",
    "warp_size", "bandwidth_bytes_s", "peak_flops", "memory_bytes",
)  # fmt: skip
PLATFORM_FEATURES = ("cpu", "gpu", *HARDWARE, *(f"knows_{h}" for h in HARDWARE))


def task_features(tasks: Sequence[Task]) -> np.ndarray:
    """float32 (n, len(TASK_FEATURES)): log2 of extents, operations and bytes, scaled to about [0, 3]; the operator one-hot.

    An operator that is not among `OPERATORS` counts as "other": a model then still has the extents to go by.
    """
    rows = np.zeros((len(tasks), len(TASK_FEATURES)), dtype=np.float32)
    for row, task in zip(rows, tasks, strict=True):
        extents = np.log2(1 + np.asarray(task.extents[:EXTENTS], dtype=np.float64))
        row[: len(extents)] = extents / 8
        row[EXTENTS] = np.log2(1 + task.flops) / 16
        row[EXTENTS + 1] = np.log2(1 + task.bytes) / 16
        row[EXTENTS + 2] = np.log2(1 + task.flops / task.bytes) / 8 if task.bytes else 0
        row[EXTENTS + 3] = np.log2(1 + np.maximum(task.extents, 1)).sum() / 16 if task.extents else 0
        operator = task.operator if task.operator in OPERATORS else "other"
        row[EXTENTS + 4 + OPERATORS.index(operator)] = 1
        if task.format in _FORMATS:
            row[EXTENTS + 4 + len(OPERATORS) + _FORMATS.index(task.format)] = 1
    return rows


def platform_features(platforms: Sequence[Platform]) -> np.ndarray:
    """float32 (n, len(PLATFORM_FEATURES)): CPU or GPU, log2 of the known hardware numbers, and which ones are known."""
    rows = np.zeros((len(platforms), len(PLATFORM_FEATURES)), dtype=np.float32)
    for row, platform in zip(rows, platforms, strict=True):
        row[0 if platform.kind == "cpu" else 1] = 1
        for i, name in enumerate(HARDWARE):
            value = platform.features.get(name)
            if value is not None and value >= 0:
                row[2 + i] = np.log2(1 + value) / 16
                row[2 + len(HARDWARE) + i] = 1
    return rows
