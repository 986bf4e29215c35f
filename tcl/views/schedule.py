"""A program's schedule primitives as sentences, and two programs side by side.

Ansor's steps name loops by their place at that moment, MetaSchedule's by variables: both are followed here step by step, so
that every sentence names the loop it means ("i.1", the second part of i). A loop whose origin a log does not tell is "loop 7".
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import pandas as pd

AXES = {
    "matmul": "ijk", "dense": "ijk", "batch_matmul": "bijk", "conv2d": ("n", "f", "y", "x", "c", "ky", "kx"),
    "depthwise": ("n", "c", "y", "x", "ky", "kx"), "pooling": ("n", "c", "y", "x", "ky", "kx"), "softmax": "ij",
}  # fmt: skip
"""What people call the loops of an operator, in the order of `Task.extents`."""

ANNOTATIONS = (
    "annotate", "unroll", "vectorize", "parallel", "vthread", "bind to blockIdx.x", "bind to threadIdx.x", "bind to blockIdx.y",
    "bind to threadIdx.y", "bind to blockIdx.z", "bind to threadIdx.z", "tensorize",
)  # fmt: skip
"""By the number of tvm::auto_scheduler::IteratorAnnotation."""


@dataclass(frozen=True)
class Step:
    """One primitive: its name, what it is done to, and the whole sentence."""

    primitive: str
    target: str
    text: str


def steps_of(schedule: str, format: str, operator: str = "", extents: Sequence[int] = ()) -> list[Step]:
    """The schedule's primitives in order. `operator` and `extents` are the task's and only serve to name loops.

    A schedule that is not what its format says becomes one step that shows it as it is.
    """
    try:
        return _READERS[format](orjson.loads(schedule), _axis_names(operator, extents))
    except (KeyError, ValueError, IndexError, TypeError):
        return [Step("schedule", format, schedule[:2000])]


def steps_table(steps: Sequence[Step]) -> pd.DataFrame:
    """Columns #, primitive, step."""
    return pd.DataFrame({"#": range(1, len(steps) + 1), "primitive": [s.primitive for s in steps], "step": [s.text for s in steps]})


def difference(left: Sequence[Step], right: Sequence[Step]) -> pd.DataFrame:
    """Two schedules aligned: columns change ("", "differs", "left only", "right only"), left, right.

    Steps are matched by primitive and loop, in order; what differs then is a decision (a tile size, an unroll depth).
    """
    a, b = [(s.primitive, s.target) for s in left], [(s.primitive, s.target) for s in right]
    rows: list[tuple[str, str, str]] = []
    for what, a0, a1, b0, b1 in difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if what == "equal":
            pairs = zip(left[a0:a1], right[b0:b1], strict=True)
            rows += [("" if x.text == y.text else "differs", x.text, y.text) for x, y in pairs]
        else:
            rows += [("left only", x.text, "") for x in left[a0:a1]] + [("right only", "", y.text) for y in right[b0:b1]]
    return pd.DataFrame(rows, columns=["change", "left", "right"])


# -- Ansor -----------------------------------------------------------------------------------------------------------------


class _Loops:
    """The loops of one stage as they stand after each step: (name, extent or None)."""

    def __init__(self, loops: list[tuple[str, int | None]] | None = None) -> None:
        self.loops = loops or []

    def name(self, index: int) -> str:
        return self.loops[index][0] if 0 <= index < len(self.loops) else f"loop {index}"

    def split(self, index: int, extent: int | None, parts: int) -> str:
        """Replace a loop by its parts; returns its name."""
        if not 0 <= index < len(self.loops) or (extent and self.loops[index][1] not in (None, extent)):
            self.loops = []  # the log knows more than we do: names from here on would be wrong
            return f"loop {index}"
        name = self.loops[index][0]
        self.loops[index : index + 1] = [(f"{name}.{i}", None) for i in range(parts)]
        return name

    def fuse(self, indices: list[int]) -> str:
        names = [self.name(i) for i in indices]
        if indices and max(indices) < len(self.loops):
            self.loops[indices[0] : indices[-1] + 1] = [(_fused(names), None)]
        return ", ".join(names)

    def reorder(self, order: list[int]) -> str:
        names = [self.name(i) for i in order]
        self.loops = [self.loops[i] for i in order] if self.loops and max(order, default=0) < len(self.loops) else []
        return ", ".join(names)


