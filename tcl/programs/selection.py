"""A selection: which programs of a pool a sampler picked, in which round, with which scores. Kept beside the dataset."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from tcl.errors import UserError
from tcl.programs.dataset import Dataset, write_parquet
from tcl.workspace import inside

COLUMNS = ("program", "round")
"""Columns every selection has; samplers add score columns (representativeness, diversity, uncertainty, score)."""


def save_selection(dataset: Dataset, name: str, picked: pd.DataFrame, about: dict[str, Any]) -> None:
    """Store `picked` (columns program, round, and scores) as `name`; `about` says sampler, budget, seed (plain JSON)."""
    missing = set(COLUMNS) - set(picked.columns)
    if missing:
        raise ValueError(f"a selection needs the columns {sorted(missing)}")
    folder = dataset.path / "selections"
    folder.mkdir(exist_ok=True)
    table = pa.Table.from_pandas(picked, preserve_index=False)
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), b"tcl": json.dumps(about).encode()})
    write_parquet(table, inside(folder, f"{name}.parquet"))


def load_selection(dataset: Dataset, name: str) -> tuple[pd.DataFrame, dict[str, Any]]:
    """The rows and what is known about them."""
    path = inside(dataset.path / "selections", f"{name}.parquet")
    if not path.exists():
        known = ", ".join(list_selections(dataset)) or "none yet"
        raise UserError(f"{dataset.path} has no selection {name!r} (it has: {known}).")
    table = pq.read_table(path)
    return table.to_pandas(), json.loads((table.schema.metadata or {}).get(b"tcl", b"{}"))


def list_selections(dataset: Dataset) -> list[str]:
    return sorted(p.stem for p in (dataset.path / "selections").glob("*.parquet") if not p.name.startswith("."))


def measured_programs(dataset: Dataset) -> np.ndarray:
    """Sorted ids (int64) of the programs with at least one measurement: what was really sampled."""
    return np.unique(dataset.table("measurements", ["program"])["program"].to_numpy())
