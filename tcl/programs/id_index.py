"""Which ids a table holds already, for tables of any size: sorted runs on disk, mapped into memory, beside a few in memory.

A dataset of 52 million rows has 416 MB of ids a table. A Python set of them would take gigabytes; here the operating system keeps
what is used of the mapped files, and a lookup is a binary search in each run. The files under `.index/` can be deleted at
any time: they are made again from the Parquet files.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

LOOSE_RUNS = 16
"""More sorted arrays in memory than this are merged into one."""


class IdIndex:
    """A growing set of int64 ids. `add` in memory, `attach` a run on disk, `contains` asks both."""

    def __init__(self) -> None:
        self._mapped: list[np.ndarray] = []
        self._loose: list[np.ndarray] = []

    def add(self, ids: np.ndarray) -> None:
        """Add ids; any order, repeats allowed."""
        if len(ids):
            self._loose.append(np.unique(ids))
        if len(self._loose) > LOOSE_RUNS:
            self._loose = [np.unique(np.concatenate(self._loose))]

    def attach(self, run: np.ndarray) -> None:
        """Add a sorted array, as it is (a memory map stays one)."""
        if len(run):
            self._mapped.append(run)

    def take_loose(self) -> np.ndarray:
        """The ids added in memory, sorted; they are in the index no longer until `attach` brings them back."""
        loose = np.unique(np.concatenate(self._loose)) if self._loose else np.empty(0, np.int64)
        self._loose = []
        return loose

    def contains(self, ids: np.ndarray) -> np.ndarray:
        """For each of `ids` (int64) whether it is known; a boolean array of the same length."""
        order = np.argsort(ids, kind="stable")
        wanted = ids[order]  # sorted, so that neighbouring lookups touch neighbouring pages
        found = np.zeros(len(ids), dtype=bool)
        for run in (*self._mapped, *self._loose):
            place = np.searchsorted(run, wanted)
            place[place == len(run)] = 0
            found |= run[place] == wanted
        result = np.empty(len(ids), dtype=bool)
        result[order] = found
        return result


def save_run(path: Path, ids: np.ndarray) -> np.ndarray:
    """Write sorted ids to `path` and return them mapped; where that cannot be (a read-only folder), return them as they are."""
    try:
        path.parent.mkdir(exist_ok=True)
        draft = path.with_name(f".{path.name}")
        with draft.open("wb") as file:
            np.save(file, ids)
        draft.replace(path)
        return np.load(path, mmap_mode="r")
    except OSError:
        return ids


def load_run(path: Path) -> np.ndarray | None:
    """The ids saved at `path`, mapped; None where there are none."""
    try:
        return np.load(path, mmap_mode="r") if path.stat().st_size else None
    except (OSError, ValueError):
        return None
