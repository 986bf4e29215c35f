"""Operators as text: every kind computes what PyTorch computes; malformed text is one clear sentence."""

from __future__ import annotations

import numpy as np
import pytest

from tcl.errors import UserError
from tcl.tuning.operators import OPERATORS, forms, operator_task, parse, reference

SPECS = [
    "matmul:8,12,16",
    "dense:8,12,16",
    "batch_matmul:3,8,12,16",
    "conv2d:1,3,9,9,4,3,3,2,1",
    "depthwise:1,6,9,9,3,3,2,1",
    "max_pool:1,3,9,9,3,2,1",
    "avg_pool:1,3,8,8,2,2,0",
    "softmax:5,33",
    "layer_norm:5,32",
    "sum:5,33",
    "relu:5,7",
    "gelu:5,7",
    "add:5,7",
    "transpose:5,7",
]


def test_every_kind_is_tested():
    assert {s.partition(":")[0] for s in SPECS} == set(OPERATORS)
    assert len({op.kind for op in OPERATORS.values()}) >= 10


@pytest.mark.tvm
@pytest.mark.parametrize("spec", SPECS)
def test_same_as_pytorch(spec):
    import torch
    import tvm

    from tcl.tuning.worker import compile_module
    from tcl.tuning.workload import load

    operator, values = parse(spec)
    task = operator_task(spec)
    rng = np.random.default_rng(1)
    inputs = [rng.standard_normal(shape).astype("float32") for shape in operator.shapes(*values)]
    expected = reference(spec, [torch.from_numpy(x) for x in inputs]).numpy()
    output = tvm.runtime.tensor(np.full(expected.shape, np.nan, dtype="float32"))
    compile_module(load(task.workload), tvm.target.Target("llvm"))["main"](*map(tvm.runtime.tensor, inputs), output)
    np.testing.assert_allclose(output.numpy(), expected, rtol=1e-4, atol=1e-5)
    assert task.operator == operator.kind
    assert task.bytes == 4 * (sum(x.size for x in inputs) + expected.size)


@pytest.mark.tvm
def test_identity_and_description():
    from tcl.tuning.workload import load, normalise

    task = operator_task("conv2d:1,8,14,14,16,3,3,1,1")
    assert task.id == operator_task(" conv2d:1,8,14,14,16,3,3,1,1 ").id
    assert task.id != operator_task("conv2d:1,8,14,14,16,3,3,2,1").id
    assert normalise(load(task.workload)) == task.workload
    assert sorted(task.extents) == sorted((1, 16, 14, 14, 8, 3, 3))
    assert task.flops == 2 * 16 * 14 * 14 * 8 * 9


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        ("matmul", "not an operator"),
        ("gemm:1,2,3", "not an operator"),
        ("matmul:1,2", "2 numbers instead of 3"),
        ("matmul:1,x,3", "whole numbers"),
        ("matmul:1,2,3.5", "whole numbers"),
        ("matmul:0,2,3", "M cannot be 0"),
        ("matmul:-4,2,3", "M cannot be -4"),
        ("conv2d:1,3,4,4,8,7,7,1,0", "larger than the padded image"),
        ("conv2d:1,3,9,9,4,3,3,0,1", "stride cannot be 0"),
        ("max_pool:1,3,9,9,2,2,2", "at most half"),
        ("matmul:100000,100000,2", None),
        ("add:65536,65536", "more than 2^31"),
    ],
)
def test_mistakes_are_user_errors(spec, word):
    if word is None:
        parse(spec)  # large, but each input is small enough
        return
    with pytest.raises(UserError) as caught:
        parse(spec)
    assert word in str(caught.value)


def test_forms_lists_them_all():
    assert all(f"{name}:" in forms() for name in OPERATORS)


@pytest.mark.parametrize("spec", ["dense:64,128,128", "batch_matmul:2,32,64,48"])
def test_scheduled_programs_take_the_weights_as_they_are(spec):
    """TVM packs weights whose layout topi calls free; the kernels then want other inputs than the operator has."""
    import json

    import torch
    import tvm

    from tcl.tuning.design_space import apply, sample_programs
    from tcl.tuning.targets import platform_for
    from tcl.tuning.worker import compile_module

    task, target = operator_task(spec), json.loads(platform_for("native").target)
    operator, values = parse(spec)
    inputs = [np.random.default_rng(i).standard_normal(shape).astype(np.float32) for i, shape in enumerate(operator.shapes(*values))]
    expected = reference(spec, [torch.from_numpy(x) for x in inputs]).numpy()
    for program in sample_programs(task, target, 6, seed=0):
        output = tvm.runtime.tensor(np.full(expected.shape, np.nan, dtype="float32"))
        compile_module(apply(task, program, target), tvm.target.Target(target))["main"](*map(tvm.runtime.tensor, inputs), output)
        np.testing.assert_allclose(output.numpy(), expected, atol=1e-3)
