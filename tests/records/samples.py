"""Small logs in every format, written for the tests (the shapes are real, the numbers made up)."""

from __future__ import annotations

import base64
import json
from typing import Any

CONV_STEPS: list[list[Any]] = [
    ["CHW", 3, "local"], ["SP", 3, 0, 4, [1, 2], 1], ["SP", 3, 3, 8, [1, 4], 1], ["SP", 3, 6, 14, [7, 1], 1], ["SP", 3, 9, 14, [1, 1], 1],
    ["SP", 3, 12, 16, [8], 1], ["SP", 3, 14, 1, [1], 1], ["SP", 3, 16, 1, [1], 1], ["RE", 3, [0, 3, 1, 2]], ["FSP", 4, 0, 1, 3],
    ["CA", 3, 4, 11], ["FU", 6, [0, 1]], ["AN", 6, 0, 5], ["AN", 6, 1, 6], ["PR", 5, 0, "auto_unroll_max_step$64"],
]  # fmt: skip
CONV_KEY = ["conv2d_layer", 4, 16, 14, 14, 8, 1, 1, 1, "SAME"]


def ansor(
    cost: Any = 0.001, key: Any = CONV_KEY, steps: Any = CONV_STEPS, error: Any = 0, stamp: Any = 1600000000, version: Any = "v0.6"
) -> dict[str, Any]:
    costs = cost if isinstance(cost, list) else [cost]
    return {"i": [[json.dumps(key), "cuda -keys=cuda", [-1, 16], "", 0, []], [[], steps]], "r": [costs, error, 1.5, stamp], "v": version}


def program(i: int) -> list[list[Any]]:
    """Steps that differ for each `i`."""
    return [*CONV_STEPS[:-1], ["PR", 5, 0, f"auto_unroll_max_step${i}"]]


def autotvm(cost: float = 0.001, error: int = 0, i: int = 1, padding: Any = "SAME", name: str = "conv2d_nchw.cuda") -> dict[str, Any]:
    tensors = [["TENSOR", [4, 16, 14, 14], "float32"], ["TENSOR", [8, 16, 1, 1], "float32"]]
    entity = [["tile_f", "sp", [-1, 1, i, 2]], ["auto_unroll_max_step", "ot", 512], ["reorder_0", "re", [0, 1]], ["ann", "an", "unroll"]]
    return {
        "input": ["cuda", name, [*tensors, 1, padding, 1, "float32"], {}],
        "config": {"index": i, "code_hash": None, "entity": entity},
        "result": [[cost], error, 0.1, 1637653607.5],
        "version": 0.2,
        "tvm_version": "0.8.dev0",
    }


def autotvm_old(**given: Any) -> dict[str, Any]:
    new = autotvm(**given)
    workload = ["conv2d", [4, 16, 14, 14, "float32"]]
    config = {"i": 1, "t": "direct", "c": None, "e": new["config"]["entity"]}
    return {"i": [*new["input"], workload, config], "r": new["result"], "v": 0.1}


def new_module(extents: tuple[int, ...] = (64, 32, 16), block: str = "matmul") -> dict[str, Any]:
    """What of TVM's JSON graph since `s_tir` a reader looks at."""
    nodes: list[dict[str, Any]] = [{"type": "None"}, {"type": "ffi.String", "data": block}]
    axes = []
    for i, extent in enumerate(extents):
        n = len(nodes)
        nodes += [
            {"type": "int", "data": extent},
            {"type": "ir.IntImm", "data": {"span": 0, "ty": 0, "value": n}},
            {"type": "ir.Range", "data": {"min": 0, "extent": n + 1, "span": 0}},
            {"type": "ffi.String", "data": f"v_{i}"},
            {"type": "ir.Var", "data": {"span": 0, "ty": 0, "name": n + 3}},
            {"type": "tirx.IterVar", "data": {"dom": n + 2, "var": n + 4, "iter_type": 2 if i == len(extents) - 1 else 0, "span": 0}},
        ]
        axes.append(n + 5)
    nodes += [{"type": "ffi.Array", "data": axes}, {"type": "s_tir.SBlock", "data": {"iter_vars": len(nodes), "name_hint": 1}}]
    return {"root_index": len(nodes) - 1, "nodes": nodes, "metadata": {"tvm_version": "0.27"}}


def old_module(extents: tuple[int, ...] = (64, 32, 16), block: str = "matmul") -> dict[str, Any]:
    """The same, before `s_tir`."""
    nodes: list[dict[str, Any]] = [{"type_key": ""}, {"type_key": "runtime.String", "repr_str": block}]
    axes = []
    for i, extent in enumerate(extents):
        n = len(nodes)
        kind = "2" if i == len(extents) - 1 else "0"
        nodes += [
            {"type_key": "IntImm", "attrs": {"dtype": "int32", "span": "0", "value": str(extent)}},
            {"type_key": "Range", "attrs": {"extent": str(n), "min": "0", "span": "0"}},
            {"type_key": "tir.IterVar", "attrs": {"dom": str(n + 1), "iter_type": kind, "span": "0", "thread_tag": "0", "var": "0"}},
        ]
        axes.append(n + 2)
    nodes += [{"type_key": "Array", "data": axes}]
    nodes += [{"type_key": "tir.Block", "attrs": {"iter_vars": str(len(nodes) - 1), "name_hint": "1"}}]
    return {"root": len(nodes) - 1, "nodes": nodes, "b64ndarrays": [], "attrs": {"tvm_version": "0.13"}}


def workload(graph: dict[str, Any], plain: bool = False) -> list[Any]:
    text = json.dumps(graph).encode()
    return ["4722282545416413399", graph if plain else base64.b64encode(len(text).to_bytes(8, "little") + text).decode()]


def trace(tile: int = 4, old: bool = False, postproc: bool = True) -> list[Any]:
    get = "GetBlock" if old else "GetSBlock"
    instructions = [
        [get, [], ["matmul", "main"], ["b0"]],
        ["GetLoops", ["b0"], [], ["l1", "l2", "l3"]],
        ["SamplePerfectTile", ["l1"], [2, 64], ["v4", "v5"]],
        ["Split", ["l1", "v4", "v5"], [1, 0], ["l6", "l7"]],
        ["SampleCategorical", [], [[0, 16], [0.5, 0.5]], ["v8"]],
        ["Annotate", ["b0", "v8"], ["meta_schedule.unroll_explicit"], []],
    ]
    if postproc:
        instructions += [["EnterPostproc", [], [], []], ["Unannotate", ["b0"], ["meta_schedule.unroll_explicit"], []]]
    return [instructions, [[2, [64 // tile, tile]], [4, 1]]]


def tuning(index: int = 0, costs: Any = (0.001, 0.002), **kwargs: Any) -> list[Any]:
    arguments = [["TENSOR", "float32", [64, 16]], ["TENSOR", "float32", [16, 32]], ["TENSOR", "float32", [64, 32]]]
    return [index, [trace(**kwargs), list(costs) if isinstance(costs, tuple) else costs, {"kind": "llvm"}, arguments]]


def write(path: Any, *lines: Any) -> Any:
    """Write one JSON a line; bytes and text are written as they are."""
    raw = [v if isinstance(v, bytes) else v.encode() if isinstance(v, str) else json.dumps(v).encode() for v in lines]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(r + b"\n" for r in raw))
    return path
