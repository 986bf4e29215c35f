"""Colours that people with any colour vision tell apart, on a light and on a dark page alike; and how numbers are written."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

CATEGORIES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#B3A100", "#7F5FC7", "#8C6D4F", "#5F7F7F")
"""Okabe and Ito's palette (jfly.uni-koeln.de/color), its yellow darkened for white pages, black left out, three more added."""
SEQUENTIAL = "Viridis"
FASTER_IS_BRIGHT = "Viridis_r"
"""For latencies: low is good, and good is bright."""
GREY = "rgba(128,128,128,0.36)"
FAILED = "#D55E00"
GRID = "rgba(128,128,128,0.18)"
OTHERS = "rgba(128,128,128,0.75)"


def unit_of(latencies_s: np.ndarray) -> tuple[float, str]:
    """(factor, unit) in which the median of `latencies_s` (seconds; NaN left out) reads well."""
    known = latencies_s[np.isfinite(latencies_s)] if len(latencies_s) else latencies_s
    middle = float(np.median(known)) if len(known) else 1e-3
    for factor, unit in ((1e9, "ns"), (1e6, "µs"), (1e3, "ms")):
        if middle < 1000 / factor:
            return factor, unit
    return 1.0, "s"


def colors_of(names: Iterable[str]) -> dict[str, str]:
    """name -> its colour, the same in every figure of a page."""
    return {name: CATEGORIES[i % len(CATEGORIES)] for i, name in enumerate(names)}


def latency_texts(values: Iterable[float | None]) -> list[str]:
    """For a table's column: `latency_text` of each, empty where there is none."""
    return ["" if v is None or math.isnan(v) else latency_text(v) for v in values]


def latency_text(latency_s: float) -> str:
    """A latency for people: 226 µs, 1.06 ms, 2.76 s; "failed" for NaN."""
    if not math.isfinite(latency_s):
        return "failed"
    for factor, unit in ((1e9, "ns"), (1e6, "µs"), (1e3, "ms")):
        if latency_s * factor < 1000:
            return f"{latency_s * factor:.3g} {unit}"
    return f"{latency_s:.3g} s"


def log_ticks(low_s: float, high_s: float) -> tuple[list[float], list[str]]:
    """Where a log10 axis of seconds has its ticks, and what they say; 1-2-5 steps, at most about eight."""
    steps = [m * 10.0**e for e in range(-10, 4) for m in (1, 2, 5)]
    ticks = [s for s in steps if low_s * 0.999 <= s <= high_s * 1.001]
    if len(ticks) > 8:
        ticks = [t for t in ticks if f"{t:e}".startswith("1")]
    if len(ticks) < 2:
        ticks = sorted({low_s, high_s})
    return [math.log10(t) for t in ticks], [latency_text(t) for t in ticks]
