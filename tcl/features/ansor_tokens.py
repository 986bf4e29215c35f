"""Ansor steps (`["SP", stage, axis, extent, factors, inner_to_outer]`, …) as tokens, vectorised over programs of one sketch.

The steps are replayed on loop lists, as Ansor does when it applies them, so that a loop that is fused or bound has its extent.
What the loops of a stage are before the first step is not in the log: such a loop's extent counts as unknown (0).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tcl.features.texts import align, columns_of, group_by, integers, log2, structure
from tcl.features.vocabulary import ALIGN, AXIS, EXTENT, FACTOR, FACTORS, KIND, LENGTH, OUTER, REDUCTION, ROLE, SPATIAL, STAGE, VALUE

_ANNOTATIONS = (
    "annotate", "unroll", "vectorize", "parallel", "vthread", "block_x", "thread_x", "block_y", "thread_y", "block_z", "thread_z",
    "tensorize",
)  # fmt: skip
"""By the number of tvm::auto_scheduler::IteratorAnnotation."""
_UNROLL = "auto_unroll_max_step$"


def write_tokens(texts: list[bytes], kind: np.ndarray, numbers: np.ndarray, length: np.ndarray) -> None:
    """Fill kind uint8 (n, L), numbers (n, L, P), length int (n,) for step lists given as JSON text. `length` counts before the cut."""
    for rows in group_by([structure(t) for t in texts]).values():
        chosen = [texts[r] for r in rows]
        steps, table = columns_of(chosen[0]), integers(chosen)
        free = _free_columns(steps)
        fixed = np.delete(table, free, axis=1)
        fixed = fixed[:, (fixed != fixed[0]).any(0)]
        sketches, inverse = np.unique(fixed, axis=0, return_inverse=True) if fixed.size else ([0], np.zeros(len(rows), dtype=int))
        for s in range(len(sketches)):
            here = np.flatnonzero(inverse.reshape(-1) == s)
            _Sketch(steps, table[here], kind.shape[1]).write(rows[here], kind, numbers, length)


def _free_columns(steps: list[list[Any]]) -> list[int]:
    """Columns of what differs between programs of one sketch: extents, factors, unroll depths. The others are stages and loops."""
    free = []
    for step in steps:
        if step[0] == "SP":
            free += [c - 1 for c in [step[3], *step[4]] if isinstance(c, int)]
        elif step[0] == "PR" and isinstance(step[3], str) and step[3].startswith(_UNROLL):
            free.append(int(step[3][len(_UNROLL) :]) - 1)
    return free


class _Sketch:
    """Programs with the same steps but for extents, factors and unroll depths. Loop extents are int64 (n,), 0 where unknown."""

    def __init__(self, steps: list[list[Any]], table: np.ndarray, limit: int) -> None:
        self.steps, self.table, self.n, self.limit = steps, table, len(table), limit
        self.unknown = np.zeros(self.n, dtype=np.int64)
        self.stages: dict[int, list[np.ndarray]] = {}
        self.factors: dict[int, list[np.ndarray]] = {}  # of the splits so far, by step
        self.extents: dict[int, np.ndarray] = {}
        self.roles = _roles(steps)

    def write(self, rows: np.ndarray, kind: np.ndarray, numbers: np.ndarray, length: np.ndarray) -> None:
        for t, step in enumerate(self.steps):
            out = np.zeros((self.n, numbers.shape[2]), dtype=np.float32)
            if len(step) > 1:
                out[:, STAGE] = np.log2(1 + self.fixed(step[1]))
            reader = getattr(self, f"_{step[0].lower()}", None) if isinstance(step[0], str) else None
            name = reader(t, step, out) if reader else {"CI": "compute_inline", "CR": "compute_root"}.get(step[0], "other")
            if t < min(self.limit, LENGTH):
                kind[rows, t] = KIND[name]
                numbers[rows, t] = out
        length[rows] = len(self.steps)

    # -- reading a step's arguments: each integer of a step is a column of the table, counted from 1 -----------------------

    def fixed(self, reference: Any) -> int:
        return int(self.table[0, abs(reference) - 1]) if isinstance(reference, int) else 0

    def varied(self, reference: Any) -> np.ndarray:
        return self.table[:, abs(reference) - 1] if isinstance(reference, int) else self.unknown

    def loops(self, stage: int, index: int) -> list[np.ndarray]:
        found = self.stages.setdefault(stage, [])
        found += [self.unknown] * (index + 1 - len(found))
        return found

    def insert_stage(self, stage: int) -> None:
        self.stages = {s + (s >= stage): loops for s, loops in self.stages.items()}

    # -- one method a step; each returns the kind of its token -------------------------------------------------------------

    def _sp(self, t: int, step: list[Any], out: np.ndarray) -> str:
        self._split(t, self.fixed(step[1]), self.fixed(step[2]), self.varied(step[3]), [self.varied(c) for c in step[4]], out)
        out[:, ROLE] = self.roles[t]
        return "split"

    def _fsp(self, t: int, step: list[Any], out: np.ndarray) -> str:
        source, levels = self.fixed(step[3]), self.fixed(step[4])
        parts = list(self.factors.get(source, []))
        if len(parts) > levels > 0:  # the last level takes all that is left
            parts = [*parts[: levels - 1], np.prod(parts[levels - 1 :], axis=0)]
        self._split(t, self.fixed(step[1]), self.fixed(step[2]), self.extents.get(source, self.unknown), parts, out)
        out[:, ROLE] = SPATIAL
        return "follow_split"

    def _ffsp(self, t: int, step: list[Any], out: np.ndarray) -> str:
        level = self.fixed(step[4])
        sources = [self.factors.get(self.fixed(c), []) for c in step[3]]
        product = np.ones(self.n, dtype=np.int64)
        for parts in sources:
            if level < len(parts):
                product = product * parts[level]
        stage, index = self.fixed(step[1]), self.fixed(step[2])
        extent = self.loops(stage, index)[index]
        by_factor = self.fixed(step[5]) == 1 if len(step) > 5 else True
        self._split(t, stage, index, extent, [product if by_factor else _ceil(extent, product)], out)
        out[:, ROLE] = SPATIAL
        return "follow_fused_split"

    def _split(self, t: int, stage: int, index: int, extent: np.ndarray, parts: list[np.ndarray], out: np.ndarray) -> None:
        inner = np.prod(parts, axis=0) if parts else np.ones(self.n, dtype=np.int64)
        outer = _ceil(extent, inner)
        self.factors[t], self.extents[t] = parts, extent
        self.loops(stage, index)[index : index + 1] = [outer, *parts]
        out[:, EXTENT], out[:, OUTER], out[:, AXIS] = log2(extent), log2(outer), np.log2(1 + index)
        for i, part in enumerate(parts[:FACTORS]):
            out[:, FACTOR + i] = log2(part)
        for part in parts[FACTORS:]:
            out[:, FACTOR + FACTORS - 1] += log2(part)
        if parts:
            out[:, ALIGN] = align(parts[-1])

    def _re(self, t: int, step: list[Any], out: np.ndarray) -> str:
        stage, order = self.fixed(step[1]), [self.fixed(c) for c in step[2]]
        if order:
            before = self.loops(stage, max(order))
            self.stages[stage] = [before[i] for i in order]
            out[:, AXIS] = np.log2(1 + order[-1])
        out[:, VALUE] = np.log2(1 + len(order))
        return "reorder"

    def _fu(self, t: int, step: list[Any], out: np.ndarray) -> str:
        stage, fused = self.fixed(step[1]), [self.fixed(c) for c in step[2]]
        if fused:
            loops = self.loops(stage, max(fused))
            product = np.prod([loops[i] for i in fused], axis=0)  # unknown as soon as one is unknown
            self.stages[stage] = [product if i == fused[0] else loop for i, loop in enumerate(loops) if i not in fused[1:]]
            out[:, EXTENT], out[:, ALIGN], out[:, AXIS] = log2(product), align(product), np.log2(1 + fused[0])
        out[:, VALUE] = np.log2(1 + len(fused))
        return "fuse"

    def _an(self, t: int, step: list[Any], out: np.ndarray) -> str:
        index, annotation = self.fixed(step[2]), self.fixed(step[3])
        extent = self.loops(self.fixed(step[1]), index)[index]
        out[:, EXTENT], out[:, ALIGN], out[:, AXIS] = log2(extent), align(extent), np.log2(1 + index)
        return _ANNOTATIONS[annotation] if annotation < len(_ANNOTATIONS) else "annotate"

    def _pr(self, t: int, step: list[Any], out: np.ndarray) -> str:
        out[:, AXIS] = np.log2(1 + self.fixed(step[2]))
        if isinstance(step[3], str) and step[3].startswith(_UNROLL):
            out[:, VALUE] = log2(1 + self.varied(int(step[3][len(_UNROLL) :])))
            return "pragma_unroll"
        return "annotate"

    def _ca(self, t: int, step: list[Any], out: np.ndarray) -> str:
        out[:, AXIS], out[:, VALUE] = np.log2(1 + self.fixed(step[2])), np.log2(1 + self.fixed(step[3]))
        return "compute_at"

    def _chr(self, t: int, step: list[Any], out: np.ndarray) -> str:
        self.insert_stage(self.fixed(step[1]) + 1)
        return "cache_read_shared" if step[2] == "shared" else "cache_read_local"

    def _chw(self, t: int, step: list[Any], out: np.ndarray) -> str:
        self.insert_stage(self.fixed(step[1]))
        return "cache_write_shared" if step[2] == "shared" else "cache_write_local"

    def _rf(self, t: int, step: list[Any], out: np.ndarray) -> str:
        stage, index = self.fixed(step[1]), self.fixed(step[2])
        extent = self.loops(stage, index)[index]
        self.insert_stage(stage)
        out[:, EXTENT], out[:, ALIGN], out[:, AXIS] = log2(extent), align(extent), np.log2(1 + index)
        return "rfactor"

    def _sa(self, t: int, step: list[Any], out: np.ndarray) -> str:
        out[:, AXIS], out[:, VALUE] = np.log2(1 + self.fixed(step[2])), np.log2(1 + self.fixed(step[3]))
        return "storage_align"


def _ceil(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return -(-a // np.maximum(b, 1))


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
