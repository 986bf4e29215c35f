"""What copies along another axis than it reads is tiled; what does not keeps TVM's design space."""

from __future__ import annotations

import numpy as np
import pytest

from tcl.tuning.operators import operator_task


@pytest.mark.tvm
@pytest.mark.parametrize(
    "spec", ["matmul:32,32,32", "dense:8,32,32", "conv2d:1,8,8,8,8,3,3,1,1", "softmax:8,32", "layer_norm:8,32", "add:8,32"]
)
def test_other_operators_are_left_alone(spec: str) -> None:
    from tvm.s_tir import Schedule

    from tcl.tuning.design_space import module
    from tcl.tuning.transposed import TileTransposed

    schedule = Schedule(module(operator_task(spec)))
    blocks = schedule.get_child_blocks(schedule.get_sblock("root"))
    before = str(schedule.mod)
    assert blocks
    for block in blocks:
        (same,) = TileTransposed().apply(schedule, block)
        assert str(same.mod) == before


@pytest.mark.tvm
@pytest.mark.parametrize(
    ("shape", "axes", "tiled"),
    [((24, 40), (1, 0), True), ((3, 24, 40), (0, 2, 1), True), ((3, 24, 40), (2, 1, 0), True), ((3, 24, 40), (1, 0, 2), False)],
)
def test_a_transpose_is_tiled_and_right(shape: tuple[int, ...], axes: tuple[int, ...], tiled: bool) -> None:
    """The last one copies whole rows: nothing strides, and nothing needs tiles."""
    import tvm
    from tvm import te, topi
    from tvm.s_tir.meta_schedule.tune_context import _normalize_mod

    from tcl.tuning.design_space import apply, sample_programs
    from tcl.tuning.worker import compile_module
    from tcl.tuning.workload import make_task

    source = te.placeholder(shape, name="x")
    task = make_task(
        _normalize_mod(te.create_prim_func([source, topi.transpose(source, axes)])), operator="data_movement", name="transpose"
    )
    target = {"kind": "llvm", "num-cores": 2}
    programs = sample_programs(task, target, 12)
    assert all(("SamplePerfectTile" in p.schedule) == tiled for p in programs)
    assert len(programs) == (12 if tiled else 1)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    for program in programs:
        out = tvm.runtime.tensor(np.full([shape[a] for a in axes], np.nan, dtype=np.float32))
        compile_module(apply(task, program, target), tvm.target.Target(target))["main"](tvm.runtime.tensor(x), out)
        np.testing.assert_array_equal(out.numpy(), x.transpose(axes))
