"""MetaSchedule traces (`[instructions, decisions]`) as tokens, vectorised over the programs of one design space.

Programs of one design space share their instructions and differ in their decisions: the instructions are parsed once into
"this number of this token is that decision", then all programs' decisions are read as one array.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson

from tcl.features.texts import align, columns_of, group_by, integers, log2, structure
from tcl.features.vocabulary import ALIGN, AXIS, EXTENT, FACTOR, FACTORS, KIND, LENGTH, OUTER, REDUCTION, ROLE, SPATIAL, STAGE, VALUE

_KINDS = {
    "Split": "split", "LoopPartition": "split", "Fuse": "fuse", "Merge": "fuse", "Reorder": "reorder", "ReorderBlockIterVar": "reorder",
    "ComputeAt": "compute_at", "ReverseComputeAt": "reverse_compute_at", "ComputeInline": "compute_inline",
    "ReverseComputeInline": "compute_inline", "RFactor": "rfactor", "StorageAlign": "storage_align", "Tensorize": "tensorize",
    "Blockize": "blockize", "BlockizeMulti": "blockize", "TransformLayout": "layout", "TransformBlockLayout": "layout",
    "ReIndex": "layout", "SetAxisSeparator": "layout", "DecomposeReduction": "decompose", "DecomposePadding": "decompose",
    "PadEinsum": "pad", "RollingBuffer": "other", "Parallel": "parallel", "Vectorize": "vectorize", "Unroll": "unroll",
    "AddUnitLoop": "unit_loop",
}  # fmt: skip
_THREADS = {"blockIdx.x": "block_x", "blockIdx.y": "block_y", "blockIdx.z": "block_z", "threadIdx.x": "thread_x",
            "threadIdx.y": "thread_y", "threadIdx.z": "thread_z"}  # fmt: skip
_ANNOTATIONS = {
    "meta_schedule.parallel": "parallel", "meta_schedule.vectorize": "vectorize", "meta_schedule.unroll_explicit": "pragma_unroll",
    "meta_schedule.unroll_implicit": "pragma_unroll", "meta_schedule.cooperative_fetch": "cooperative_fetch",
    "meta_schedule.auto_tensorize": "tensorize",
}  # fmt: skip
_SILENT = {"Unannotate", "EnterPostproc", "meta_schedule.tiling_structure", "meta_schedule.thread_extent_low_inclusive",
           "meta_schedule.thread_extent_high_inclusive"}  # fmt: skip
"""Transform nothing by themselves."""


@dataclass
class _Token:
    kind: str
    constants: dict[int, float] = field(default_factory=dict)  # number column -> value
    factors: list[Any] = field(default_factory=list)  # of a split: a decision reference or an integer, outer to inner
    value: Any = None  # a decision reference or an integer
    extent: list[Any] = field(default_factory=list)  # of a fused or annotated loop: its factors; empty where unknown


@dataclass(frozen=True)
class Decision:
    instruction: int
    element: int = -1  # -1: the decision is one number
    candidates: tuple[float, ...] = ()  # of a SampleCategorical: the decision is an index into them


def write_tokens(texts: list[bytes], kind: np.ndarray, numbers: np.ndarray, length: np.ndarray) -> None:
    """Fill kind uint8 (n, L), numbers (n, L, P), length int (n,) for traces given as JSON text. `length` counts before the cut."""
    cuts = [_boundary(t) for t in texts]
    heads = [t[1:c] for t, c in zip(texts, cuts, strict=True)]
    tails = [t[c + 1 : -1] for t, c in zip(texts, cuts, strict=True)]
    for head, group in group_by(heads).items():
        tokens = _skeleton(orjson.loads(head))
        for local in group_by([structure(tails[r]).replace(b"-", b"") for r in group]).values():
            rows = group[local]
            chosen = [tails[r] for r in rows]
            found = {d[0]: d[1] for d in _decisions(chosen[0])}
            _fill(tokens, found, integers(chosen, signed=True), rows, kind, numbers, length)


def _boundary(text: bytes) -> int:
    """Where the comma between instructions and decisions is."""
    if text.endswith(b",[]]"):
        return len(text) - 4
    place = text.rfind(b"]],[[")
    return place + 2


def _decisions(text: bytes) -> list[tuple[int, Any]]:
    """(instruction, columns of its decision): columns count from 1, as `columns_of` gives them, and lose their sign."""
    values = orjson.loads(text)
    return [(value[0], columns[1]) for value, columns in zip(values, columns_of(text), strict=True)]


def _skeleton(instructions: list[list[Any]]) -> list[_Token]:
    variables: dict[str, Any] = {}
    blocks: dict[str, int] = {}
    loops: dict[str, int] = {}
    extents: dict[str, list[Any]] = {}
    tokens: list[_Token] = []
    for index, (name, inputs, attributes, outputs) in enumerate(instructions):
        if name == "EnterPostproc":
            break  # what follows lowers the decisions that the tokens already carry
        if name.startswith("Sample"):
            if name == "SampleCategorical":
                variables[outputs[0]] = Decision(index, candidates=tuple(map(float, attributes[0])))
            elif len(outputs) == 1 and name == "SampleComputeLocation":
                variables[outputs[0]] = Decision(index)
            else:
                variables.update({v: Decision(index, i) for i, v in enumerate(outputs)})
        elif name.startswith("Get"):
            for i, output in enumerate(outputs):
                (loops if output.startswith("l") else blocks)[output] = i if output.startswith("l") else len(blocks)
        elif name not in _SILENT:
            token = _token(name, inputs, attributes, variables, blocks, loops)
            if token is not None:
                tokens.append(token)
                _set_extents(name, token, inputs, outputs, extents)
            for i, output in enumerate(outputs):
                (loops if output.startswith("l") else blocks)[output] = i if output.startswith("l") else len(blocks)
    _set_roles(tokens)
    return tokens


def _token(
    name: str, inputs: list[Any], attributes: list[Any], variables: dict[str, Any], blocks: dict[str, int], loops: dict[str, int]
) -> _Token | None:
    kind = _KINDS.get(name, "other")
    if name == "Bind":
        kind = _THREADS.get(attributes[0], "vthread" if str(attributes[0]).startswith("vthread") else "annotate")
    elif name == "Annotate":
        if attributes[0] in _SILENT:
            return None
        kind = _ANNOTATIONS.get(attributes[0], "annotate")
    elif name in ("CacheRead", "CacheWrite", "SetScope", "ReadAt", "WriteAt"):
        scope = "shared" if any(str(a).startswith("shared") for a in attributes) else "local"
        kind = f"cache_{'read' if 'Read' in name else 'write'}_{scope}"
    token = _Token(kind)
    for reference in inputs:
        if isinstance(reference, str) and reference in blocks:
            token.constants.setdefault(STAGE, float(np.log2(1 + blocks[reference])))
        elif isinstance(reference, str) and reference in loops:
            token.constants.setdefault(AXIS, float(np.log2(1 + loops[reference])))
    if name == "Split":
        token.factors = [variables.get(f, f) if isinstance(f, str) else f for f in inputs[1:]]
    elif name in ("Fuse", "Reorder", "Merge"):
        token.constants[VALUE] = float(np.log2(1 + len(inputs)))
    else:
        rest = [variables[r] if isinstance(r, str) and r in variables else r for r in inputs[1:]]
        token.value = next((r for r in rest if isinstance(r, Decision | int)), None)
    return token


def _set_extents(name: str, token: _Token, inputs: list[Any], outputs: list[Any], extents: dict[str, list[Any]]) -> None:
    """Extents of the loops an instruction makes, as lists of factors; a loop whose extent no decision tells stays out."""
    if name == "Split":
        extents.update({o: [f] for o, f in zip(outputs, token.factors, strict=False) if isinstance(f, Decision | int)})
    elif name == "Fuse" and all(i in extents for i in inputs):
        token.extent = [f for i in inputs for f in extents[i]]
        extents[outputs[0]] = token.extent
    elif inputs and inputs[0] in extents:
        token.extent = extents[inputs[0]]


def _set_roles(tokens: list[_Token]) -> None:
    """Splits by more than one sampled factor are tilings: those with fewer factors than the longest are reductions."""
    tiled = [t for t in tokens if t.kind == "split" and sum(isinstance(f, Decision) for f in t.factors) > 1]
    most = max((len(t.factors) for t in tiled), default=0)
    for token in tokens:
        if token.kind == "split":
            token.constants[ROLE] = REDUCTION if token in tiled and len(token.factors) < most else SPATIAL


def _fill(
    tokens: list[_Token], decisions: dict[int, Any], table: np.ndarray, rows: np.ndarray, kind: np.ndarray, numbers: np.ndarray,
    length: np.ndarray,
) -> None:  # fmt: skip
    def value(reference: Any) -> np.ndarray:
        if not isinstance(reference, Decision):
            return np.full(len(rows), reference if isinstance(reference, int) else 0)
        column = decisions.get(reference.instruction)
        if isinstance(column, list):
            column = column[reference.element] if reference.element < len(column) else None
        if not isinstance(column, int):
            return np.zeros(len(rows), dtype=np.int64)
        found = table[:, abs(column) - 1]
        if reference.candidates:
            return np.asarray(reference.candidates)[np.clip(found, 0, len(reference.candidates) - 1)]
        return found

    for t, token in enumerate(tokens[:LENGTH]):
        kind[rows, t] = KIND[token.kind]
        for column, constant in token.constants.items():
            numbers[rows, t, column] = constant
        if token.factors:
            parts = [log2(value(f)) for f in token.factors]
            outer, inner = parts[0], parts[1:]
            numbers[rows, t, EXTENT] = sum(parts)
            numbers[rows, t, OUTER] = outer
            for i, part in enumerate(inner[:FACTORS]):
                numbers[rows, t, FACTOR + i] = part if i < FACTORS - 1 else sum(inner[i:])
            numbers[rows, t, ALIGN] = align(value(token.factors[-1]).astype(np.int64))
        if token.extent:
            product = np.prod([value(f) for f in token.extent], axis=0).astype(np.int64)
            numbers[rows, t, EXTENT], numbers[rows, t, ALIGN] = log2(product), align(product)
        if token.value is not None:
            numbers[rows, t, VALUE] = np.log2(1 + np.maximum(value(token.value) + (2 if token.kind.endswith("compute_at") else 0), 0))
    length[rows] = len(tokens)
