"""Tokens of MetaSchedule programs straight from their sampling decisions, for a search that never writes them as text.

Programs of one design space share their instructions. `DecisionTokens` parses those once; then n programs are one integer
table, and their tokens a few NumPy operations on its columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tcl.features.metaschedule_tokens import _fill, _skeleton
from tcl.features.tokenizer import Tokens, empty
from tcl.features.vocabulary import LENGTH


class DecisionTokens:
    """Reads tables whose columns are the decisions of one trace.

    Args:
        instructions: the trace's instructions, as its JSON has them.
        layout: instruction -> the columns that hold its decision (a list for a tiling, one number else), counted from 0.
    """

    def __init__(self, instructions: list[list[Any]], layout: dict[int, int | list[int]]) -> None:
        self.skeleton = _skeleton(instructions)
        self._columns = {i: [c + 1 for c in at] if isinstance(at, list) else at + 1 for i, at in layout.items()}

    def tokens(self, table: np.ndarray) -> Tokens:
        """The tokens of n programs, given as int64 (n, columns)."""
        n = len(table)
        tokens = empty(n)
        length = np.zeros(n, dtype=np.int64)
        _fill(self.skeleton, self._columns, table, np.arange(n), tokens.kind, tokens.numbers, length)
        tokens.cut = int((length > LENGTH).sum())
        tokens.length = np.minimum(length, LENGTH).astype(np.int16)
        return tokens
