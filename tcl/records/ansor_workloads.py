"""What an Ansor workload key computes: operator, loop extents, FLOPs, bytes.

A key is a function's name and its arguments, and the function is not in the log: `conv2d_layer` of one project takes NCHW and a
padding word, that of TVM's tutorial NHWC and pairs. Each reading here is a guess that is believed only where the loops that the
schedules split agree with it; without an agreeing one the extents are those of the loops (our reconstruction), the operator is
told by how many they are, and bytes are 0, unknown. Elements are taken as float32 unless the key names another type.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

_TYPE_BYTES = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "int16": 2, "int8": 1, "uint8": 1}
_PADDING = ("SAME", "VALID")


class About(NamedTuple):
    """What is known about a workload."""

    name: str
    operator: str
    extents: tuple[int, ...]
    flops: float
    bytes: float


def normalise(workload: list[Any]) -> list[Any]:
    """The key without its padding argument where that is a word or a number (the Roller logs write "SAME" or "VALID" for CUDA and
    a number for ROCm). Two convolutions that differ in padding alone are then one task; their schedules stay different programs.
    """
    if "conv2d" in workload[0] and len(workload) == 10 and _is_nchw_with_padding(workload):
        return workload[:-1]
    return workload


def describe(workload: list[Any], stages: list[tuple[int, ...]]) -> About:
    """`stages`: extents of the loops that a schedule splits, by stage (see `tcl.records.ansor.split_loops`); may be empty."""
    for about in _readings(workload):
        if not stages or any(_agree(about.extents, loops) for loops in stages):
            return about
    loops = max(stages, key=math.prod, default=())
    operator = {7: "conv2d", 6: "depthwise", 3: "matmul", 4: "batch_matmul"}.get(len(loops), "other")
    factor = 1 if operator == "other" else 2
    name = workload[0] if not re.fullmatch(r"[0-9a-f]{32}", workload[0]) else f"{operator} {_by(loops) or workload[0][:8]}"
    return About(name[:80], operator, loops, factor * float(math.prod(loops)) if loops else 0.0, 0.0)


def conv_output(size: int, kernel: int, stride: int, padding: Any) -> int:
    """Output rows (or columns) of a convolution or pooling; `padding` is "SAME", "VALID" or the number on each side."""
    if padding == "SAME":
        return -(-size // stride)
    pad = 0 if padding == "VALID" else int(padding)
    return (size + 2 * pad - kernel) // stride + 1


def conv2d(n: int, c: int, h: int, w: int, f: int, kh: int, kw: int, stride: int, padding: Any, element: int = 4, groups: int = 1) -> About:
    """A 2-D convolution; extents are n, f, oh, ow, c / groups, kh, kw."""
    oh, ow = conv_output(h, kh, stride, padding), conv_output(w, kw, stride, padding)
    extents = (n, f, oh, ow, c // groups, kh, kw)
    moved = element * (n * c * h * w + f * (c // groups) * kh * kw + n * f * oh * ow)
    return About(f"conv2d {n}x{c}x{h}x{w} {f}x{c // groups}x{kh}x{kw} s{stride}", "conv2d", extents, 2.0 * math.prod(extents), float(moved))


def depthwise(n: int, c: int, h: int, w: int, kh: int, kw: int, stride: int, padding: Any, element: int = 4) -> About:
    """A depthwise convolution; extents are n, c, oh, ow, kh, kw."""
    oh, ow = conv_output(h, kh, stride, padding), conv_output(w, kw, stride, padding)
    extents = (n, c, oh, ow, kh, kw)
    moved = element * (n * c * h * w + c * kh * kw + n * c * oh * ow)
    return About(f"depthwise {n}x{c}x{h}x{w} {kh}x{kw} s{stride}", "depthwise", extents, 2.0 * math.prod(extents), float(moved))


def matmul(m: int, k: int, n: int, element: int = 4, batch: int = 1) -> About:
    """A matrix product (m, k) x (k, n), `batch` of them; extents are [batch,] m, n, k."""
    extents = (m, n, k) if batch == 1 else (batch, m, n, k)
    operator = "matmul" if batch == 1 else "batch_matmul"
    moved = element * batch * (m * k + k * n + m * n)
    return About(f"{operator} {_by(extents)}", operator, extents, 2.0 * math.prod(extents), float(moved))


def pooling(kind: str, n: int, c: int, h: int, w: int, kh: int, kw: int, stride: int, padding: Any, element: int = 4) -> About:
    """A pooling; extents are n, c, oh, ow, kh, kw."""
    oh, ow = conv_output(h, kh, stride, padding), conv_output(w, kw, stride, padding)
    extents = (n, c, oh, ow, kh, kw)
    moved = element * (n * c * h * w + n * c * oh * ow)
    return About(f"{kind} pooling {n}x{c}x{h}x{w} {kh}x{kw} s{stride}", "pooling", extents, float(math.prod(extents)), float(moved))


def reduction(shape: list[int], axes: list[int], element: int = 4) -> About:
    """A sum over `axes`; extents are the kept axes, then the reduced ones."""
    axes = [a % len(shape) for a in axes]
    kept = [s for i, s in enumerate(shape) if i not in axes]
    extents = (*kept, *(shape[a] for a in axes))
    moved = element * (math.prod(shape) + math.prod(kept))
    over = ",".join(map(str, axes))
    return About(f"reduction {_by(shape)} over {over}", "reduction", extents, float(math.prod(shape)), float(moved))


def elementwise(kind: str, shape: list[int], element: int = 4) -> About:
    """One operation an element."""
    return About(f"{kind} {_by(shape)}", "elementwise", tuple(shape), float(math.prod(shape)), 2.0 * element * math.prod(shape))


# -- readings of a key ---------------------------------------------------------------------------------------------------


def _readings(workload: list[Any]) -> Iterator[About]:
    """Every reading of the key that its arguments allow, the likeliest first."""
    name, *args = workload
    element = next((_TYPE_BYTES[a] for a in args if isinstance(a, str) and a in _TYPE_BYTES), 4)
    args = [a for a in args if not (isinstance(a, str) and a in _TYPE_BYTES)]
    name = name.lower()
    attempts: list[Callable[[], About]] = []
    if "depthwise" in name:
        attempts.append(lambda: depthwise(*_ints(args[:6]), *_stride_and_padding(args[6:]), element))
    elif "conv2d" in name:
        attempts.append(lambda: conv2d(*_ints(args[:7]), *_stride_and_padding(args[7:]), element))
        attempts.append(lambda: _conv2d_tutorial(args, element))
    elif "pool" in name:
        attempts.append(lambda: pooling(str(args[0]), *_ints(args[1:7]), *_stride_and_padding(args[7:]), element))
    elif "reduc" in name or name.startswith(("sum", "mean")):
        attempts.append(lambda: reduction(_ints(args[0]), _ints(args[1] if isinstance(args[1], list) else [args[1]]), element))
    elif "matmul" in name or "dense" in name or re.search(r"(^|_)(mm|gemm)", name):
        if len(args) == 4:
            attempts.append(lambda: _batch_matmul(_ints(args), element))
        attempts.append(lambda: matmul(*_three(args), element))
        attempts.append(lambda: _reordered_matmul(args, element))
    elif any(word in name for word in ("relu", "elementwise", "add", "gelu", "sigmoid", "tanh")):
        kind = name.removesuffix("_layer")
        attempts.append(lambda: elementwise(kind, _ints(args[0] if len(args) == 1 and isinstance(args[0], list) else args), element))
    for attempt in attempts:
        try:
            about = attempt()
        except (TypeError, ValueError, IndexError, ZeroDivisionError):
            continue
        if about.extents and all(0 < e < 1 << 40 for e in about.extents):
            yield about


def _conv2d_tutorial(args: list[Any], element: int) -> About:
    n, h, w, co, ci, kh, kw = _ints(args[:7])
    return conv2d(n, ci, h, w, co, kh, kw, *_stride_and_padding(args[7:]), element)


def _batch_matmul(args: list[int], element: int) -> About:
    batch, m, n, k = args
    return matmul(m, k, n, element, batch)


def _reordered_matmul(args: list[Any], element: int) -> About:
    m, n, k = _three(args)
    return matmul(m, k, n, element)


def _three(args: list[Any]) -> list[int]:
    if len(args) != 3:
        raise ValueError("a matrix product has three sizes")
    return _ints(args)


def _stride_and_padding(rest: list[Any]) -> tuple[int, Any]:
    if not 1 <= len(rest) <= 2:
        raise ValueError("stride and padding")
    stride, padding = (rest[0], rest[1] if len(rest) == 2 else "VALID")
    stride, padding = (v[0] if isinstance(v, list) and v and len(set(map(str, v))) == 1 else v for v in (stride, padding))
    if padding not in _PADDING:
        _ints([padding])
    return _ints([stride])[0], padding


def _ints(values: Any) -> list[int]:
    if not isinstance(values, list) or not values or any(type(v) is not int for v in values):
        raise TypeError("whole numbers expected")
    return values


def _agree(extents: tuple[int, ...], loops: tuple[int, ...]) -> bool:
    """Whether each split loop is one of the extents, or a fusion of neighbouring ones."""
    sums = {math.prod(extents[i:j]) for i in range(len(extents)) for j in range(i + 1, len(extents) + 1)}
    return all(loop in sums for loop in loops)


def _is_nchw_with_padding(workload: list[Any]) -> bool:
    *sizes, padding = workload[1:]
    return all(type(v) is int for v in sizes) and (padding in _PADDING or type(padding) is int)


def _by(sizes: Any) -> str:
    return "x".join(map(str, sizes))
