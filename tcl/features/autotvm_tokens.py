"""AutoTVM configurations (a list of `[knob, "sp" | "re" | "an" | "ot", value]`) as tokens: a knob is a primitive."""

from __future__ import annotations

from typing import Any

import numpy as np

from tcl.features.texts import columns_of, group_by, integers, log2, structure
from tcl.features.vocabulary import AXIS, EXTENT, FACTOR, FACTORS, KIND, LENGTH, OUTER, REDUCTION, ROLE, SPATIAL, VALUE


def write_tokens(texts: list[bytes], kind: np.ndarray, numbers: np.ndarray, length: np.ndarray) -> None:
    """Fill kind uint8 (n, L), numbers (n, L, P), length int (n,) for knob lists given as JSON text. `length` counts before the cut."""
    for rows in group_by([structure(t) for t in texts]).values():
        chosen = [texts[r] for r in rows]
        knobs: Any = columns_of(chosen[0])
        if isinstance(knobs, dict):  # a whole configuration object
            knobs = knobs.get("entity", [])
        table = integers(chosen)
        for t, (name, sort, value) in enumerate(knobs[:LENGTH]):
            out = np.zeros((len(rows), numbers.shape[2]), dtype=np.float32)
            out[:, AXIS] = np.log2(1 + t)
            if sort == "sp":
                kind[rows, t] = KIND["split"]
                # -1 stands for "what is left": the outermost part is then not known from the knob alone
                parts = [log2(table[:, c - 1]) if c > 0 else np.zeros(len(rows), np.float32) for c in value]
                out[:, OUTER] = parts[0]
                for i, part in enumerate(parts[1 : FACTORS + 1]):
                    out[:, FACTOR + i] = part
                out[:, EXTENT] = sum(parts)
                out[:, ROLE] = REDUCTION if name.startswith(("tile_r", "tile_k")) else SPATIAL
            else:
                kind[rows, t] = KIND["pragma_unroll" if name == "auto_unroll_max_step" else "reorder" if sort == "re" else "knob"]
                first = value if isinstance(value, int) else None
                out[:, VALUE] = log2(1 + table[:, abs(first) - 1]) if first else 0.0
            numbers[rows, t] = out
        length[rows] = len(knobs)
