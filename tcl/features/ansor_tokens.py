"""Ansor steps (`["SP", stage, axis, extent, factors, inner_to_outer]`, …) as tokens, vectorised over programs of one sketch."""

from __future__ import annotations

from typing import Any

import numpy as np

from tcl.features.texts import columns_of, group_by, integers, log2, structure
from tcl.features.vocabulary import AXIS, EXTENT, FACTOR, FACTORS, KIND, LENGTH, OUTER, REDUCTION, ROLE, SPATIAL, STAGE, VALUE

_ANNOTATIONS = np.array(
    [
        KIND[k] for k in ("annotate", "unroll", "vectorize", "parallel", "vthread", "block_x", "thread_x", "block_y", "thread_y",
                          "block_z", "thread_z", "tensorize")
    ],
    dtype=np.uint8,
)  # fmt: skip
"""By the number of tvm::auto_scheduler::IteratorAnnotation."""
_PLAIN = {"RE": "reorder", "FU": "fuse", "CA": "compute_at", "CI": "compute_inline", "CR": "compute_root", "RF": "rfactor",
          "SA": "storage_align", "FSP": "follow_split", "FFSP": "follow_fused_split", "SP": "split", "PR": "annotate"}  # fmt: skip


def write_tokens(texts: list[bytes], kind: np.ndarray, numbers: np.ndarray, length: np.ndarray) -> None:
    """Fill kind uint8 (n, L), numbers (n, L, P), length int (n,) for step lists given as JSON text. `length` counts before the cut."""
    for rows in group_by([structure(t) for t in texts]).values():
        chosen = [texts[r] for r in rows]
        _one_sketch(columns_of(chosen[0]), integers(chosen), rows, kind, numbers, length)


def _one_sketch(
    steps: list[list[Any]], table: np.ndarray, rows: np.ndarray, kind: np.ndarray, numbers: np.ndarray, length: np.ndarray
) -> None:
    n = len(rows)
    factors = np.zeros((n, len(steps), FACTORS), dtype=np.float32)  # log2 of every split's factors, for the steps that follow them
    every = np.arange(n)
    values = np.zeros((n, len(steps), numbers.shape[2]), dtype=np.float32)
    kinds = np.full((n, len(steps)), KIND["other"], dtype=np.uint8)
    roles = _roles(steps)

    def column(reference: Any) -> np.ndarray:
        # the trace-free way to a value: the integer a step holds is a column of the table; null and text count as 0
        return table[:, abs(reference) - 1] if isinstance(reference, int) and reference else np.zeros(n, dtype=np.int64)

    for t, step in enumerate(steps):
        name, out = step[0], values[:, t]
        kinds[:, t] = KIND[_PLAIN.get(name, "other")]
        if len(step) > 1:
            out[:, STAGE] = log2(1 + column(step[1]))
        if name in ("SP", "FSP", "FFSP", "AN", "PR", "RF", "SA") and len(step) > 2:
            out[:, AXIS] = log2(1 + column(step[2]))
        if name == "SP":
            parts = [log2(column(c)) for c in step[4]]
            for i, part in enumerate(parts[:FACTORS]):
                factors[:, t, i] = part
            for part in parts[FACTORS:]:
                factors[:, t, FACTORS - 1] += part
            out[:, EXTENT] = log2(column(step[3]))
            out[:, ROLE] = roles[t]
            _set_split(out, factors[:, t])
        elif name == "FSP":
            source = np.clip(column(step[3]), 0, len(steps) - 1)
            levels = column(step[4])
            inherited = factors[every, source].copy()
            for i in range(FACTORS - 1):  # the last level takes all that is left
                inherited[:, i] += np.where(levels == i + 1, inherited[:, i + 1 :].sum(1), 0)
                inherited[:, i + 1] *= levels > i + 1
                inherited[:, i + 2 :] *= (levels > i + 1)[:, None]
            out[:, EXTENT] = values[every, source, EXTENT]
            out[:, ROLE] = SPATIAL
            factors[:, t] = inherited
            _set_split(out, inherited)
        elif name == "FFSP":
            level = np.clip(column(step[4]), 0, FACTORS - 1)
            sources = [np.clip(column(c), 0, len(steps) - 1) for c in step[3]]
            if sources:
                out[:, FACTOR] = sum(factors[every, s, level] for s in sources)
                out[:, EXTENT] = sum(values[every, s, EXTENT] for s in sources)
            out[:, ROLE] = SPATIAL
            factors[:, t, 0] = out[:, FACTOR]
        elif name == "AN":
            kinds[:, t] = _ANNOTATIONS[np.clip(column(step[3]), 0, len(_ANNOTATIONS) - 1)]
        elif name in ("RE", "FU"):
            out[:, VALUE] = np.log2(1 + len(step[2]))
            if step[2]:
                out[:, AXIS] = log2(1 + column(step[2][0]))
        elif name == "CA":
            out[:, AXIS] = log2(1 + column(step[2]))
            out[:, VALUE] = log2(1 + column(step[3]))
        elif name in ("CHR", "CHW"):
            kinds[:, t] = KIND[("cache_read_" if name == "CHR" else "cache_write_") + ("shared" if step[2] == "shared" else "local")]
        elif name == "PR" and isinstance(step[3], str) and step[3].startswith("auto_unroll_max_step$"):
            kinds[:, t] = KIND["pragma_unroll"]
            out[:, VALUE] = log2(1 + column(int(step[3].partition("$")[2])))
    kept = min(len(steps), LENGTH)
    kind[rows, :kept] = kinds[:, :kept]
    numbers[rows, :kept] = values[:, :kept]
    length[rows] = len(steps)


def _set_split(out: np.ndarray, factors: np.ndarray) -> None:
    out[:, FACTOR : FACTOR + FACTORS] = factors
    out[:, OUTER] = np.maximum(out[:, EXTENT] - factors.sum(1), 0)


def _roles(steps: list[list[Any]]) -> list[float]:
    """Of each step: in a run of splits of one multi-level tiling, axes with fewer factors than the longest are reductions."""
    roles = [0.0] * len(steps)
    start = 0
    while start < len(steps):
        stop = start
        while stop < len(steps) and steps[stop][0] == "SP":
            stop += 1
        most = max((len(s[4]) for s in steps[start:stop]), default=0)
        for t in range(start, stop):
            roles[t] = REDUCTION if len(steps[t][4]) < most else SPATIAL
        start = stop + 1 if stop == start else stop
    return roles
