"""Ansor (TVM auto_scheduler) records, one JSON object a line: `{"i": [[workload key, target, …], [[], steps]], "r": [...], "v": "v0.6"}`.

TenSet's `measure_records` are of this format. The steps are kept as they are, as compact JSON; their grammar is checked (the
transform steps of `tvm/include/auto_scheduler/transform_step.h`), so that whoever reads a schedule later can rely on it.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import orjson

from tcl.programs.types import Task
from tcl.records.ansor_workloads import describe, normalise
from tcl.records.record import Record, Refused, outcome, when

VERSIONS = ("v0.2", "v0.3", "v0.4", "v0.5", "v0.6")

_INT = rb"-?\d{1,18}"
_INTS = rb"\[(?:%b(?:,%b)*)?\]" % (_INT, _INT)
_WORD = rb'"[^"\\]{0,64}"'
_FIELDS = {
    b"AN": (_INT, _INT, _INT),  # stage, iterator, annotation
    b"FU": (_INT, _INTS),  # stage, iterators
    b"PR": (_INT, _INT, _WORD),  # stage, iterator, "pragma$value"
    b"RE": (_INT, _INTS),  # stage, order
    b"SP": (_INT, _INT, _INT, _INTS, rb"(?:[01]|true|false)"),  # stage, iterator, extent, lengths, inner to outer
    b"FSP": (_INT, _INT, _INT, _INT),  # stage, iterator, step that is followed, levels
    b"FFSP": (_INT, _INT, _INTS, _INT, rb"(?:[01]|true|false)"),
    b"SA": (_INT, _INT, _INT, _INT),  # storage align: stage, iterator, factor, offset
    b"CA": (_INT, _INT, _INT),  # compute at: stage, target stage, target iterator
    b"CI": (_INT,),
    b"CR": (_INT,),
    b"CHR": (_INT, _WORD, _INTS),  # cache read: stage, scope, readers
    b"CHW": (_INT, _WORD),
    b"RF": (_INT, _INT, _INT),  # rfactor: stage, iterator, factor iterator
}
PRIMITIVES = tuple(k.decode() for k in _FIELDS)
_STEP = b"|".join(rb'\["%b",%b\]' % (kind, b",".join(fields)) for kind, fields in _FIELDS.items())
_STEPS = re.compile(rb"\[(?:(?:%b)(?:,(?:%b))*)?\]" % (_STEP, _STEP))
_GPU = re.compile(rb'"AN",\d+,\d+,(?:4|5|6|7|8|9|10)\]')  # annotations 4 to 10 are vthread, blockIdx and threadIdx


def claims(value: Any) -> bool:
    """Whether a line looks like an Ansor record, good or bad."""
    return isinstance(value, dict) and "i" in value and "r" in value and not isinstance(value.get("v"), int | float)


def parse(value: dict[str, Any]) -> Record:
    if value.get("v") not in VERSIONS:
        raise Refused(f"an Ansor record of a version this reader does not know: {str(value.get('v'))[:20]}")
    try:
        (key, *_), (_, steps, *_) = value["i"]
        costs, error_number, _, stamp, *_ = value["r"]
    except (TypeError, ValueError, KeyError):
        raise Refused("an Ansor record whose parts do not fit together") from None
    if not isinstance(key, str):
        raise Refused("an Ansor record without a workload key")
    schedule = orjson.dumps(steps)
    if not _STEPS.fullmatch(schedule):
        raise Refused(_what_is_wrong(steps))
    costs_s, error, detail = outcome(costs, error_number)
    return Record(key, partial(task, key, steps), schedule, costs_s, error, detail, when(stamp), bool(_GPU.search(schedule)))


def task(key: str, steps: list[list[Any]]) -> Task:
    """The task of a workload key. `steps` of any of its records tell the loop extents where the key alone does not."""
    try:
        workload = orjson.loads(key)
    except orjson.JSONDecodeError:
        raise Refused("a workload key that is not JSON") from None
    if not isinstance(workload, list) or not workload or not isinstance(workload[0], str):
        raise Refused("a workload key that is not a list with a name")
    about = describe(workload, split_loops(steps))
    text = orjson.dumps(normalise(workload)).decode()
    return Task(about.name, about.operator, "ansor", text, about.extents, about.flops, about.bytes)


def split_loops(steps: list[list[Any]]) -> list[tuple[int, ...]]:
    """The extents of the loops that the schedule splits, for each stage with the most splits (the tiled main computation is one).

    A loop that was made by an earlier split of the same stage is not counted again: splits of a tiling come first and in order.
    """
    stages: dict[int, list[tuple[int, int, int]]] = {}
    for step in steps:
        if step[0] == "SP":
            splits = stages.setdefault(step[1], [])
            after = splits[-1][0] + splits[-1][2] + 1 if splits else 0
            if step[2] >= after and step[3] > 0:
                splits.append((step[2], step[3], len(step[4])))
    most = max(map(len, stages.values()), default=0)
    return [tuple(extent for _, extent, _ in splits) for splits in stages.values() if len(splits) == most]


def _what_is_wrong(steps: Any) -> str:
    if not isinstance(steps, list):
        return "an Ansor record without steps"
    for step in steps:
        kind = step[0] if isinstance(step, list) and step else None
        if not isinstance(kind, str):
            return "a step that is not a primitive"
        if kind not in PRIMITIVES:
            return f"unknown primitive {kind[:20]!r}"
        if not re.compile(rb"(?:%b)" % _STEP).fullmatch(orjson.dumps(step)):
            return f"a malformed {kind} step"
    return "malformed steps"
