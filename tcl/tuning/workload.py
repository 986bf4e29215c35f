"""A TVM module as a task: normalised to text, read back, and described in words.

The text is the task's identity (`Task.workload`), so everything that does not change the computation is normalised away:
parameter, loop and buffer names differ between two networks that hold the same subgraph, and so would the identity.
Block names stay: schedules refer to blocks by name.
"""

from __future__ import annotations

import functools
import json
import math
import re
from typing import TYPE_CHECKING, Any

from tcl.programs.types import NetworkUse, Task

if TYPE_CHECKING:
    from tvm.ir import IRModule

FORMAT = "metaschedule"
MOVING = ("transpose", "reshape", "take", "concat", "strided_slice", "pad", "cast", "expand_dims", "squeeze")
"""Words in the names of blocks that move data and compute nothing."""


_OWN_IDENTITY = ("Var", "IterVar", "For", "SeqStmt", "BufferStore", "SBlock", "SBlockRealize")
"""Nodes that are never merged with an equal one: a variable is itself, and a schedule tells statements apart by address."""


def normalise(mod: IRModule) -> str:
    """The module as compact JSON that depends on the computation and on block names only.

    Variables are called x0, x1, … in the order in which they are met. Equal constants, types and expressions become one
    node, because which of them the compiler happened to share differs between networks.
    """
    import tvm

    graph = json.loads(tvm.ir.save_json(mod))
    old = graph["nodes"]
    nodes: list[dict[str, Any]] = []
    known: dict[str, int] = {}  # text of a node -> its new index
    place: dict[int, int] = {}  # old index -> new index
    variables = 0
    stack = [(graph["root_index"], False)]
    while stack:  # children before parents, in the order of the fields
        index, ready = stack.pop()
        if index in place:
            continue
        if not ready:
            stack.append((index, True))
            stack.extend((child, False) for child in reversed(_children(old[index])) if child not in place)
            continue
        kind, data = old[index]["type"], old[index].get("data")
        if isinstance(data, list):
            data = [place[i] for i in data]
        elif isinstance(data, dict):
            data = {f: place[v] if f in _references(kind) and f not in _names(kind) else v for f, v in data.items()}
        if _names(kind):
            nodes.append({"type": "ffi.String", "data": f"x{variables}"})
            data["name"] = len(nodes) - 1
            variables += 1
        fresh = {"type": kind} if data is None else {"type": kind, "data": data}
        text = json.dumps(fresh)
        if text not in known or kind.rpartition(".")[2] in _OWN_IDENTITY:
            known[text] = len(nodes)
            nodes.append(fresh)
        place[index] = known[text]
    return json.dumps({"root_index": place[graph["root_index"]], "nodes": nodes}, separators=(",", ":"))


def _children(node: dict[str, Any]) -> list[int]:
    """The nodes that a node refers to, a variable's name left out."""
    kind, data = node["type"], node.get("data")
    if isinstance(data, list):
        return data
    if isinstance(data, dict):
        return [v for f, v in data.items() if f in _references(kind) and f not in _names(kind)]
    return []


def _names(kind: str) -> tuple[str, ...]:
    return ("name",) if kind.endswith(".Var") else ()


@functools.cache
def _references(kind: str) -> frozenset[str]:
    """The fields of a TVM node type that hold the index of another node; the others hold plain values."""
    from tvm_ffi import core

    fields: set[str] = set()
    info = core._lookup_or_register_type_info_from_type_key(kind)
    while info is not None:
        fields.update(f.name for f in info.fields or () if json.loads(f.metadata["type_schema"])["type"] not in _PLAIN)
        info = info.parent_type_info
    fields.add("__dict__")  # attribute dictionaries
    return frozenset(fields)


_PLAIN = ("int", "bool", "float", "DataType", "dtype", "Device", "None")


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
    inputs = " ".join(_text(s) for s, _ in shapes[: 2 if len(shapes) > 2 else 1])
    return Task(
        name=name or f"{kind} {inputs} -> {_text(shapes[-1][0])}{_tail(blocks, main)}",
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
        # a depthwise convolution reduces over its window, and over one channel at most
        reduced = [e for e, is_reduced in main[1] if is_reduced]
        channels = reduced[2] if "nhwc" in name else reduced[0]
        return "depthwise" if "depthwise" in name or (reductions == 3 and channels == 1) else "conv2d"
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
    """What is fused behind the main block, from the blocks' names: " +add+relu"."""
    after = [re.sub(r"^T_|_?\d+$", "", name) for name, _ in blocks[blocks.index(main) + 1 :]]
    words = ["relu" if word == "compute" else word for word in after]  # topi's relu has no name of its own
    known = {"add", "relu", "maximum", "minimum", "multiply", "divide", "subtract", "tanh", "erf"}
    return " +" + "+".join(words) if words and known.issuperset(words) else ""


def _text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "scalar"


def _itemsize(dtype: str) -> int:
    import numpy as np

    return 1 if dtype == "bool" else np.dtype(dtype).itemsize
