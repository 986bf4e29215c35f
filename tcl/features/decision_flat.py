"""Flat features (`tcl.features.flat`) of MetaSchedule programs straight from their genes: table look-ups instead of tokens.

All programs of a design space have the same primitives in the same places, so nearly every flat feature is a sum of what single
decisions contribute: n programs are then a few gathers. What is not such a sum (the extent of a loop fused from several tiled
ones, the largest of several values) is computed from the decisions it depends on. The result equals `flat_of` the tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tcl.features.decision_tokens import DecisionTokens
from tcl.features.flat import FLAT_FEATURES, SIZED, VALUED, flat_of
from tcl.features.metaschedule_tokens import Decision
from tcl.features.texts import align, log2
from tcl.features.vocabulary import LENGTH, VALUE

_CHUNK = 8192
"""Choices whose features are computed at once."""


@dataclass
class _Largest:
    """A feature that is the largest of some numbers of several decisions: tables (slot, float32 (choices,)) of single ones, and
    for extents the factors of each loop."""

    column: int
    tables: list[tuple[int, np.ndarray]] = field(default_factory=list)
    products: list[tuple[int, list[tuple[int, np.ndarray]]]] = field(default_factory=list)  # constant, (slot, int64 (choices,))
    aligned: bool = False


class DecisionFlat:
    """Reads genes int64 (n, slots), each entry a row of its slot's table of choices.

    Args:
        reader: the tokens of the same design space.
        slots: (instruction, choices int64 (c, width)) a slot, in the order of the gene's entries; the reader's columns are the
            slots' choices side by side.
    """

    def __init__(self, reader: DecisionTokens, slots: Sequence[tuple[int, np.ndarray]]) -> None:
        self._slot_of = {instruction: s for s, (instruction, _) in enumerate(slots)}
        self._choices = [choices for _, choices in slots]
        first = [choices[:1] for choices in self._choices]
        offsets = np.cumsum([0, *(c.shape[1] for c in self._choices)])

        def numbers_and_flat(s: int, choices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            table = np.repeat(np.concatenate(first, axis=1), len(choices), axis=0)
            table[:, offsets[s] : offsets[s + 1]] = choices
            tokens = reader.tokens(table)
            return tokens.numbers[:, :, VALUE].astype(np.float32), flat_of(tokens)

        empty = np.zeros((1, 0), dtype=np.int64)
        self._base = flat_of(reader.tokens(np.concatenate(first, axis=1) if first else empty))[0]
        self._parts: list[tuple[int, np.ndarray, np.ndarray]] = []  # slot, columns, float32 (choices, columns) added to the base
        values: list[np.ndarray] = []  # float32 (choices, LENGTH): each token's value by this slot's choice
        for s, choices in enumerate(self._choices):
            parts = [numbers_and_flat(s, choices[at : at + _CHUNK]) for at in range(0, len(choices), _CHUNK)]
            values.append(np.concatenate([v for v, _ in parts]))
            added = np.concatenate([f for _, f in parts]) - self._base
            columns = np.flatnonzero(added.any(axis=0))
            self._parts.append((s, columns, np.ascontiguousarray(added[:, columns])))
        self._largest = self._find_largest(reader.skeleton[:LENGTH], values)
        rest = np.setdiff1d(np.arange(len(FLAT_FEATURES)), [one.column for one in self._largest])
        self._parts = [(s, c[keep], np.ascontiguousarray(t[:, keep])) for s, c, t in self._parts if (keep := np.isin(c, rest)).any()]

    def flat(self, genes: np.ndarray) -> np.ndarray:
        """float32 (n, len(FLAT_FEATURES)), as `flat_of` gives it."""
        out = np.repeat(self._base[None], len(genes), axis=0)
        for s, columns, table in self._parts:
            out[:, columns] += table[genes[:, s]]
        for one in self._largest:
            out[:, one.column] = self._evaluate(one, genes)
        return out

    def _evaluate(self, one: _Largest, genes: np.ndarray) -> np.ndarray:
        best = np.zeros(len(genes), dtype=np.float32)
        for s, table in one.tables:
            np.maximum(best, table[genes[:, s]], out=best)
        for constant, factors in one.products:
            product = np.full(len(genes), constant, dtype=np.int64)
            for s, table in factors:
                product *= table[genes[:, s]]
            # tokens are kept in half precision
            np.maximum(best, (align(product) if one.aligned else log2(product)).astype(np.float16).astype(np.float32), out=best)
        return best

    def _find_largest(self, tokens: Sequence[Any], values: list[np.ndarray]) -> list[_Largest]:
        """The features that depend on several slots and are no sum of what each contributes."""
        found = []
        for name in VALUED:
            places = [(t, token) for t, token in enumerate(tokens) if token.kind == name and isinstance(token.value, Decision)]
            used = [(t, self._slot_of[token.value.instruction]) for t, token in places if token.value.instruction in self._slot_of]
            if len({s for _, s in used}) > 1:
                shift = 2 if name.endswith("compute_at") else 0  # as in `metaschedule_tokens`: locations count from -2
                constants = [float(np.log2(1 + max(t.value + shift, 0))) for t in tokens if t.kind == name and isinstance(t.value, int)]
                largest = _Largest(FLAT_FEATURES.index(f"value_{name}_1"), [(s, values[s][:, t].copy()) for t, s in used])
                if constants and used:  # a constant is a table with one value
                    s = used[0][1]
                    largest.tables.append((s, np.full(len(self._choices[s]), np.float16(max(constants)), dtype=np.float32)))
                found.append(largest)
        for name in SIZED:
            loops = [self._factors(token.extent) for token in tokens if token.kind == name and token.extent]
            if len({s for _, factors in loops for s, _ in factors}) > 1:
                found.append(_Largest(FLAT_FEATURES.index(f"extent_{name}"), products=loops))
                found.append(_Largest(FLAT_FEATURES.index(f"align_{name}"), products=loops, aligned=True))
        return found

    def _factors(self, extent: Sequence[Any]) -> tuple[int, list[tuple[int, np.ndarray]]]:
        """A loop's extent as a constant times one number per slot."""
        constant, by_slot = 1, {}
        for factor in extent:
            if not isinstance(factor, Decision):
                constant *= int(factor) if isinstance(factor, int) else 0
                continue
            s = self._slot_of.get(factor.instruction)
            if s is None or max(factor.element, 0) >= self._choices[s].shape[1]:
                constant = 0  # as for tokens: a decision that is not known counts as 0
                continue
            column = self._choices[s][:, max(factor.element, 0)]
            if factor.candidates:
                column = np.asarray(factor.candidates)[np.clip(column, 0, len(factor.candidates) - 1)].astype(np.int64)
            by_slot[s] = by_slot.get(s, 1) * column
        return constant, list(by_slot.items())
