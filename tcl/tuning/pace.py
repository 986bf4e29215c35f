"""Programs that were timed in turns, as if the machine had been equally fast in all of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from tcl.programs.types import Measurement


def latencies(measured: Sequence[Measurement]) -> np.ndarray:
    """float64 (programs,), seconds, of a batch that `Measurer` timed in turns; NaN where a program failed."""
    turns = itertools.zip_longest(*(m.costs_s or (math.nan,) for m in measured), fillvalue=math.nan)
    return at_one_pace(np.array(list(turns)))


def at_one_pace(turns: np.ndarray) -> np.ndarray:
    """float64 (programs,) of float64 (turns, programs), NaN where a program was not timed: each one's median, as if all turns had been
    equally fast. A turn that something else slowed down slowed all programs down, those that were measured alike in every turn tell how
    much."""
    always = turns[:, np.isfinite(turns).all(axis=0)]
    pace = np.exp(np.log(always).mean(axis=1)) if always.shape[1] else np.ones(len(turns))
    kept = np.isfinite(turns).any(axis=0)
    out = np.full(turns.shape[1], np.nan)
    out[kept] = np.nanmedian(turns[:, kept] / pace[:, None], axis=0) * np.median(pace)
    return out
