"""Finding programs by what a person types: an id, a task, an operator, a primitive, or words of a primitive's sentence."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from tcl.features.flat import FLAT_FEATURES
from tcl.features.vocabulary import KINDS

_WORD = re.compile(r'"([^"]+)"|(\S+)')
_DIGITS = re.compile(r"[0-9a-f]{4,16}")


def search(
    frame: pd.DataFrame, text: str, flat: Callable[[], np.ndarray] | None = None, sentences: Callable[[], Sequence[str]] | None = None
) -> np.ndarray:
    """Which rows answer to every word of `text`: bool (n,).

    A word answers by: the beginning of the program's id (4 hex digits or more), a part of its task's or operator's name, or the name
    of a kind of primitive that it uses ("vectorize"). Words in quotes are looked for in the primitives' sentences, as pages show them.

    Args:
        frame: columns program (int64), task_name and operator (categories).
        flat: gives the flat features (n, F) of the same rows; asked only for a word that a kind of primitive has in its name.
        sentences: gives one text a row (`tcl.views.schedule.steps_of`, joined by newlines); asked only for words in quotes.
    """
    found = np.ones(len(frame), dtype=bool)
    for quoted, plain in _WORD.findall(text):
        if quoted:
            if sentences is not None:
                wanted = quoted.lower()
                found &= np.fromiter((wanted in s.lower() for s in sentences()), dtype=bool, count=len(frame))
        else:
            found &= _word(frame, plain.lower(), flat)
    return found


def _word(frame: pd.DataFrame, word: str, flat: Callable[[], np.ndarray] | None) -> np.ndarray:
    found = _named(frame["task_name"], word) | _named(frame["operator"], word)
    if _DIGITS.fullmatch(word):
        bits = np.uint64(64 - 4 * len(word))
        found |= frame["program"].to_numpy(np.int64).view(np.uint64) >> bits == np.uint64(int(word, 16))
    kinds = [FLAT_FEATURES.index(f"count_{kind}") for kind in KINDS[1:] if word in kind]
    if kinds and flat is not None and len(word) > 2:
        found |= (flat()[:, kinds] > 0).any(axis=1)
    return found


def _named(column: pd.Series, word: str) -> np.ndarray:
    """Rows whose category contains `word`: each category is read once."""
    names = column.cat.categories
    hits = np.array([word in str(name).lower() for name in names], dtype=bool)
    codes = column.cat.codes.to_numpy()
    return hits[codes] & (codes >= 0) if len(names) else np.zeros(len(column), dtype=bool)
