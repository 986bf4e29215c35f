"""One plain vector a program: what trees, the MLP, the map and the samplers read.

Our reconstruction of "program features" for models without a sequence: the numbers of the first splits in order (programs of
one task have the same splits in the same places), sums over tilings by role, and how often each kind of primitive occurs.
"""

from __future__ import annotations

import numpy as np

from tcl.features.context import TASK_FEATURES, task_features
from tcl.features.tokens import Tokens, rows_of, tokens_of
from tcl.features.vocabulary import ALIGN, EXTENT, FACTOR, FACTORS, KIND, KINDS, NUMBERS, OUTER, REDUCTION, ROLE, SPATIAL, VALUE
from tcl.programs.dataset import Dataset

SPLITS = 12
"""Splits whose numbers are kept one by one."""
_SPLIT_NUMBERS = ("extent", "outer", "factor1", "factor2", "factor3", "factor4", "align")
_SPLIT_COLUMNS = [NUMBERS.index(name) for name in _SPLIT_NUMBERS]
VALUED = ("compute_at", "reverse_compute_at", "pragma_unroll", "vectorize", "parallel", "cooperative_fetch", "annotate", "knob")
SIZED = ("block_x", "vthread", "thread_x", "parallel", "vectorize", "fuse")
_PER_ROLE = ("outer", "factor1", "factor2", "factor3", "factor4")
FLAT_FEATURES = (
    *(f"split{i}_{name}" for i in range(SPLITS) for name in _SPLIT_NUMBERS),
    *(f"{role}_{name}" for role in ("spatial", "reduction") for name in _PER_ROLE),
    *(f"value_{name}_{i}" for name in VALUED for i in (0, 1)),
    *(f"{what}_{name}" for name in SIZED for what in ("extent", "align")),
    *(f"count_{name}" for name in KINDS[1:]),
)
_BATCH = 65536


def flat_of(tokens: Tokens) -> np.ndarray:
    """float32 (n, len(FLAT_FEATURES)) of n programs, about 0.2 million programs a second."""
    out = np.empty((len(tokens), len(FLAT_FEATURES)), dtype=np.float32)
    for start in range(0, len(tokens), _BATCH):
        stop = min(start + _BATCH, len(tokens))
        _fill(out[start:stop], np.asarray(tokens.kind[start:stop]), np.asarray(tokens.numbers[start:stop], dtype=np.float32))
    return out


def flat_features(dataset: Dataset, programs: np.ndarray | None = None, tasks: bool = True) -> np.ndarray:
    """float32 (n, D) of the dataset's programs (in its order), or of `programs` (int64 (n,) ids, in their order).

    D = len(FLAT_FEATURES), and with `tasks` len(TASK_FEATURES) more: the numbers of each program's task.
    """
    tokens = tokens_of(dataset, programs)
    flat = flat_of(tokens)
    if not tasks:
        return flat
    return np.concatenate([flat, task_features_of(dataset, np.asarray(tokens.program))], axis=1)


def task_features_of(dataset: Dataset, programs: np.ndarray) -> np.ndarray:
    """float32 (n, len(TASK_FEATURES)): the task numbers of each of `programs` (int64 (n,))."""
    known = dataset.task_list()
    if not known:
        return np.zeros((len(programs), len(TASK_FEATURES)), dtype=np.float32)
    table = dataset.table("programs", ["program", "task"])
    task = table["task"].to_numpy()[rows_of(table["program"].to_numpy(), programs)]
    return task_features(known)[rows_of(np.array([t.id for t in known], dtype=np.int64), task)]


def _fill(out: np.ndarray, kind: np.ndarray, numbers: np.ndarray) -> None:
    n = len(kind)
    split = kind == KIND["split"]
    order = np.argsort(~split, axis=1, kind="stable")[:, :SPLITS]  # the splits first, in order
    taken = numbers[np.arange(n)[:, None], order][:, :, _SPLIT_COLUMNS]
    taken *= np.take_along_axis(split, order, axis=1)[:, :, None]
    at = SPLITS * len(_SPLIT_NUMBERS)
    out[:, :at] = taken.reshape(n, at)
    for role in (SPATIAL, REDUCTION):
        chosen = split & (numbers[:, :, ROLE] == role)
        out[:, at] = (numbers[:, :, OUTER] * chosen).sum(1)
        out[:, at + 1 : at + 1 + FACTORS] = np.einsum("nlf,nl->nf", numbers[:, :, FACTOR : FACTOR + FACTORS], chosen.astype(np.float32))
        at += 1 + FACTORS
    for name in VALUED:
        values = numbers[:, :, VALUE] * (kind == KIND[name])
        out[:, at] = values.sum(1)
        out[:, at + 1] = values.max(1, initial=0)
        at += 2
    for name in SIZED:
        for column in (EXTENT, ALIGN):
            out[:, at] = (numbers[:, :, column] * (kind == KIND[name])).max(1, initial=0)
            at += 1
    cells = np.arange(n)[:, None] * len(KINDS) + kind
    out[:, at:] = np.bincount(cells.ravel(), minlength=n * len(KINDS)).reshape(n, len(KINDS))[:, 1:]
