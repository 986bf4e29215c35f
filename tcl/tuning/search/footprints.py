"""How much data a tile touches, from the decisions alone: what a cost model of decisions otherwise has to guess.

    extra = Footprints.of(module, instructions)
    columns = extra.columns(flat)  # float32 (n, COLUMNS)

TVM's own features are read from lowered programs: which buffer each loop touches, and how much of it. For programs of MetaSchedule's
multi-level tiling (SSRSRS: spatial tiles, reduction tiles) the same follows from the tile sizes and from how the tiled block indexes
its buffers, without lowering anything. Our reconstruction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tcl.features.flat import FLAT_FEATURES, SPLITS

if TYPE_CHECKING:
    from tvm.ir import IRModule

REDUCTION = 2  # tvm's IterVar.CommReduce
BUFFERS = 3
"""Buffers whose footprints are told one by one: the first that are read, the written one last."""
LEVELS = ((1, 0), (1, 1), (2, 1), (2, None), (3, None))
"""Tiles inside of which data is counted: how many of the innermost spatial and reduction levels (None: the whole reduction)."""
INSIDE = (1, 2)
"""Levels whose buffers are told one by one."""
SPLIT_FACTORS = [[FLAT_FEATURES.index(f"split{i}_factor{level}") for level in (1, 2, 3)] for i in range(SPLITS)]
"""Columns of the flat features: for each split, the tile sizes inside its outer loop, the innermost spatial one last."""
COLUMNS = 2 * len(LEVELS) + BUFFERS * len(INSIDE)


@dataclass(frozen=True)
class Footprints:
    """`splits`: for each loop of the tiled block, which split of the trace tiles it. `reduces`: bool (loops,). `extents`: int64 (loops,).
    `buffers`: how each indexes its dimensions, int64 (dimensions, loops)."""

    splits: tuple[int, ...]
    reduces: np.ndarray
    extents: np.ndarray
    buffers: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, module: IRModule, instructions: Sequence[Sequence[Any]]) -> Footprints | None:
        """Of a task's unscheduled module and the instructions of one of its design spaces; None where nothing is tiled that way, or a
        buffer is indexed by more than sums of loops."""
        found = _tiled_block(instructions)
        if found is None:
            return None
        from tvm.s_tir import Schedule
        from tvm.sym import detect_linear_equation

        name, splits = found
        block = (schedule := Schedule(module)).get(schedule.get_sblock(name))
        loops = [v.var for v in block.iter_vars]
        if len(loops) != len(splits):
            return None
        buffers = []
        for access in [*list(block.reads)[: BUFFERS - 1], *list(block.writes)[:1]]:
            rows = [detect_linear_equation(dimension.min, loops) for dimension in access.region]
            if not all(len(row) for row in rows):
                return None
            buffers.append(np.abs(np.array([[int(c) for c in list(row)[: len(loops)]] for row in rows], dtype=np.int64)))
        reduces = np.array([int(v.iter_type) == REDUCTION for v in block.iter_vars])
        return cls(splits, reduces, np.array([int(v.dom.extent) for v in block.iter_vars], dtype=np.int64), tuple(buffers))

    @classmethod
    def of_any(cls, module: IRModule, spaces: Iterable[Sequence[Sequence[Any]]]) -> Footprints | None:
        """Of the first of a task's design spaces (their instructions) that has them: they tell the same of all."""
        return next((found for instructions in spaces if (found := cls.of(module, instructions)) is not None), None)

    def columns(self, flat: np.ndarray) -> np.ndarray:
        """float32 (n, COLUMNS), all log2: for each level the elements that its tile touches, and its steps for each of them; then each
        buffer's part."""
        out = np.zeros((len(flat), COLUMNS), dtype=np.float32)
        for at, (spatial, reduction) in enumerate(LEVELS):
            inner = self._inner(flat, spatial, reduction)
            touched = [np.prod(1.0 + (inner - 1.0) @ buffer.T, axis=1) for buffer in self.buffers]
            out[:, 2 * at] = np.log2(np.sum(touched, axis=0))
            out[:, 2 * at + 1] = np.log2(inner).sum(axis=1) - out[:, 2 * at]
            if at in INSIDE:
                start = 2 * len(LEVELS) + BUFFERS * INSIDE.index(at)
                out[:, start : start + len(touched)] = np.log2(np.stack(touched, axis=1))
        return out

    def _inner(self, flat: np.ndarray, spatial: int, reduction: int | None) -> np.ndarray:
        """float64 (n, loops): how far each loop runs inside a tile."""
        inner = np.empty((len(flat), len(self.splits)))
        for loop, split in enumerate(self.splits):
            if not self.reduces[loop]:
                inner[:, loop] = 2.0 ** flat[:, SPLIT_FACTORS[split][-spatial:]].sum(axis=1)
            elif reduction is None:
                inner[:, loop] = self.extents[loop]
            else:
                inner[:, loop] = 2.0 ** flat[:, SPLIT_FACTORS[split][:reduction]].sum(axis=1)
        return inner


def _tiled_block(instructions: Sequence[Sequence[Any]]) -> tuple[str, tuple[int, ...]] | None:
    """The name of the block that multi-level tiling was applied to, and for each of its loops the place of its split among all."""
    names: dict[str, str] = {}
    loops: dict[str, list[str]] = {}  # block -> its loops
    parts: dict[str, int] = {}  # loop -> into how many it is tiled
    places: dict[str, int] = {}
    count = 0
    for name, inputs, attributes, outputs in instructions:
        if name == "GetSBlock":
            names[outputs[0]] = attributes[0]
        elif name == "GetLoops":
            loops.setdefault(inputs[0], list(outputs))
        elif name == "SamplePerfectTile":
            parts[inputs[0]] = int(attributes[0])
        elif name == "Split":
            places[inputs[0]] = count
            count += 1
    for block, found in loops.items():
        tiled = [parts.get(loop) for loop in found]
        if 4 in tiled and set(tiled) <= {4, 2} and block in names and all(places.get(loop, SPLITS) < SPLITS for loop in found):
            return names[block], tuple(places[loop] for loop in found)
    return None
