"""A flat map of programs: UMAP of their feature vectors, kept beside the dataset so that it looks the same tomorrow.

UMAP (McInnes et al., arXiv 1802.03426) keeps neighbours together; it does not keep distances, sizes of clusters or empty space
meaningful. `Map.about["trustworthiness"]` says how far the neighbours on the map are neighbours in truth (Venna and Kaski, 2001;
1 is best, a random map has about 0.5).
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from tcl.errors import UserError
from tcl.programs.dataset import Dataset, write_parquet
from tcl.programs.types import content_id, format_id, parse_id
from tcl.progress import Progress
from tcl.workspace import workspace

EVERYTHING = "all"
LIMIT = 250_000
"""Programs on one map unless the caller says otherwise; a larger scope is sampled, and the map says "n of m"."""
COMPONENTS = 32
"""Principal components that UMAP sees: enough for > 95 % of the variance of the flat features, and neighbours are found sooner."""
NEIGHBOURS = 15
EPOCHS = 200
"""UMAP's own default for more than 10,000 points; its 500 for fewer moved trustworthiness by 0.001 only (9,352 programs)."""
CHUNK = 4096
TRUST_POINTS = 2_000
"""Trustworthiness compares all pairs: above this many points it is computed on a seeded sample, and `about` says so."""


@dataclass(frozen=True)
class Map:
    """Coordinates of programs and how they came about.

    coordinates: columns program (int64), x, y (float32). about: scope, n (points), of (programs in the scope when it was made),
    seed, trustworthiness, trust_points, trust_neighbours, variance (share that the principal components keep), seconds,
    dataset_version, vectors (what was mapped).
    """

    coordinates: pd.DataFrame
    about: dict[str, Any]


def network_scope(network: str) -> str:
    return f"network:{network}"


def task_scope(task: int) -> str:
    """A task, and thereby each of its assignments: a platform changes the colours of a map, not the places on it."""
    return f"task:{format_id(task)}"


def thinned(scope: str, most: int) -> str:
    """A part of a scope that is too large to look at as a whole: `most` of its programs, drawn at random, always the same."""
    return f"{scope}~{most}"


def whole(scope: str) -> str:
    """The scope that a thinned one is a part of; any other as it is."""
    return _split(scope)[0]


def _split(scope: str) -> tuple[str, int | None]:
    name, mark, most = scope.rpartition("~")
    return (name, int(most)) if mark and most.isdigit() else (scope, None)


def drawn(of: int, n: int, seed: int = 0) -> np.ndarray:
    """n of `of` rows at random, sorted, int (n,). Fewer are always a part of more: what is thinned lies on the map of more programs."""
    return np.sort(np.random.default_rng(seed).permutation(of)[:n])


def scope_tasks(dataset: Dataset, scope: str) -> np.ndarray | None:
    """Ids (int64) of the scope's tasks; None for everything."""
    scope = whole(scope)
    if scope == EVERYTHING:
        return None
    kind, _, name = scope.partition(":")
    tasks = dataset.tasks()
    if kind == "network" and name:
        chosen = tasks["task"][[name in uses for uses in tasks["networks"]]]
        known = sorted({n for uses in tasks["networks"] for n in uses})
        if chosen.empty:
            raise UserError(f"{dataset.path} holds no task of a network {name!r}.", hint=f"Networks: {', '.join(known) or 'none'}.")
        return chosen.to_numpy()
    if kind == "task" and name:
        task = parse_id(name)
        if task not in set(tasks["task"]):
            raise UserError(f"{dataset.path} holds no task {name}.", hint="`tcl data stats` lists the tasks.")
        return np.array([task], dtype=np.int64)
    raise UserError(f"{scope!r} is not a scope.", hint="Use 'all', 'network:NAME' or 'task:ID'.")


def scope_programs(dataset: Dataset, scope: str) -> pd.DataFrame:
    """program, task (int64) of every program in the scope, measured or not, in the dataset's order."""
    programs, most = dataset.programs(["program", "task"], tasks=scope_tasks(dataset, scope)), _split(scope)[1]
    return programs if most is None or most >= len(programs) else programs.iloc[drawn(len(programs), most)].reset_index(drop=True)


def load_map(dataset: Dataset, scope: str = EVERYTHING) -> Map | None:
    """The stored map (of the whole scope, where this one is thinned); None when none was made yet."""
    for folder in _folders(dataset):
        path = folder / _file(whole(scope))
        if path.exists():
            table = pq.read_table(path)
            return Map(table.to_pandas(), json.loads((table.schema.metadata or {}).get(b"tcl", b"{}")))
    return None


def make_map(dataset: Dataset, scope: str = EVERYTHING, *, seed: int = 0, limit: int = LIMIT, progress: Progress | None = None) -> Map:
    """Compute the map of a scope and store it (beside the dataset, or in the workspace where that cannot be written).

    The same dataset, scope and seed give the same map. Raises UserError for a scope that is empty or unknown.
    """
    from tcl.features.flat import flat_features

    progress = progress or Progress()
    began = time.monotonic()
    programs = scope_programs(dataset, scope)
    if programs.empty:
        raise UserError(f"{dataset.path} holds no programs in the scope {scope!r}.", hint="Import or collect some first.")
    n, of = min(len(programs), limit), len(programs)
    ids = programs["program"].to_numpy()
    if n < of:
        ids = ids[drawn(of, n, seed)]
    _phase(progress, 0, f"reading {n:,} programs")
    several_tasks = programs["task"].nunique() > 1
    vectors = flat_features(dataset, ids, tasks=several_tasks)
    reduced, variance = _components(vectors, seed)
    coordinates = _umap(reduced, seed, progress)
    _phase(progress, 3, "checking the map's neighbours")
    trust, points, k = trustworthiness(reduced, coordinates, seed)
    about = {
        "scope": scope, "n": n, "of": of, "seed": seed, "trustworthiness": trust, "trust_points": points, "trust_neighbours": k,
        "variance": variance, "seconds": round(time.monotonic() - began, 2), "dataset_version": dataset.version,
        "vectors": "flat features" + (" and task numbers" if several_tasks else ""),
    }  # fmt: skip
    made = Map(pd.DataFrame({"program": ids, "x": coordinates[:, 0], "y": coordinates[:, 1]}), about)
    store_map(dataset, scope, made)
    _phase(progress, 4, "stored")
    progress.event("map", **about)
    return made


