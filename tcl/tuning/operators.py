"""Single operators written as text, e.g. `matmul:256,256,256`: as a TVM task, and as PyTorch computes them.

Add a kind by adding an `Operator` to OPERATORS. All are float32; images are NCHW, as PyTorch has them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tcl.errors import UserError
from tcl.programs.types import NetworkUse, Task
from tcl.tuning.workload import make_task

if TYPE_CHECKING:
    import torch
    from tvm.te import Tensor

LARGEST = 1 << 31
"""Elements a tensor may hold; loop indices are 32-bit."""


@dataclass(frozen=True, slots=True)
class Operator:
    """One kind of operator. `shapes` gives the shapes of its inputs, `compute` the tensor expression, `torch` the same in PyTorch."""

    kind: str  # the task's operator word
    parameters: tuple[str, ...]
    shapes: Callable[..., list[tuple[int, ...]]]
    compute: Callable[..., Tensor]  # (input tensors, *parameters)
    torch: Callable[..., torch.Tensor]  # (input tensors, *parameters)
    optional_zero: tuple[str, ...] = ("pad",)  # parameters that may be 0


def _topi() -> Any:
    from tvm import topi

    return topi


def _matmul(x: Sequence[Any], m: int, n: int, k: int) -> Any:
    from tvm import te

    axis = te.reduce_axis((0, k), name="k")
    return te.compute((m, n), lambda i, j: te.sum(x[0][i, axis] * x[1][axis, j], axis=axis), name="matmul")


def _softmax(x: Sequence[Any], m: int, n: int) -> Any:
    return _topi().nn.softmax(x[0], axis=1)


def _layer_norm(x: Sequence[Any], m: int, n: int) -> Any:
    return _topi().nn.layer_norm(x[0], x[1], x[2], axis=[1], epsilon=1e-5)


def _gelu(x: Sequence[Any], m: int, n: int) -> Any:
    from tvm import te, tirx

    return te.compute((m, n), lambda i, j: x[0][i, j] * 0.5 * (1.0 + tirx.erf(x[0][i, j] * math.sqrt(0.5))), name="gelu")


def _functional() -> Any:
    import torch

    return torch.nn.functional


OPERATORS: dict[str, Operator] = {
    "matmul": Operator(
        "matmul", ("M", "N", "K"),
        lambda m, n, k: [(m, k), (k, n)], _matmul, lambda x, *_: x[0] @ x[1],
    ),
    "dense": Operator(  # a linear layer: weight stored N x K, bias, ReLU
        "matmul", ("M", "N", "K"),
        lambda m, n, k: [(m, k), (n, k), (n,)],
        lambda x, *_: _topi().nn.relu(_topi().add(_topi().nn.dense(x[0], x[1]), x[2])),
        lambda x, *_: _functional().relu(_functional().linear(x[0], x[1], x[2])),
    ),
    "batch_matmul": Operator(
        "batch_matmul", ("B", "M", "N", "K"),
        lambda b, m, n, k: [(b, m, k), (b, k, n)],
        lambda x, *_: _topi().nn.batch_matmul(x[0], x[1], transpose_a=False, transpose_b=False),
        lambda x, *_: x[0] @ x[1],
    ),
    "conv2d": Operator(
        "conv2d", ("N", "C", "H", "W", "F", "KH", "KW", "stride", "pad"),
        lambda n, c, h, w, f, kh, kw, s, p: [(n, c, h, w), (f, c, kh, kw)],
        lambda x, *a: _topi().nn.conv2d_nchw(x[0], x[1], a[-2], a[-1], 1),
        lambda x, *a: _functional().conv2d(x[0], x[1], stride=a[-2], padding=a[-1]),
    ),
    "depthwise": Operator(
        "depthwise", ("N", "C", "H", "W", "KH", "KW", "stride", "pad"),
        lambda n, c, h, w, kh, kw, s, p: [(n, c, h, w), (c, 1, kh, kw)],
        lambda x, *a: _topi().nn.depthwise_conv2d_nchw(x[0], x[1], (a[-2], a[-2]), (a[-1], a[-1]), (1, 1)),
        lambda x, *a: _functional().conv2d(x[0], x[1], stride=a[-2], padding=a[-1], groups=a[1]),
    ),
    "max_pool": Operator(
        "pooling", ("N", "C", "H", "W", "K", "stride", "pad"),
        lambda n, c, h, w, k, s, p: [(n, c, h, w)],
        lambda x, *a: _topi().nn.pool2d(x[0], [a[-3]] * 2, [a[-2]] * 2, [1, 1], [a[-1]] * 4, "max"),
        lambda x, *a: _functional().max_pool2d(x[0], a[-3], a[-2], a[-1]),
    ),
    "avg_pool": Operator(
        "pooling", ("N", "C", "H", "W", "K", "stride", "pad"),
        lambda n, c, h, w, k, s, p: [(n, c, h, w)],
        lambda x, *a: _topi().nn.pool2d(x[0], [a[-3]] * 2, [a[-2]] * 2, [1, 1], [a[-1]] * 4, "avg", count_include_pad=True),
        lambda x, *a: _functional().avg_pool2d(x[0], a[-3], a[-2], a[-1]),
    ),
    "softmax": Operator(
        "softmax", ("M", "N"), lambda m, n: [(m, n)], _softmax, lambda x, *_: _functional().softmax(x[0], dim=1)
    ),
    "layer_norm": Operator(
        "layer_norm", ("M", "N"), lambda m, n: [(m, n), (n,), (n,)], _layer_norm,
        lambda x, m, n: _functional().layer_norm(x[0], (n,), x[1], x[2], 1e-5),
    ),
    "sum": Operator(  # over each row
        "reduction", ("M", "N"), lambda m, n: [(m, n)],
        lambda x, *_: _topi().sum(x[0], axis=1), lambda x, *_: x[0].sum(1),
    ),
    "relu": Operator(
        "elementwise", ("M", "N"), lambda m, n: [(m, n)],
        lambda x, *_: _topi().nn.relu(x[0]), lambda x, *_: _functional().relu(x[0]),
    ),
    "gelu": Operator("elementwise", ("M", "N"), lambda m, n: [(m, n)], _gelu, lambda x, *_: _functional().gelu(x[0])),
    "add": Operator(
        "elementwise", ("M", "N"), lambda m, n: [(m, n), (m, n)],
        lambda x, *_: _topi().add(x[0], x[1]), lambda x, *_: x[0] + x[1],
    ),
    "transpose": Operator(
        "data_movement", ("M", "N"), lambda m, n: [(m, n)],
        lambda x, *_: _topi().transpose(x[0]), lambda x, *_: x[0].t().contiguous(),
    ),
}  # fmt: skip


def forms() -> str:
    """All forms, for messages: "matmul:M,N,K, dense:M,N,K, …"."""
    return "; ".join(f"{name}:{','.join(op.parameters)}" for name, op in OPERATORS.items())


def parse(spec: str) -> tuple[Operator, tuple[int, ...]]:
    """`matmul:256,256,256` -> its operator and parameters.

    Raises:
        UserError: an unknown operator, a wrong number of parameters, a number out of range, or shapes that leave no output.
    """
    name, colon, rest = spec.strip().partition(":")
    operator = OPERATORS.get(name)
    if operator is None or not colon:
        raise UserError(f"{spec!r} is not an operator.", hint=f"The forms are {forms()}.")
    form = f"{name}:{','.join(operator.parameters)}"
    try:
        values = tuple(int(v) for v in rest.split(","))
    except ValueError:
        raise UserError(f"{spec!r} does not hold whole numbers only.", hint=f"The form is {form}.") from None
    if len(values) != len(operator.parameters):
        numbers = "number" if len(values) == 1 else "numbers"
        raise UserError(f"{spec!r} has {len(values)} {numbers} instead of {len(operator.parameters)}.", hint=f"The form is {form}.")
    for parameter, value in zip(operator.parameters, values, strict=True):
        if value < (0 if parameter in operator.optional_zero else 1):
            raise UserError(f"{spec!r}: {parameter} cannot be {value}.", hint=f"The form is {form}.")
    named = dict(zip(operator.parameters, values, strict=True))
    for size, window in (("H", "KH"), ("W", "KW"), ("H", "K"), ("W", "K")):
        if "pad" in named and window in named and named[size] + 2 * named["pad"] < named[window]:
            raise UserError(f"{spec!r}: the window ({window}={named[window]}) is larger than the padded image ({size}={named[size]}).")
    if operator.kind == "pooling" and 2 * named["pad"] > named["K"]:
        raise UserError(f"{spec!r}: the padding of a pool is at most half its window.")
    if any(math.prod(shape) >= LARGEST for shape in operator.shapes(*values)):
        raise UserError(f"{spec!r} needs a tensor of more than 2^31 elements.")
    return operator, values


def is_operator(spec: str) -> bool:
    """Whether `spec` means an operator rather than a network."""
    return ":" in spec or spec.strip() in OPERATORS


def operator_task(spec: str) -> Task:
    """The task of an operator; see `parse` for the errors."""
    from tvm import te
    from tvm.s_tir.meta_schedule.tune_context import _normalize_mod

    operator, values = parse(spec)
    inputs = [te.placeholder(shape, name=f"x{i}") for i, shape in enumerate(operator.shapes(*values))]
    output = operator.compute(inputs, *values)
    function = te.create_prim_func([*inputs, output])
    # topi calls the weights' layout free (dense, batch_matmul): TVM would then schedule kernels for weights that somebody packs before,
    # and nobody does for an operator by itself. Such a kernel is wrong on the inputs that the operator has.
    function = function.without_attr("layout_free_buffers")
    mod = _normalize_mod(function)
    return make_task(mod, operator=operator.kind, name=spec.strip(), networks=(NetworkUse(spec.strip().partition(":")[0], 1.0),))


def reference(spec: str, inputs: Sequence[Any]) -> Any:
    """What PyTorch computes for the operator; `inputs` are torch tensors of the shapes that `parse` and `shapes` give."""
    operator, values = parse(spec)
    return operator.torch(inputs, *values)
