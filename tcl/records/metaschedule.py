"""MetaSchedule JSON databases: a file of workloads and a file of tuning records, one JSON array a line.

    workload: [structural hash, module]                       record: [line of the workload, [trace, costs, target, arguments]]

Modules are TVM's JSON graphs, in base64 or plain, of the schema before `tir` became `s_tir` (`type_key`, `attrs`) or after (`type`,
`data`). They are read as JSON text; TVM is not needed and nothing is built from them.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import orjson

from tcl.programs.metaschedule_text import module_text, trace_text
from tcl.programs.types import Task
from tcl.records.record import Record, Refused, outcome

Workloads = Sequence[bytes]
"""The lines of a workload file."""

_ITEM = {"bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "float16": 2, "bfloat16": 2, "float64": 8, "int64": 8, "uint64": 8}


def is_workload(value: Any) -> bool:
    """Whether a line looks like a workload."""
    if not isinstance(value, list) or len(value) != 2 or not isinstance(value[1], str | dict):
        return False
    return isinstance(value[0], str | int) and str(value[0]).lstrip("-").isdigit()


def is_record(value: Any) -> bool:
    """Whether a line looks like a tuning record, good or bad."""
    return isinstance(value, list) and len(value) == 2 and type(value[0]) is int and isinstance(value[1], list) and bool(value[1])


def parse(value: list[Any], workloads: Workloads | None, place: str) -> Record:
    """`workloads`: those of the record's database, None where there are none; `place` tells databases apart."""
    index, (trace, *rest) = value
    costs = rest[0] if rest else None
    if workloads is None:
        raise Refused("a MetaSchedule record without the workload file beside it")
    if not 0 <= index < len(workloads):
        raise Refused("a MetaSchedule record of a workload that its database does not hold")
    try:
        schedule = trace_text(trace)
    except (ValueError, RecursionError) as error:
        raise Refused(f"a malformed MetaSchedule trace: {error}") from None
    if costs is None or costs == []:
        raise Refused("a MetaSchedule record that was never measured")
    costs_s, error, detail = outcome(costs, 0)
    gpu = '"blockIdx.' in schedule or '"threadIdx.' in schedule or "thread_extent_low" in schedule
    make = partial(task, workloads[index], rest[2] if len(rest) > 2 else None)
    return Record((place, index), make, schedule.encode(), costs_s, error, detail, 0.0, gpu)


def task(line: bytes, arguments: Any) -> Task:
    """The task of a line of a workload file; the arguments (`["TENSOR", type, shape]` each) of one of its records give the bytes."""
    graph = read_module(line)
    try:
        blocks = _blocks(graph)
        text = module_text(graph) if "root_index" in graph else orjson.dumps({k: graph[k] for k in ("root", "nodes")}).decode()
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError):
        raise Refused("a workload whose module this reader does not understand") from None
    if not blocks:
        raise Refused("a workload without a block")
    shapes = [(a[2], a[1]) for a in arguments or () if isinstance(a, list) and len(a) == 3 and isinstance(a[2], list)]
    name, axes = max(blocks, key=lambda b: (any(r for _, r in b[1]), math.prod(e for e, _ in b[1])))
    operator = kind_of([b[0] for b in blocks], name, axes)
    extents = tuple(e for e, _ in axes)
    flops = (2.0 if any(r for _, r in axes) else 1.0) * math.prod(extents)
    moved = float(sum(math.prod(map(int, shape)) * _ITEM.get(str(dtype), 4) for shape, dtype in shapes))
    shown = " ".join("x".join(map(str, shape)) or "scalar" for shape, _ in shapes[:2])
    return Task(f"{operator} {shown}".strip()[:80], operator, "metaschedule", text, extents, flops, moved)


def read_module(line: bytes) -> dict[str, Any]:
    """The JSON graph of a workload line."""
    try:
        value = orjson.loads(line)[1]
        if isinstance(value, str):
            raw = base64.b64decode(value, validate=True)
            value = orjson.loads(raw[8:] if raw[8:9] == b"{" else raw)  # TVM writes the length, 8 bytes, before the text
    except (ValueError, IndexError, KeyError, TypeError, binascii.Error):
        raise Refused("a workload whose module is damaged") from None
    if not isinstance(value, dict) or not isinstance(value.get("nodes"), list):
        raise Refused("a workload whose module is damaged")
    return value


def kind_of(names: list[str], main: str, axes: list[tuple[int, bool]]) -> str:
    """The operator's kind, from the blocks' names and the main block's axes (extent, whether reduced)."""
    low, text = main.lower(), " ".join(names).lower()
    spatial, reduced = [e for e, r in axes if not r], [e for e, r in axes if r]
    if "depthwise" in low:
        return "depthwise"
    if "conv2d" in low:
        return "conv2d"
    if any(word in low for word in ("matmul", "dense", "gemm")):
        return "batch_matmul" if math.prod(spatial[:-2]) > 1 else "matmul"
    for word, kind in (("softmax", "softmax"), ("layer_norm", "layer_norm"), ("pool", "pooling")):
        if word in text:
            return kind
    if reduced:
        return "reduction"
    moving = ("transpose", "reshape", "take", "concat", "strided_slice", "pad", "cast", "expand_dims", "squeeze")
    return "data_movement" if all(any(word in n.lower() for word in moving) for n in names) else "elementwise"


def _blocks(graph: dict[str, Any]) -> list[tuple[str, list[tuple[int, bool]]]]:
    """(name, [(extent, whether reduced)]) of every block with axes."""
    nodes = graph["nodes"]
    found = []
    for node in nodes:
        kind = node.get("type", node.get("type_key", ""))
        if kind.endswith((".Block", ".SBlock")):
            fields = _fields(node)
            axes = []
            for reference in _items(nodes, fields["iter_vars"]):
                axis = _fields(nodes[int(reference)])
                extent = _fields(nodes[int(axis["dom"])])["extent"]
                axes.append((_integer(nodes, extent), int(axis["iter_type"]) == 2))
            if axes:
                found.append((_string(nodes, fields["name_hint"]), axes))
    return found


def _fields(node: dict[str, Any]) -> dict[str, Any]:
    fields = node["data"] if "type" in node else node["attrs"]
    if not isinstance(fields, dict):
        raise TypeError("a node without fields")
    return fields


def _items(nodes: list[dict[str, Any]], reference: Any) -> list[Any]:
    return nodes[int(reference)].get("data", [])


def _string(nodes: list[dict[str, Any]], reference: Any) -> str:
    node = nodes[int(reference)]
    return str(node.get("repr_str", node.get("data", "")))


def _integer(nodes: list[dict[str, Any]], reference: Any) -> int:
    """The value of an IntImm; 1 for a symbolic extent, which has none."""
    node = nodes[int(reference)]
    kind = node.get("type", node.get("type_key", ""))
    if not kind.endswith("IntImm"):
        return 1
    value = _fields(node)["value"]
    return int(value) if "type_key" in node else int(nodes[value]["data"])
