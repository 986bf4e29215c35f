"""Where the arguments of a measured program lie in memory: always alike, and as in a network or in any other use.

A matrix product whose rows are a page (4 KiB) apart took 2.2, 3.1 or 7.7 ms, one and the same program, depending on where in a page its
three arrays began: 0x540 bytes apart, 0x40, or all at the same place (the processor takes addresses that agree in their last 12 bits
for the same one, and such lines share one set of the cache). Left to the allocator it is chance, and another chance in every worker.

The C library gives an array of 128 KiB or more pages of its own, and so all of them begin at the same place in a page: activations and
weights of a network do, PyTorch's tensors too. Smaller ones lie side by side. That is what programs are measured with. Which pages of the
memory they get matters as well where they fit the second-level cache, and stays chance: programs are timed in turns, on other pages in
every turn.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np

ALIGNMENT = 64  # bytes; TVM's, and where a large array begins in its first page
LARGE = 128 << 10  # bytes; glibc's M_MMAP_THRESHOLD
RENEWED = 32 << 20  # bytes; more pages than these have every chance at once


def placed(arrays: Sequence[np.ndarray]) -> list[Any]:
    """TVM tensors on the CPU with the arrays' values."""
    import tvm

    small = mmap.mmap(-1, mmap.PAGESIZE + sum(_aligned(a.nbytes) for a in arrays if a.nbytes < LARGE))
    used = ALIGNMENT
    tensors = []
    for array in arrays:
        if array.nbytes < LARGE:
            memory, offset = small, used
            used += _aligned(array.nbytes)
        else:
            memory, offset = mmap.mmap(-1, ALIGNMENT + array.nbytes), ALIGNMENT
        view = np.frombuffer(memory, array.dtype, array.size, offset).reshape(array.shape)
        view[...] = array
        tensors.append(tvm.runtime.from_dlpack(view))
    return tensors


def on_other_pages(tensors: Sequence[Any]) -> list[Any]:
    """The tensors with their values, somewhere else; the same ones where they are large."""
    arrays = [np.from_dlpack(t) for t in tensors]
    return placed(arrays) if sum(a.nbytes for a in arrays) <= RENEWED else list(tensors)


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
