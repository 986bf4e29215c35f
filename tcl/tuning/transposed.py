"""A schedule rule that TVM lacks: tiles for what copies a tensor along another axis than it reads it.

TVM tiles only what reads an element more than once. A transpose reads every element once, so its design space holds one program,
whose inner loop strides through the input and uses one element of each cache line that it fetches.
"""

from __future__ import annotations

from typing import Any

from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule.schedule_rule import PyScheduleRule

LARGEST_TILE = 64
"""Elements along an axis of a tile: a few cache lines each way."""


@derived_object
class TileTransposed(PyScheduleRule):
    """Split the axis along which a block writes and the one along which it reads, and go through it tile by tile."""

    def _initialize_with_tune_context(self, context: Any) -> None:
        pass

    def apply(self, sch: Any, block: Any) -> list[Any]:
        """The schedule with tiles, where the block reads along another axis than it writes; else as it is."""
        loops = sch.get_loops(block)
        axis = _axis_read(sch, block)
        if axis is None:
            return [sch]
        outer, inner = [], []
        for place, loop in enumerate(loops):
            if place not in (axis, len(loops) - 1):
                outer.append(loop)
                continue
            factors = sch.sample_perfect_tile(loop, n=2, max_innermost_factor=LARGEST_TILE)
            parts = sch.split(loop, factors)
            outer.append(parts[0])
            inner.append(parts[1])
        sch.reorder(*outer, *inner)
        return [sch]

    def clone(self) -> TileTransposed:
        return TileTransposed()


def has_transposed(mod: Any) -> bool:
    """Whether the rule would do anything: without it TVM draws the same random programs as ever."""
    sch = Schedule(mod)
    return any(_axis_read(sch, block) is not None for block in sch.get_child_blocks(sch.get_sblock("root")))


def _axis_read(sch: Any, sblock: Any) -> int | None:
    """The place of the loop along which a block reads one of its inputs, where it is not the one along which it writes."""
    from tvm.tirx import IterVar
    from tvm.tirx.analysis import undefined_vars

    block, loops = sch.get(sblock), len(sch.get_loops(sblock))
    variables = [v.var for v in block.iter_vars]
    if len(variables) != loops or len(block.writes) != 1 or any(v.iter_type != IterVar.DataPar for v in block.iter_vars):
        return None

    def loops_of(dimension: Any) -> set[int]:
        """The places of the loops that an index depends on."""
        used = undefined_vars(dimension.min)
        return {i for i, variable in enumerate(variables) if any(variable.same_as(u) for u in used)}

    last = loops - 1
    written = [loops_of(dimension) for dimension in block.writes[0].region]
    if not written or written[-1] != {last}:
        return None
    for read in block.reads:
        *others, innermost = [loops_of(dimension) for dimension in read.region] or [set()]
        if len(innermost) == 1 and last not in innermost and any(last in other for other in others):
            return innermost.pop()
    return None
