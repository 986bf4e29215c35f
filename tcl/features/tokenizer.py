"""Programs as token arrays: what sequence models read, and what every other feature is made from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tcl.errors import UserError
from tcl.features import ansor_tokens, autotvm_tokens, metaschedule_tokens
from tcl.features.vocabulary import LENGTH, NUMBERS

_WRITERS = {
    "ansor": ansor_tokens.write_tokens, "metaschedule": metaschedule_tokens.write_tokens, "autotvm": autotvm_tokens.write_tokens,
}  # fmt: skip


@dataclass
class Tokens:
    """n programs as tokens; the arrays may be memory-mapped.

    kind: uint8 (n, L), an index into `vocabulary.KINDS`, 0 for padding. numbers: float16 (n, L, P), see `vocabulary.NUMBERS`.
    length: int16 (n,), how many tokens are not padding (at most L). program: int64 (n,), or None where the programs have no
    identity. cut: how many programs had more than L primitives and lost the rest.
    """

    kind: np.ndarray
    numbers: np.ndarray
    length: np.ndarray
    program: np.ndarray | None = None
    cut: int = 0

    def __len__(self) -> int:
        return len(self.length)

    def take(self, rows: np.ndarray) -> Tokens:
        """The programs at `rows`, in memory."""
        program = None if self.program is None else np.asarray(self.program[rows])
        return Tokens(np.asarray(self.kind[rows]), np.asarray(self.numbers[rows]), np.asarray(self.length[rows]), program, self.cut)


def empty(n: int) -> Tokens:
    """n programs without any primitive."""
    return Tokens(np.zeros((n, LENGTH), dtype=np.uint8), np.zeros((n, LENGTH, len(NUMBERS)), dtype=np.float16), np.zeros(n, dtype=np.int16))


def tokenize(schedules: Sequence[str], formats: str | Sequence[str]) -> Tokens:
    """Schedules (n JSON texts, as `Program.schedule` holds them) to tokens; `formats` is one format for all, or one each.

    Raises UserError for a format that is not known or a schedule that is not what its format says.
    """
    tokens = empty(len(schedules))
    length = np.zeros(len(schedules), dtype=np.int64)
    each = np.array([formats] * len(schedules) if isinstance(formats, str) else list(formats), dtype=object)
    for name in dict.fromkeys(each):
        if name not in _WRITERS:
            raise UserError(f"There are no tokens for schedules of the format {name!r}.", hint=f"Known: {', '.join(_WRITERS)}.")
        rows = np.flatnonzero(each == name)
        whole = len(rows) == len(schedules)
        part = tokens if whole else empty(len(rows))
        counts = length if whole else np.zeros(len(rows), dtype=np.int64)
        try:
            _WRITERS[name]([schedules[r].encode() for r in rows], part.kind, part.numbers, counts)
        except (ValueError, IndexError, KeyError, TypeError) as error:
            raise UserError(f"A schedule is not what the format {name} says: {error}.", hint="Run `tcl data validate`.") from error
        if not whole:
            tokens.kind[rows], tokens.numbers[rows], length[rows] = part.kind, part.numbers, counts
    tokens.cut = int((length > LENGTH).sum())
    tokens.length = np.minimum(length, LENGTH).astype(np.int16)
    return tokens
