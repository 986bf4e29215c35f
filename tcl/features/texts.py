"""Reading many schedule texts at once: texts that differ only in their integers are one array of integers.

A million programs have a few hundred structures. The structure (the text without digits) is parsed once, with every integer
replaced by its column; the integers of all programs that share it are read by one call of numpy.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import orjson

DIGITS = b"0123456789"
_RUN = re.compile(rb"[0-9]+")
_ONLY_DIGITS = bytes(c if c in DIGITS else 32 for c in range(256))
_SIGNED_DIGITS = bytes(c if c in DIGITS + b"-" else 32 for c in range(256))


def group_by(keys: list[bytes]) -> dict[bytes, np.ndarray]:
    """The rows (int64) of each distinct key, in order."""
    found: dict[bytes, list[int]] = {}
    for row, key in enumerate(keys):
        found.setdefault(key, []).append(row)
    return {key: np.array(rows, dtype=np.int64) for key, rows in found.items()}


def structure(text: bytes) -> bytes:
    """`text` without its digits: equal for texts that differ only in their integers."""
    return text.translate(None, DIGITS)


def integers(texts: list[bytes], signed: bool = False) -> np.ndarray:
    """All digit runs of texts of one structure, int64 (n, m)."""
    table = _SIGNED_DIGITS if signed else _ONLY_DIGITS
    runs = b" ".join(t.translate(table) for t in texts)
    if not runs.strip():  # numpy reads one number out of blanks
        return np.zeros((len(texts), 0), dtype=np.int64)
    flat = np.fromstring(runs, dtype=np.int64, sep=" ")
    if len(flat) % max(len(texts), 1):
        raise ValueError("texts of one structure hold different numbers of integers")
    return flat.reshape(len(texts), -1)


def columns_of(text: bytes) -> Any:
    """The JSON value of `text` with each integer replaced by its column in `integers([text])` (a negative one stays negative).

    Column numbers start at 1 here, so that a sign can be kept: subtract one.
    """
    count = iter(range(1, 1 << 30))
    return orjson.loads(_RUN.sub(lambda _: b"%d" % next(count), text))


def log2(values: np.ndarray) -> np.ndarray:
    """log2 of positive integers, float32; 0 for what is not positive."""
    return np.log2(np.maximum(values, 1)).astype(np.float32)


def align(values: np.ndarray) -> np.ndarray:
    """How often 2 divides each of the positive integers, at most 6; 0 for what is not positive. float32."""
    values = np.maximum(values, 0)
    low = np.minimum(values & -values, 64)
    return log2(low)
