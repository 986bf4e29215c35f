"""MetaSchedule's traces and modules as normalised text: equal schedules are equal text, whoever wrote them.

Shared by the collector, which gets traces from TVM, and by the importer, which gets them from files and never imports TVM.
"""

from __future__ import annotations

import json
from typing import Any

_PURE = {
    "GetBlock", "GetSBlock", "GetLoops", "GetChildBlocks", "GetProducers", "GetConsumers", "GetOutputBlocks",
    "SampleCategorical", "SamplePerfectTile", "SamplePartitionedTile", "SampleComputeLocation",
}  # fmt: skip
"""Instructions that change nothing by themselves: without a user of their results they are dead."""
_RENAMED = {"GetBlock": "GetSBlock"}
"""Instruction names of TVM before its `tir` became `s_tir`."""


def trace_text(trace: list[Any]) -> str:
    """A trace `[instructions, decisions]` as compact JSON: post-processing cut off, dead instructions removed, results numbered in order.

    Raises `ValueError` for what is not a trace: an instruction is `[kind, inputs, attributes, outputs]`, a decision `[instruction, value]`,
    inputs are results of instructions before.
    """
    if not isinstance(trace, list) or len(trace) != 2 or not all(isinstance(part, list) for part in trace):
        raise ValueError("not a trace")
    instructions = []
    for instruction in trace[0]:
        if not (isinstance(instruction, list) and len(instruction) == 4 and isinstance(instruction[0], str)):
            raise ValueError("a malformed instruction")
        kind, inputs, attributes, outputs = instruction
        if not (isinstance(inputs, list) and isinstance(attributes, list) and isinstance(outputs, list)):
            raise ValueError(f"a malformed {kind[:30]} instruction")
        if any(not isinstance(o, str) or not o for o in outputs):
            raise ValueError(f"a malformed {kind[:30]} instruction")
        if kind == "EnterPostproc":
            break
        instructions.append((_RENAMED.get(kind, kind), inputs, attributes, outputs))
    alive, used = [False] * len(instructions), set()
    for i in range(len(instructions) - 1, -1, -1):
        kind, inputs, _, outputs = instructions[i]
        if kind not in _PURE or any(o in used for o in outputs):
            alive[i] = True
            used.update(_strings(inputs))
    names: dict[str, str] = {}
    place, kept = {}, []
    for i, (kind, inputs, attributes, outputs) in enumerate(instructions):
        if alive[i]:
            place[i] = len(kept)
            renamed = [_rename(x, names) for x in inputs]
            for output in outputs:
                names[output] = f"{output[0]}{len(names)}"
            kept.append([kind, renamed, _plain(attributes), [names[o] for o in outputs]])
    decisions = []
    for decision in trace[1]:
        if not (isinstance(decision, list) and len(decision) == 2 and type(decision[0]) is int):
            raise ValueError("a malformed decision")
        if decision[0] in place:
            decisions.append([place[decision[0]], _plain(decision[1])])
    return json.dumps([kept, decisions], separators=(",", ":"))


def module_text(graph: dict[str, Any]) -> str:
    """A module as TVM's JSON graph (`root_index`, `nodes`) with variables named x0, x1, … in the order of their nodes.

    Parameter, loop and buffer names differ between two networks that hold the same subgraph. Block names stay: schedules refer to them.
    """
    nodes = list(graph["nodes"])
    count = 0
    for index, node in enumerate(graph["nodes"]):
        if str(node.get("type", "")).endswith(".Var"):
            name = f"x{count}"
            count += 1
            if nodes[node["data"]["name"]].get("data") != name:
                nodes[index] = node | {"data": node["data"] | {"name": len(nodes)}}
                nodes.append({"type": "ffi.String", "data": name})
    return json.dumps({"root_index": graph["root_index"], "nodes": nodes}, separators=(",", ":"))


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [s for v in value for s in _strings(v)] if isinstance(value, list) else []


def _rename(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, str):
        if value not in names and value[:1] in "blv" and value[1:].isdigit():
            raise ValueError("an instruction uses a result that no instruction before it has")
        return names.get(value, value)
    return [_rename(v, names) for v in value] if isinstance(value, list) else _plain(value)


def _plain(value: Any) -> Any:
    """TVM writes flags as true in memory and as 1 in its database files."""
    if isinstance(value, bool):
        return int(value)
    return [_plain(v) for v in value] if isinstance(value, list) else value
