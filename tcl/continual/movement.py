"""Where the same programs lie in a knowledge base's embeddings before and after it learned a platform: forgetting that one can see.

`movement-N.parquet`, beside the knowledge base, holds it for platform N (counted from 0; the first has no before), so that a page
draws it without torch: one row a (model, program) with columns model (whose embedding: an earlier platform, or the new one, whose
"before" is the source that its column started from), program, task (int64 ids; task 0: not known), x_before, y_before, x_after,
y_after, moved (float32). Embeddings are centred and aligned (orthogonal Procrustes, Schönemann 1966), because a rotation of the space
changes no score, then both are laid on the first two principal components of the two together.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tcl.continual.data import PlatformData
from tcl.continual.knowledge_base import KnowledgeBase
from tcl.models.base import Inputs

SHOWN = 1_000
"""Programs on a before/after map at most; more are drawn at random."""


class Probe:
    """Embeds the programs when it is made, before the knowledge base learns; `after` embeds them again and compares."""

    def __init__(self, base: KnowledgeBase, data: PlatformData, nearest: str | None, seed: int) -> None:
        """The programs are the new platform's test programs, or its pool where there are none: no earlier platform's data is read."""
        test = data.test if data.test is not None and len(data.test) > 3 else None
        inputs = data.pool if test is None else test.inputs
        rows = np.arange(len(inputs))
        if len(rows) > SHOWN:
            rows = np.sort(np.random.default_rng(seed).choice(len(rows), SHOWN, replace=False))
        self.inputs = inputs.take(rows)
        self.programs = np.asarray(inputs.tokens.program)[rows]
        self.tasks = np.zeros(len(rows), np.int64) if test is None else test.task[rows]
        self.platform, self.part = data.platform, "pool" if test is None else "test"
        sources = {name: name for name in base.platforms} | ({data.platform: nearest} if nearest is not None else {})
        self.before = {name: base.model(source).embed(self.inputs) for name, source in sources.items()}
        self.nearest = nearest

    def after(self, base: KnowledgeBase) -> tuple[pd.DataFrame, dict[str, Any]] | None:
        """(rows as this module tells, about): about holds platform, nearest, part ("test" or "pool") and models: name -> {moved (mean),
        variance (share of it that the map keeps)}. None where nothing was known before."""
        parts, models = [], {}
        for name, x in self.before.items():
            x, y = aligned(x, base.model(name).embed(self.inputs))  # noqa: PLW2901
            flat_x, flat_y, variance = flattened(x, y)
            far = distance(x, y)
            models[name] = {"moved": float(far.mean()), "variance": variance}
            parts.append(
                pd.DataFrame(
                    {
                        "model": name, "program": self.programs, "task": self.tasks, "x_before": flat_x[:, 0], "y_before": flat_x[:, 1],
                        "x_after": flat_y[:, 0], "y_after": flat_y[:, 1], "moved": far,
                    }
                )
            )  # fmt: skip
        if not parts:
            return None
        return pd.concat(parts, ignore_index=True), {
            "platform": self.platform, "nearest": self.nearest, "part": self.part, "models": models,
        }  # fmt: skip


def write(path: Path, frame: pd.DataFrame, about: dict[str, Any]) -> None:
    import pyarrow as pa

    from tcl.programs.dataset import write_parquet

    write_parquet(pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata({b"tcl": json.dumps(about).encode()}), path)


def moved(before: Any, after: Any, inputs: Inputs) -> np.ndarray:
    """float32 (n,): how far each program moved between two models' embeddings, relative to the spread of the first."""
    return distance(*aligned(before.embed(inputs), after.embed(inputs)))


def aligned(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both float64 (n, d), centred, and y turned onto x. In float32 the turn alone would move programs by a thousandth."""
    from scipy.linalg import orthogonal_procrustes

    x, y = (a - a.mean(0) for a in (x.astype(np.float64), y.astype(np.float64)))
    return x, y @ orthogonal_procrustes(y, x)[0]


def distance(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """float32 (n,): |y - x| of each program in units of x's spread (the root of its mean squared distance from the middle)."""
    return (np.linalg.norm(y - x, axis=1) / max(float(np.sqrt((x**2).sum(1).mean())), 1e-9)).astype(np.float32)


def flattened(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """float32 (n, 2) each: both on the first two principal components of the two together; and the share of variance that is kept."""
    from sklearn.decomposition import PCA

    both = np.concatenate([x, y]).astype(np.float64)
    flat, share = np.zeros((len(both), 2), dtype=np.float32), 1.0
    if both.var() > 0:
        pca = PCA(min(2, *both.shape), svd_solver="full").fit(both)
        flat[:, : pca.n_components_] = pca.transform(both)
        share = float(pca.explained_variance_ratio_.sum())
    return flat[: len(x)], flat[len(x) :], share