def trustworthiness(vectors: np.ndarray, coordinates: np.ndarray, seed: int = 0) -> tuple[float | None, int, int]:
    """(value, points compared, neighbours) of vectors (n, d) and their places (n, 2); None for fewer than four points."""
    from sklearn.manifold import trustworthiness as measure

    n = len(vectors)
    rows = np.arange(n) if n <= TRUST_POINTS else np.sort(np.random.default_rng(seed).choice(n, TRUST_POINTS, replace=False))
    k = min(NEIGHBOURS, (len(rows) - 1) // 2)
    if k < 1:
        return None, len(rows), 0
    return float(measure(vectors[rows], coordinates[rows], n_neighbors=k)), len(rows), k


def _components(vectors: np.ndarray, seed: int) -> tuple[np.ndarray, float]:
    """Standardised vectors on their first principal components, float32 (n, ≤ COMPONENTS), and the share of variance kept."""
    from sklearn.decomposition import PCA

    spread = vectors.std(axis=0)
    alive = spread > 1e-6
    if len(vectors) < 2 or not alive.any():
        return np.zeros((len(vectors), 1), dtype=np.float32), 1.0
    scaled = (vectors[:, alive] - vectors[:, alive].mean(axis=0)) / spread[alive]
    # A rare primitive must not outweigh the rest: one program in a thousand with it would lie 30 standard deviations out.
    scaled = np.clip(scaled, -5, 5)
    pca = PCA(min(COMPONENTS, *scaled.shape), svd_solver="randomized" if len(scaled) > 2_000 else "full", random_state=seed)
    reduced = pca.fit_transform(scaled).astype(np.float32)
    return reduced, float(pca.explained_variance_ratio_.sum())


def nearest(points: np.ndarray, k: int, progress: Progress | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The k nearest of each of n points, itself first: rows int32 (n, k), distances float32 (n, k).

    Exact, in chunks that can be watched and stopped. At 120,000 points of 32 numbers it took 39 s on two cores, no longer than
    an approximate index (pynndescent, compilation included).
    """
    from sklearn.neighbors import NearestNeighbors

    index = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(points)
    rows, distances = np.empty((len(points), k), dtype=np.int32), np.empty((len(points), k), dtype=np.float32)
    for start in range(0, len(points), CHUNK):
        stop = min(start + CHUNK, len(points))
        distances[start:stop], rows[start:stop] = index.kneighbors(points[start:stop])
        if progress is not None:
            _phase(progress, 1 + stop / len(points), f"finding neighbours of {stop:,} of {len(points):,} programs")
    return rows, distances


def _umap(reduced: np.ndarray, seed: int, progress: Progress) -> np.ndarray:
    """float32 (n, 2). A handful of points is laid out by their first two components: UMAP needs neighbours."""
    n = len(reduced)
    if n < 2 * NEIGHBOURS:
        flat = np.zeros((n, 2), dtype=np.float32)
        flat[:, : min(2, reduced.shape[1])] = reduced[:, :2]
        return flat
    import warnings

    from umap import UMAP

    # Two programs may have equal vectors; a grain of noise keeps such points from forming a knot that no layout can show.
    points = reduced + np.random.default_rng(seed).normal(0, 1e-3, reduced.shape).astype(np.float32)
    neighbours = nearest(points, NEIGHBOURS, progress)
    _phase(progress, 2, f"laying out {n:,} programs (UMAP)")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a seed means one thread, and a map never places new points: both wanted
        layout = UMAP(n_neighbors=NEIGHBOURS, min_dist=0.1, n_epochs=EPOCHS, init="pca", random_state=seed, precomputed_knn=neighbours)
        return np.asarray(layout.fit_transform(points), dtype=np.float32)


def _phase(progress: Progress, done: float, message: str) -> None:
    progress.step(done, 4, message)
    progress.check()


def _file(scope: str) -> str:
    """A name that a person recognises and that no network's name can break."""
    plain = "".join(c if c.isalnum() else "-" for c in scope)[:60]
    return f"{plain}-{format_id(content_id(scope))[:6]}.parquet"


def _folders(dataset: Dataset) -> list[Path]:
    mirror = workspace() / "cache" / "maps" / format_id(content_id(str(dataset.path.resolve())))
    return [mirror, dataset.path / "maps"]


def store_map(dataset: Dataset, scope: str, made: Map) -> None:
    """Keep a map beside the dataset, or in the workspace where that cannot be written."""
    table = pa.Table.from_pandas(made.coordinates, preserve_index=False)
    table = table.replace_schema_metadata({b"tcl": json.dumps(made.about).encode()})
    mirror, beside = _folders(dataset)
    for folder in (beside, mirror):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if os.access(folder, os.W_OK):
                write_parquet(table, folder / _file(scope))
                if folder is beside:
                    (mirror / _file(scope)).unlink(missing_ok=True)
                return
        except OSError as error:
            if folder is mirror:
                raise UserError(f"The map cannot be stored: {error}.") from None