def _ansor(steps: list[list[Any]], axes: list[tuple[str, int]]) -> list[Step]:
    stages: dict[int, _Loops] = {}
    splits: dict[int, tuple[int, list[int]]] = {}  # step -> (extent, parts, outer to inner)
    out: list[Step] = []

    def loops(stage: int) -> _Loops:
        return stages.setdefault(stage, _Loops([(n, e) for n, e in axes]))

    def insert(stage: int) -> None:
        for later in sorted((s for s in stages if s >= stage), reverse=True):
            stages[later + 1] = stages.pop(later)

    for number, (kind, stage, *rest) in enumerate(steps):
        where = f"stage {stage}"
        if kind == "SP":
            index, extent, lengths, _ = rest
            extent = extent if isinstance(extent, int) else 0
            outer = math.ceil(extent / max(math.prod(lengths), 1))
            splits[number] = (extent, [outer, *lengths])
            name = loops(stage).split(index, extent, len(lengths) + 1)
            out.append(_split(where, name, extent, [outer, *lengths]))
        elif kind == "FSP":
            index, source, levels = rest
            extent, parts = splits.get(source, (0, []))
            kept = [*parts[:levels], math.prod(parts[levels:])] if parts else []
            splits[number] = (extent, kept)
            name = loops(stage).split(index, extent or None, levels + 1)
            out.append(_split(where, name, extent, kept, f", following step {source + 1}"))
        elif kind == "FFSP":
            index, sources, level, _ = rest
            factor = math.prod(splits[s][1][level] for s in sources if s in splits and level < len(splits[s][1]))
            name = loops(stage).split(index, None, 2)
            steps_text = ", ".join(str(s + 1) for s in sources)
            out.append(Step("split", f"{where} {name}", f"{where}: split {name} by {factor}, as steps {steps_text} do together"))
        elif kind == "RE":
            out.append(Step("reorder", where, f"{where}: reorder to {loops(stage).reorder(rest[0])}"))
        elif kind == "FU":
            names = loops(stage).fuse(rest[0])
            out.append(Step("fuse", f"{where} {names}", f"{where}: fuse {names}"))
        elif kind == "AN":
            name = loops(stage).name(rest[0])
            verb = ANNOTATIONS[rest[1]] if 0 <= rest[1] < len(ANNOTATIONS) else f"annotation {rest[1]}"
            text = verb.replace("bind", f"bind {name}") if verb.startswith("bind") else f"{verb} {name}"
            out.append(Step(verb.split()[0], f"{where} {name}", f"{where}: {text}"))
        elif kind == "PR":
            name = loops(stage).name(rest[0])
            pragma, _, value = str(rest[1]).partition("$")
            text = f"unroll up to {value} steps" if pragma == "auto_unroll_max_step" else f"{pragma} {value}"
            out.append(Step("pragma", f"{where} {pragma}", f"{where}: {text} inside {name}"))
        elif kind in ("CA", "CI", "CR", "CHR", "CHW", "RF", "SA"):
            out.append(_placement(kind, stage, rest, loops))
            if kind == "CHW":
                insert(stage)
            elif kind == "CHR":
                insert(stage + 1)
                stages[stage + 1] = _Loops()  # the loops of a copy are not those of the task
            elif kind == "RF":
                insert(stage)
        else:
            out.append(Step(str(kind), where, f"{where}: {kind} {rest}"))
    return out


def _placement(kind: str, stage: int, rest: list[Any], loops: Any) -> Step:
    where = f"stage {stage}"
    if kind == "CA":
        return Step("compute at", where, f"compute {where} inside {loops(rest[0]).name(rest[1])} of stage {rest[0]}")
    if kind == "CI":
        return Step("inline", where, f"inline {where} into its users")
    if kind == "CR":
        return Step("compute root", where, f"compute {where} on its own")
    if kind == "CHR":
        return Step("cache read", where, f"read {where} through {rest[0]} memory for stage {', '.join(map(str, rest[1]))}")
    if kind == "CHW":
        return Step("cache write", where, f"write {where} through {rest[0]} memory")
    if kind == "RF":
        return Step("rfactor", where, f"{where}: factor the reduction at {loops(stage).name(rest[0])}")
    return Step("storage align", where, f"{where}: align {loops(stage).name(rest[0])} to {rest[1]} + {rest[2]}")


# -- MetaSchedule ----------------------------------------------------------------------------------------------------------


