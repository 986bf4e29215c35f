"""A TVM module as a task: normalised to text, read back, and described in words.

The text is the task's identity (`Task.workload`), so everything that does not change the computation is normalised away:
parameter, loop and buffer names differ between two networks that hold the same subgraph, and so would the identity.
Block names stay: schedules refer to blocks by name.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

from tcl.programs.types import NetworkUse, Task

if TYPE_CHECKING:
    from tvm.ir import IRModule

FORMAT = "metaschedule"
MOVING = ("transpose", "reshape", "take", "concat", "strided_slice", "pad", "cast", "expand_dims", "squeeze")
"""Words in the names of blocks that move data and compute nothing."""


def normalise(mod: IRModule) -> str:
    """The module as compact JSON with canonical variable names (x0, x1, … in the order in which they are met)."""
    import tvm

    graph = json.loads(tvm.ir.save_json(mod))
    nodes = graph["nodes"]
    names: dict[int, int] = {}
    for index, node in enumerate(list(nodes)):
        if node["type"].endswith(".Var"):
            if index not in names:
                names[index] = len(nodes)
                nodes.append({"type": "ffi.String", "data": f"x{len(names) - 1}"})
            node["data"]["name"] = names[index]
    return json.dumps({key: graph[key] for key in ("root_index", "nodes")}, separators=(",", ":"))


def load(workload: str) -> IRModule:
    """The module of a `Task.workload`."""
    import tvm

    return tvm.ir.load_json(workload)


def make_task(mod: IRModule, *, operator: str = "", name: str = "", networks: tuple[NetworkUse, ...] = ()) -> Task:
    """The task of a module that holds one function, `main`.

    Args:
        operator: its kind, where the caller knows it; else read off the blocks' names.
        name: for people; else made of the operator and its shapes.
    """
    from tvm.s_tir.analysis import estimate_tir_flops

    blocks = _blocks(mod)
    main = max(blocks, key=lambda b: (any(r for _, r in b[1]), math.prod(e for e, _ in b[1])))
    shapes = argument_shapes(mod)
    kind = operator or _operator([b[0] for b in blocks], main)
    return Task(
        name=name or f"{kind} {' '.join(_text(s) for s, _ in shapes[: 2 if len(shapes) > 2 else 1])} -> {_text(shapes[-1][0])}{_tail(blocks, main)}",
        operator=kind,
        format=FORMAT,
        workload=normalise(mod),
        extents=tuple(e for e, _ in main[1]),
        flops=float(estimate_tir_flops(mod)),
        bytes=float(sum(math.prod(s) * _itemsize(dtype) for s, dtype in shapes)),
        networks=networks,
    )


def argument_shapes(mod: IRModule) -> list[tuple[tuple[int, ...], str]]:
    """Shape and dtype of each argument of the module's function, outputs last."""
    (function,) = mod.functions.values()
    return [(tuple(int(n) for n in p.ty.shape), str(p.ty.dtype)) for p in function.params]


def _blocks(mod: IRModule) -> list[tuple[str, list[tuple[int, bool]]]]:
    """Name, and (extent, whether it is a reduction) per iteration variable, of every block but the root."""
    from tvm.s_tir import Schedule

    schedule = Schedule(mod)
    blocks = [schedule.get(b) for b in schedule.get_child_blocks(schedule.get_sblock("root"))]
    return [(str(b.name_hint), [(int(v.dom.extent), int(v.iter_type) == 2) for v in b.iter_vars]) for b in blocks]


def _operator(names: list[str], main: tuple[str, list[tuple[int, bool]]]) -> str:
    text = " ".join(names).lower()
    spatial = sum(1 for _, reduced in main[1] if not reduced)
    reductions = len(main[1]) - spatial
    name = main[0].lower()
    if "conv2d" in name:
        # a depthwise convolution reduces over its window only, never over channels
        return "depthwise" if "depthwise" in name or reductions == 2 else "conv2d"
    if "matmul" in name or "dense" in name:
        batch = math.prod(e for e, reduced in main[1][: spatial - 2] if not reduced)
        return "batch_matmul" if batch > 1 else "matmul"
    for word, kind in (("softmax", "softmax"), ("layer_norm", "layer_norm"), ("pool", "pooling")):
        if word in text:
            return kind
    if reductions:
        return "reduction"
    return "data_movement" if all(any(word in n.lower() for word in MOVING) for n in names) else "elementwise"


def _tail(blocks: list[tuple[str, list[tuple[int, bool]]]], main: tuple[str, list[tuple[int, bool]]]) -> str:
    after = [b[0] for b in blocks[blocks.index(main) + 1 :]]
    words = [n.removeprefix("T_").split("_")[0] if n.startswith("T_") else n for n in after]
    return " +" + "+".join(words[:4]) if words and len(words) <= 6 else ""


def _text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "scalar"


def _itemsize(dtype: str) -> int:
    import numpy as np

    return 1 if dtype == "bool" else np.dtype(dtype).itemsize
