"""The tokens of a dataset's programs, computed once and memory-mapped.

They lie in the dataset's folder under `cache/` (or in the workspace's `cache/` where that folder cannot be written), one file
an array, named after the part files they come from. Part files never change, so a cache is never stale; when programs were
added, only the new parts are read.
"""

from __future__ import annotations

import json
import os
import shutil
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.lib.format import open_memmap

from tcl.errors import UserError
from tcl.features.tokenizer import Tokens, tokenize
from tcl.features.vocabulary import LENGTH, NUMBERS, VERSION
from tcl.machine import busy
from tcl.programs.dataset import Dataset
from tcl.progress import Progress
from tcl.workspace import workspace

_ARRAYS = {
    "kind": (np.uint8, (LENGTH,)), "numbers": (np.float16, (LENGTH, len(NUMBERS))), "length": (np.int16, ()), "program": (np.int64, ()),
}  # fmt: skip
_BATCH = 32768

__all__ = ["Tokens", "rows_of", "tokenize", "tokens_of"]


def tokens_of(dataset: Dataset, programs: np.ndarray | None = None, progress: Progress | None = None) -> Tokens:
    """The tokens of the dataset's programs, memory-mapped, in the order of `dataset.programs()`.

    With `programs` (int64 (n,) ids): those programs, in that order and in memory. Raises UserError for an id that the dataset
    does not hold.
    """
    tokens = _cached(dataset, progress or Progress())
    if programs is None:
        return tokens
    return tokens.take(rows_of(np.asarray(tokens.program), programs))


def rows_of(known: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Where each of `wanted` (int64 (m,)) is in `known` (int64 (n,), distinct): int64 (m,)."""
    wanted = np.asarray(wanted, dtype=np.int64)
    if not len(known):
        rows = np.zeros(0, dtype=np.int64)
        missing = len(wanted) > 0
    else:
        order = np.argsort(known, kind="stable")
        rows = order[np.minimum(np.searchsorted(known, wanted, sorter=order), len(known) - 1)]
        missing = bool((known[rows] != wanted).any())
    if missing:
        raise UserError("Some programs are not in the dataset.", hint="Was the selection made from another one?")
    return rows


def _cached(dataset: Dataset, progress: Progress) -> Tokens:
    files = [part["file"] for part in dataset.manifest["tables"]["programs"]]
    if not files:
        arrays = {name: np.zeros((0, *shape), dtype=dtype) for name, (dtype, shape) in _ARRAYS.items()}
        return Tokens(**arrays)
    key = _key(files)
    for folder in (dataset.path / "cache", workspace() / "cache"):
        if (folder / f"tokens-{key}" / "about.json").exists():
            return _open(folder / f"tokens-{key}")
    target = _folder(dataset) / f"tokens-{key}"
    earlier = _earlier(target.parent, files)
    with busy():
        _compute(dataset, files, target, earlier, progress)
    if earlier is not None:
        shutil.rmtree(earlier, ignore_errors=True)  # whoever has it mapped keeps reading it
    return _open(target)


def _key(files: list[str]) -> str:
    return blake2b(json.dumps([VERSION, LENGTH, files]).encode(), digest_size=8).hexdigest()


def _folder(dataset: Dataset) -> Path:
    folder = dataset.path / "cache"
    try:
        folder.mkdir(exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    folder = workspace() / "cache"
    folder.mkdir(exist_ok=True)
    return folder


def _earlier(folder: Path, files: list[str]) -> Path | None:
    """The cache of the longest true prefix of `files`, if there is one."""
    for n in range(len(files) - 1, 0, -1):
        path = folder / f"tokens-{_key(files[:n])}"
        if (path / "about.json").exists():
            return path
    return None


def _open(folder: Path) -> Tokens:
    arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in _ARRAYS}
    return Tokens(**arrays, cut=json.loads((folder / "about.json").read_text())["cut"])


def _compute(dataset: Dataset, files: list[str], target: Path, earlier: Path | None, progress: Progress) -> None:
    kept = json.loads((earlier / "about.json").read_text()) if earlier else {"rows": 0, "cut": 0, "files": []}
    new = files[len(kept["files"]) :]
    total = kept["rows"] + sum(pq.read_metadata(dataset.path / f).num_rows for f in new)
    formats = dict(zip(*(dataset.table("tasks", ["task", "format"])[c].to_pylist() for c in ("task", "format")), strict=True))
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    try:
        arrays = {name: open_memmap(draft / f"{name}.npy", "w+", dtype, (total, *shape)) for name, (dtype, shape) in _ARRAYS.items()}
        if earlier:
            for name, array in arrays.items():
                array[: kept["rows"]] = np.load(earlier / f"{name}.npy", mmap_mode="r")
        at, cut = kept["rows"], kept["cut"]
        for file in new:
            for batch in pq.ParquetFile(dataset.path / file).iter_batches(_BATCH, columns=["program", "task", "schedule"]):
                tokens = _tokens_of_batch(batch, formats)
                here = slice(at, at + len(tokens))
                arrays["kind"][here], arrays["numbers"][here], arrays["length"][here] = tokens.kind, tokens.numbers, tokens.length
                arrays["program"][here] = batch["program"].to_numpy()
                at, cut = at + len(tokens), cut + tokens.cut
                progress.step(at, total, "tokens")
                progress.check()
        for array in arrays.values():
            array.flush()
        (draft / "about.json").write_text(json.dumps({"rows": total, "cut": cut, "files": files, "version": VERSION}))
        if not target.exists():  # another process may have been faster
            draft.replace(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _tokens_of_batch(batch: pa.RecordBatch, formats: dict[int, str]) -> Tokens:
    tasks, inverse = np.unique(batch["task"].to_numpy(), return_inverse=True)
    try:
        names = np.array([formats[t] for t in tasks.tolist()], dtype=object)
    except KeyError:
        raise UserError("A program belongs to a task that the dataset does not hold.", hint="Run `tcl data validate`.") from None
    each = names[inverse] if len(set(names)) > 1 else str(names[0])
    return tokenize(batch["schedule"].to_pylist(), each)
