"""A design space as arrays: what a trace leaves open, as tables of choices.

A *gene* of a program is, for each sampling instruction of its trace, the row of that instruction's table: int64 (n, slots) for
n programs. All choices of a perfect tiling are enumerated once, so drawing, mutating and crossing over are indexing.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tcl.features.decision_flat import DecisionFlat
from tcl.features.decision_tokens import DecisionTokens
from tcl.features.tokenizer import Tokens

STEPS = 2
"""How many sizes of a tiling's last loop, smaller and larger, are one step away."""
MOST_TILINGS = 50_000
"""Tilings kept of one loop; of more, a random part."""
_NICHE = np.random.default_rng(0).integers(1, 2**62, 64, dtype=np.int64) | 1
_PRIMES = (2, 3, 5, 7, 11, 13)


@dataclass
class Slot:
    """One sampling instruction. `choices`: int64 (c, width), a row a decision."""

    instruction: int
    kind: str  # "tile", "categorical", "location", "observed"
    choices: np.ndarray

    def __post_init__(self) -> None:
        self._index = {tuple(row): i for i, row in enumerate(self.choices.tolist())}
        if self.kind == "tile":
            radix = np.int64(int(self.choices.max(initial=1)) + 1)
            self._powers = np.array([pow(int(radix), i, 1 << 62) for i in range(self.choices.shape[1])], dtype=np.int64)
            keys = self.choices @ self._powers  # wraps around like a hash where the numbers are large
            self._order = np.argsort(keys, kind="stable")
            self._keys = keys[self._order]

    def row(self, decision: Any) -> int:
        """The choice that is `decision` (a list for a tiling, a number else), or -1."""
        return self._index.get(tuple(decision) if isinstance(decision, list) else (decision,), -1)

    def step(self, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Neighbours of the choices at `rows`: a prime factor moved between two loops of a tiling, else any choice. A move
        that leads out of the table leaves the choice as it is."""
        if self.kind != "tile" or self.choices.shape[1] < 2:
            return rng.integers(0, len(self.choices), len(rows))
        n, width = len(rows), self.choices.shape[1]
        factors = self.choices[rows]
        source = rng.integers(0, width, n)
        goal = (source + rng.integers(1, width, n)) % width
        prime = np.asarray(_PRIMES)[np.minimum(rng.geometric(0.6, n) - 1, len(_PRIMES) - 1)]
        at = np.arange(n)
        fits = factors[at, source] % prime == 0
        factors[at, source] = np.where(fits, factors[at, source] // prime, factors[at, source])
        factors[at, goal] = np.where(fits, factors[at, goal] * prime, factors[at, goal])
        keys = factors @ self._powers
        place = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        found = self._order[place]
        inside = (self._keys[place] == keys) & (self.choices[found] == factors).all(axis=1)
        return np.where(inside, found, rows)

    def around(self, row: int) -> list[int]:
        """Rows one step away from one: of a tiling those whose last loop has the next sizes, smaller and larger, and whose others changed
        least; of a list, all others."""
        if self.kind == "categorical":
            return [other for other in range(len(self.choices)) if other != row]
        if self.kind != "tile" or self.choices.shape[1] < 2:
            return []
        last = self.choices[:, -1]
        sizes = np.unique(last)
        at = int(np.searchsorted(sizes, last[row]))
        found = []
        for size in sizes[max(0, at - STEPS) : at + STEPS + 1]:
            if size != last[row]:
                like = np.flatnonzero(last == size)
                moved = np.abs(np.log2(self.choices[like, :-1]) - np.log2(self.choices[row, :-1])).sum(axis=1)
                found.append(int(like[np.argmin(moved)]))
        return found


class Space:
    """The programs that share one list of instructions."""

    def __init__(self, instructions: list[list[Any]], examples: Sequence[list[list[Any]]], rng: np.random.Generator) -> None:
        """`examples`: decision lists (`[[instruction, decision], …]`) of known programs of the space."""
        self.instructions = instructions
        self.head = json.dumps(instructions, separators=(",", ":"))
        self.slots = [_slot(instructions, i, [e[at][1] for e in examples], rng) for at, (i, _) in enumerate(examples[0])]
        layout: dict[int, int | list[int]] = {}
        column = 0
        for slot in self.slots:
            width = slot.choices.shape[1]
            layout[slot.instruction] = list(range(column, column + width)) if slot.kind == "tile" else column
            column += width
        self._reader = DecisionTokens(instructions, layout)
        self._multipliers = rng.integers(1, 2**62, len(self.slots), dtype=np.int64) | 1
        self.refused = [np.zeros((len(s.choices), 2)) for s in self.slots]  # per choice: refused, tried

    @property
    def size(self) -> float:
        """How many programs the tables span."""
        return float(np.prod([float(len(s.choices)) for s in self.slots]))

    def draw(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Genes of n random programs, uniform over the tables."""
        return np.stack([rng.integers(0, len(s.choices), n) for s in self.slots], axis=1) if self.slots else np.zeros((n, 0), np.int64)

    def mutate(self, genes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Each program with one or two of its choices changed: to a neighbour two times out of three, else to any."""
        out = genes.copy()
        if not self.slots:
            return out
        for _ in range(2):
            which = rng.integers(0, len(self.slots), len(out))
            active = rng.random(len(out)) < (1.0 if _ == 0 else 0.4)
            near = rng.random(len(out)) < 2 / 3
            for s, slot in enumerate(self.slots):
                rows = np.flatnonzero(active & (which == s) & near)
                out[rows, s] = slot.step(out[rows, s], rng)
                rows = np.flatnonzero(active & (which == s) & ~near)
                out[rows, s] = rng.integers(0, len(slot.choices), len(rows))
        return out

    def cross(self, mothers: np.ndarray, fathers: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Uniform crossover, choice by choice."""
        return np.where(rng.random(mothers.shape) < 0.5, mothers, fathers)

    def tokens(self, genes: np.ndarray) -> Tokens:
        """The programs as a cost model reads them."""
        parts = [slot.choices[genes[:, s]] for s, slot in enumerate(self.slots)]
        return self._reader.tokens(np.concatenate(parts, axis=1) if parts else np.zeros((len(genes), 0), dtype=np.int64))

    def flat(self, genes: np.ndarray) -> np.ndarray:
        """float32 (n, D): the programs' flat features, those of their tokens, by table look-ups."""
        return self._flat.flat(genes)

    @functools.cached_property
    def _flat(self) -> DecisionFlat:
        return DecisionFlat(self._reader, [(slot.instruction, slot.choices) for slot in self.slots])

    def keys(self, genes: np.ndarray) -> np.ndarray:
        """int64 (n,): equal for equal genes, and almost surely only for those."""
        return (genes + 1) @ self._multipliers

    def text(self, gene: np.ndarray) -> str:
        """The program's `schedule` text."""
        decisions = []
        for s, slot in enumerate(self.slots):
            choice = slot.choices[gene[s]].tolist()
            decisions.append([slot.instruction, choice if slot.kind == "tile" else choice[0]])
        return f"[{self.head},{json.dumps(decisions, separators=(',', ':'))}]"

    def gene(self, decisions: list[list[Any]]) -> np.ndarray | None:
        """The gene of a program given by its decisions; None where a decision is in no table."""
        rows = [slot.row(value) for slot, (_, value) in zip(self.slots, decisions, strict=True)]
        return None if -1 in rows else np.asarray(rows, dtype=np.int64)

    def niches(self, genes: np.ndarray) -> np.ndarray:
        """int64 (n,): equal for programs of one kind, those whose inner tiles have the same sizes: how the outer loops are split hardly
        matters. Where nothing is tiled, every program is a kind of its own."""
        return self._kinds(genes, self._inner)

    def bodies(self, genes: np.ndarray) -> np.ndarray:
        """int64 (n,): equal for programs with the same innermost loops: the same last tile sizes, unrolled alike."""
        return self._kinds(genes, self._innermost)

    def _kinds(self, genes: np.ndarray, tables: list[tuple[int, np.ndarray, np.int64]]) -> np.ndarray:
        if not self._inner:  # nothing is tiled
            return self.keys(genes)
        return np.sum([multiplier * (kind[genes[:, s]] + 1) for s, kind, multiplier in tables], axis=0, dtype=np.int64)

    @functools.cached_property
    def _innermost(self) -> list[tuple[int, np.ndarray, np.int64]]:
        """As `_inner`: of the tiled slots the size of the last loop, of those that choose from a list their choice."""
        kinds = {"tile": lambda slot: slot.choices[:, -1], "categorical": lambda slot: slot.choices[:, 0]}
        found = [(s, kinds[slot.kind](slot)) for s, slot in enumerate(self.slots) if slot.kind in kinds]
        return [(s, kind, _NICHE[-1 - i % len(_NICHE)]) for i, (s, kind) in enumerate(found)]

    def steps(self, gene: np.ndarray) -> np.ndarray:
        """int64 (n, slots): the programs that are one step away from one and have other innermost loops (`Slot.around`)."""
        found = []
        for s, slot in enumerate(self.slots):
            for row in slot.around(int(gene[s])):
                found.append(gene.copy())
                found[-1][s] = row
        return np.stack(found) if found else np.zeros((0, len(gene)), dtype=np.int64)

    @functools.cached_property
    def _inner(self) -> list[tuple[int, np.ndarray, np.int64]]:
        """(slot, kind of each of its choices, a number) of the tiled slots: the kind is the sizes of the two innermost loops, or of the
        only inner one. The same numbers in all spaces of a task, which differ in where blocks are computed."""
        found = []
        for s, slot in enumerate(self.slots):
            width = slot.choices.shape[1]
            if slot.kind == "tile" and width > 1:
                _, kind = np.unique(slot.choices[:, -min(2, width - 1) :], axis=0, return_inverse=True)
                found.append((s, kind.ravel(), _NICHE[len(found) % len(_NICHE)]))
        return found

    def note(self, gene: np.ndarray, valid: bool) -> None:
        """Remember whether TVM accepted a program."""
        for s, row in enumerate(gene):
            self.refused[s][row] += (not valid, 1)

    def doubt(self, genes: np.ndarray) -> np.ndarray:
        """float (n,): the highest share of refused programs among the choices of each program, once a choice was tried thrice."""
        out = np.zeros(len(genes))
        for s, counts in enumerate(self.refused):
            share = np.where(counts[:, 1] >= 3, counts[:, 0] / np.maximum(counts[:, 1], 1), 0.0)
            if share.any():
                out = np.maximum(out, share[genes[:, s]])
        return out


def _slot(instructions: list[list[Any]], index: int, seen: list[Any], rng: np.random.Generator) -> Slot:
    name, _, attributes, _ = instructions[index]
    if name == "SamplePerfectTile":
        extent = int(np.prod(seen[0]))
        choices = tilings(extent, int(attributes[0]), int(attributes[1]))
        if len(choices) > MOST_TILINGS:
            choices = np.concatenate([choices[rng.permutation(len(choices))[:MOST_TILINGS]], np.asarray(seen, dtype=np.int64)])
        return Slot(index, "tile", np.unique(choices, axis=0))
    if name == "SampleCategorical":
        return Slot(index, "categorical", np.arange(len(attributes[0]), dtype=np.int64)[:, None])
    if isinstance(seen[0], list):
        return Slot(index, "tile", np.unique(np.asarray(seen, dtype=np.int64), axis=0))
    if name == "SampleComputeLocation":  # -2 inlined, -1 at the root, else a loop; a few examples need not show them all
        return Slot(index, "location", np.arange(-2, max(0, *seen) + 1, dtype=np.int64)[:, None])
    return Slot(index, "observed", np.unique(np.asarray(seen, dtype=np.int64))[:, None])


@functools.lru_cache(maxsize=256)
def tilings(extent: int, parts: int, innermost: int) -> np.ndarray:
    """All ways to write `extent` as an ordered product of `parts` factors, the last at most `innermost`: int64 (n, parts)."""
    divisors = [d for d in range(1, extent + 1) if extent % d == 0] if extent < 1 << 20 else _divisors(extent)
    rows = [[d] for d in divisors if d <= innermost] if parts > 1 else [[extent]]
    for part in range(1, parts):
        grown = []
        for row in rows:
            rest = extent // int(np.prod(row))
            grown += [[rest, *row]] if part == parts - 1 else [[d, *row] for d in divisors if rest % d == 0]
        rows = grown
    return np.asarray(rows, dtype=np.int64).reshape(-1, parts)


def _divisors(extent: int) -> list[int]:
    small = [d for d in range(1, int(extent**0.5) + 1) if extent % d == 0]
    return sorted({*small, *(extent // d for d in small)})