def _metaschedule(trace: list[Any], axes: list[tuple[str, int]]) -> list[Step]:
    instructions, decisions = trace
    decided = {int(d[0]): d[1] for d in decisions}
    names: dict[str, str] = {}
    values: dict[str, Any] = {}
    out: list[Step] = []
    for number, (kind, inputs, attributes, outputs) in enumerate(instructions):
        if kind == "EnterPostproc":
            break
        decision = decided.get(number)
        if kind in ("GetBlock", "GetSBlock"):
            names[outputs[0]] = str(attributes[0])
        elif kind == "GetLoops":
            block = names.get(inputs[0], inputs[0])
            known = [n for n, _ in axes] if len(axes) == len(outputs) else [f"{block}[{i}]" for i in range(len(outputs))]
            names.update(zip(outputs, known, strict=True))
        elif kind.startswith("Get"):
            names.update({o: f"{names.get(inputs[0], inputs[0])} {_words(kind)[4:]} {i}" for i, o in enumerate(outputs)})
        elif kind == "SampleCategorical":
            values[outputs[0]] = attributes[0][decision] if isinstance(decision, int) and decision < len(attributes[0]) else "?"
        elif kind == "SampleComputeLocation":
            values[outputs[0]] = decision
        elif kind.startswith("Sample"):
            values.update(zip(outputs, decision if isinstance(decision, list) else [decision] * len(outputs), strict=False))
        elif kind == "Split":
            loop = names.get(inputs[0], inputs[0])
            parts = [values.get(f, f) if isinstance(f, str) else f for f in inputs[1:]]
            names.update({o: f"{loop}.{i}" for i, o in enumerate(outputs)})
            shown = ["rest" if p in (None, "None") else p for p in parts]
            extent = math.prod(shown) if all(isinstance(p, int) for p in shown) else 0
            out.append(_split("", loop, extent, shown))
        elif kind == "Fuse":
            fused = [names.get(i, i) for i in inputs]
            names[outputs[0]] = _fused(fused)
            out.append(Step("fuse", ", ".join(fused), f"fuse {', '.join(fused)}"))
        else:
            out.append(_plain(kind, inputs, attributes, names, values))
            names.update({o: f"{names.get(inputs[0], inputs[0]) if inputs else kind} {_words(kind)}" for o in outputs})
    return out


def _plain(kind: str, inputs: list[Any], attributes: list[Any], names: dict[str, str], values: dict[str, Any]) -> Step:
    shown = [str(names.get(i, values.get(i, i)) if isinstance(i, str) else i).strip('"') for i in inputs]
    verb, first, rest = _words(kind), shown[0] if shown else "", shown[1:]
    if kind == "Reorder":
        return Step(verb, "", f"reorder to {', '.join(shown)}")
    if kind == "Annotate":
        key = str(attributes[0]).removeprefix("meta_schedule.")
        return Step(verb, f"{first} {key}", f"annotate {first} with {key.replace('_', ' ')} {' '.join(rest)}".strip())
    if kind in ("Parallel", "Vectorize", "Unroll"):
        return Step(verb, first, f"{verb} {first}")
    if kind == "Bind":
        return Step(verb, first, f"bind {first} to {attributes[0]}")
    if kind in ("ComputeAt", "ReverseComputeAt"):
        place = rest[0] if rest else "?"
        place = {"-1": "the root", "-2": "where it is inlined"}.get(place, f"loop {place}" if place.lstrip("-").isdigit() else place)
        return Step(verb, first, f"{verb} {first} at {place}")
    extra = [str(a) for a in attributes if a not in (None, "", 0, 1, True, False)]
    return Step(verb, first, " ".join([verb, *shown, *(f"({e})" for e in extra)]))


# -- AutoTVM ---------------------------------------------------------------------------------------------------------------


def _autotvm(knobs: list[list[Any]], axes: list[tuple[str, int]]) -> list[Step]:
    verbs = {"sp": "split", "re": "reorder", "an": "annotate", "ot": "set"}
    out = []
    for name, kind, value in knobs:
        if kind == "sp":
            parts = ["rest" if v == -1 else v for v in value]
            out.append(Step("split", name, f"split {name} into {' × '.join(map(str, parts))}"))
        else:
            out.append(Step(verbs.get(kind, kind), name, f"{verbs.get(kind, kind)} {name} to {value}"))
    return out


_READERS = {"ansor": _ansor, "metaschedule": _metaschedule, "autotvm": _autotvm}


def _axis_names(operator: str, extents: Sequence[int]) -> list[tuple[str, int]]:
    extents = [int(e) for e in extents]
    names = AXES.get(operator, ())
    if len(names) != len(extents):
        names = [f"i{n}" for n in range(len(extents))]
    return list(zip(names, extents, strict=True))


def _split(where: str, loop: str, extent: int, parts: list[Any], more: str = "") -> Step:
    of = f" ({extent:,})" if extent else ""
    prefix = f"{where}: " if where else ""
    into = f" into {' × '.join(f'{p:,}' if isinstance(p, int) else str(p) for p in parts)}" if parts else ""
    return Step("split", f"{where} {loop}".strip(), f"{prefix}split {loop}{of}{into}{more}")


def _fused(names: list[str]) -> str:
    joined = "·".join(names)
    return joined if len(joined) <= 32 else f"{names[0]}…{names[-1]}"


def _words(camel: str) -> str:
    return "".join(f" {c.lower()}" if c.isupper() else c for c in camel).strip()
