"""The space in which samplers measure distance: standardised features on their principal components."""

from __future__ import annotations

import numpy as np

DIMENSIONS = 32
_FIT_ROWS = 50_000
_CHUNK = 65_536


def embed(vectors: np.ndarray, dimensions: int = DIMENSIONS) -> np.ndarray:
    """float32 (n, d) -> float32 (n, p <= `dimensions`): zero mean and unit variance per feature, then principal components.

    Constant features carry no information and are dropped. Distances are kept up to the variance left out. The components
    come from at most 50,000 evenly spaced rows, rows are projected in chunks: memory beyond the result stays below 100 MB.
    Deterministic. Features that are NaN or infinite count as the feature's mean.
    """
    n = len(vectors)
    if n == 0:
        return np.zeros((0, 1), np.float32)
    sample = np.asarray(vectors[:: max(1, n // _FIT_ROWS)], dtype=np.float64)
    sample = np.where(np.isfinite(sample), sample, np.nan)
    with np.errstate(all="ignore"):
        known = np.isfinite(sample).sum(axis=0)
        mean = np.where(known > 0, np.nansum(sample, axis=0) / np.maximum(known, 1), 0.0)
        centred = np.where(np.isfinite(sample), sample - mean, 0.0)
        scale = np.sqrt((centred**2).mean(axis=0))
    keep = np.flatnonzero(scale > 1e-9 * np.maximum(np.abs(mean), 1.0))
    if len(keep) == 0:
        return np.zeros((n, 1), np.float32)
    mean, scale = mean[keep], scale[keep]
    centred = centred[:, keep] / scale
    if len(keep) > dimensions:
        _, axes = np.linalg.eigh(centred.T @ centred)
        projection = axes[:, ::-1][:, :dimensions].astype(np.float32)
    else:
        projection = None
    result = np.empty((n, min(len(keep), dimensions)), np.float32)
    for start in range(0, n, _CHUNK):
        part = (np.asarray(vectors[start : start + _CHUNK])[:, keep] - mean.astype(np.float32)) / scale.astype(np.float32)
        part = np.where(np.isfinite(part), part, np.float32(0)).astype(np.float32, copy=False)
        result[start : start + _CHUNK] = part if projection is None else part @ projection
    return result


def squared_distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """float32 (n, p), (m, p) -> float32 (n, m), never negative."""
    squares = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1)[None, :] - 2.0 * (a @ b.T)
    return np.maximum(squares, 0.0)
