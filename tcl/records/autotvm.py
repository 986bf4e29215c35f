"""AutoTVM records, one JSON object a line: version 0.2 (`input`, `config`, `result`) and 0.1 (`i`, `r`, `v: 0.1`).

The schedule is the configuration's list of knobs `[name, kind, value]`; the task is the template's name with its arguments.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import orjson

from tcl.programs.types import Task
from tcl.records.ansor_workloads import About, conv2d, conv_output, depthwise, matmul
from tcl.records.record import Record, Refused, outcome, when


def claims(value: Any) -> bool:
    """Whether a line looks like an AutoTVM record, good or bad."""
    if not isinstance(value, dict):
        return False
    return {"input", "config", "result"} <= value.keys() or ({"i", "r"} <= value.keys() and isinstance(value.get("v"), int | float))


def parse(value: dict[str, Any]) -> Record:
    version = value.get("version", value.get("v"))
    try:
        if version == 0.2:
            (_, name, args, kwargs, *_), result = value["input"], value["result"]
            knobs = value["config"]["entity"]
        elif version == 0.1:
            _, name, args, kwargs, *_, config = value["i"]
            knobs, result = config["e"], value["r"]
        else:
            raise Refused(f"an AutoTVM record of a version this reader does not know: {str(version)[:20]}")
        costs, error_number, _, stamp, *_ = result
    except (TypeError, ValueError, KeyError):
        raise Refused("an AutoTVM record whose parts do not fit together") from None
    if not isinstance(name, str) or not isinstance(args, list) or not isinstance(kwargs, dict | list):
        raise Refused("an AutoTVM record without a task")
    if not isinstance(knobs, list) or not all(_is_knob(k) for k in knobs):
        raise Refused("a malformed AutoTVM configuration")
    workload = orjson.dumps([name, args, kwargs])
    costs_s, error, detail = outcome(costs, error_number)
    gpu = name.endswith((".cuda", ".gpu", ".rocm", ".opencl", ".bifrost", ".mali", ".intel_graphics"))
    return Record(workload, partial(task, name, args, kwargs), orjson.dumps(knobs), costs_s, error, detail, when(stamp), gpu)


def task(name: str, args: list[Any], kwargs: Any) -> Task:
    """The task of a template and its arguments; a convolution's padding in words or numbers is written as four numbers."""
    args = _numeric_padding(name, args)
    about = _describe(name, args)
    text = orjson.dumps([name, args, kwargs]).decode()
    return Task(about.name[:80], about.operator, "autotvm", text, about.extents, about.flops, about.bytes)


def _is_knob(knob: Any) -> bool:
    return isinstance(knob, list) and len(knob) == 3 and isinstance(knob[0], str) and knob[1] in ("sp", "re", "an", "ot")


def _tensors(args: list[Any]) -> list[list[int]]:
    found = [a[1] for a in args if isinstance(a, list) and len(a) == 3 and a[0] == "TENSOR" and isinstance(a[1], list)]
    return [shape for shape in found if all(type(s) is int and s > 0 for s in shape)]


def _numeric_padding(name: str, args: list[Any]) -> list[Any]:
    tensors = _tensors(args)
    if "conv2d" not in name or len(args) < 4 or len(tensors) != 2 or len(tensors[0]) != 4 or "nhwc" in name.lower():
        return args
    (_, _, h, w), (*_, kh, kw) = tensors
    stride, padding = args[2], args[3]
    try:
        sh, sw = stride if isinstance(stride, list) else (stride, stride)
        if padding == "SAME":
            ph, pw = (max((conv_output(n, k, s, "SAME") - 1) * s + k - n, 0) for n, k, s in ((h, kh, sh), (w, kw, sw)))
            pads = [ph // 2, pw // 2, ph - ph // 2, pw - pw // 2]
        elif isinstance(padding, list):
            pads = padding if len(padding) == 4 else [padding[0], padding[1]] * 2
        else:
            pads = [0 if padding == "VALID" else int(padding)] * 4
    except (TypeError, ValueError, IndexError, ZeroDivisionError):
        return args
    return [*args[:3], pads, *args[4:]]


def _describe(name: str, args: list[Any]) -> About:
    tensors, low = _tensors(args), name.lower()
    try:
        if "conv2d" in low and len(tensors) == 2 and len(tensors[0]) == 4 and "nhwc" not in low:
            (n, c, h, w), (f, per_group, kh, kw) = tensors
            stride = args[2][0] if isinstance(args[2], list) else int(args[2])
            pad = args[3][0] if isinstance(args[3], list) else args[3]
            if "depthwise" in low:
                return depthwise(n, c, h, w, kh, kw, stride, pad)
            return conv2d(n, c, h, w, f, kh, kw, stride, pad, groups=max(1, c // per_group))
        if "batch_matmul" in low and len(tensors) == 2:
            (batch, m, k), (_, n, _) = tensors
            return matmul(m, k, n, batch=batch)
        if ("dense" in low or "matmul" in low) and len(tensors) == 2:
            (m, k), other = tensors
            return matmul(m, k, next((s for s in other if s != k), k))
    except (TypeError, ValueError, IndexError, ZeroDivisionError):
        pass
    shapes = " ".join("x".join(map(str, s)) for s in tensors)
    moved = 4.0 * sum(math.prod(s) for s in tensors)
    known = ("depthwise", "conv2d", "conv3d", "conv1d", "batch_matmul", "dense", "pool", "softmax")
    return About(f"{name} {shapes}", next((word for word in known if word in low), "other"), (), 0.0, moved)
