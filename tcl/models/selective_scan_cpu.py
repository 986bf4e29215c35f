"""The fast CPU kernels (`tcl.models.selective_scan_numba`) as torch functions with gradients, spread over threads.

The threads are our own. numba's `prange` would be shorter, but its GNU OpenMP layer aborts the process after a fork and its
workqueue layer when two threads enter it, and both happen in training (data loader workers, a server's threads).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch.autograd.function import once_differentiable

from tcl.models import selective_scan_numba as kernels

TILE = 128
"""Channels that the backward pass works on at a time: its scratch is 2 x length x states x TILE numbers."""

SMALL = 1024
"""Tokens below which a second thread costs more than it saves."""

_pool: ThreadPoolExecutor | None = None


def _forget_pool() -> None:
    global _pool  # noqa: PLW0603 - a child process inherits the object but not its threads
    _pool = None


os.register_at_fork(after_in_child=_forget_pool)


def _ranges(offsets: np.ndarray) -> list[tuple[int, int]]:
    """Split the sequences into ranges of about the same number of tokens, two for each of torch's threads."""
    threads = torch.get_num_threads()
    sequences, tokens = len(offsets) - 1, int(offsets[-1])
    if threads == 1 or tokens < SMALL or sequences < 2:
        return [(0, sequences)]
    parts = min(2 * threads, sequences)
    bounds = np.searchsorted(offsets, np.linspace(0, tokens, parts + 1)[1:-1])
    edges = [0, *bounds.tolist(), sequences]
    return [(a, b) for a, b in pairwise(edges) if b > a]


def _each_range(offsets: np.ndarray, work: Callable[[int, int, int], None]) -> None:
    """Call `work(i, first, last)` for each of `_ranges(offsets)`, on as many threads as torch may use."""
    global _pool  # noqa: PLW0603
    ranges = _ranges(offsets)
    if len(ranges) == 1:
        work(0, *ranges[0])
        return
    if _pool is None:
        _pool = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="scan")
    turns = iter(enumerate(ranges))

    def drain() -> None:
        for i, (first, last) in turns:
            work(i, first, last)

    others = [_pool.submit(drain) for _ in range(torch.get_num_threads() - 1)]
    drain()
    for other in others:
        other.result()


def _numpy(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().contiguous().numpy()


class CausalConv(torch.autograd.Function):
    """Depthwise causal convolution and SiLU of packed sequences.

    x: (tokens, channels); weight: (channels, width); bias: (channels,); offsets: (sequences + 1,) int64 numpy array.
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, offsets: np.ndarray) -> torch.Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        arrays = (_numpy(x), _numpy(weight.t()), _numpy(bias), offsets)
        _each_range(offsets, lambda _, first, last: kernels.conv_forward(*arrays, first, last, out.numpy()))
        ctx.save_for_backward(x, weight, bias)
        ctx.offsets = offsets
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight, bias = ctx.saved_tensors
        offsets = ctx.offsets
        parts = len(_ranges(offsets))
        dx = torch.empty_like(x)
        dweight = torch.zeros(parts, weight.shape[1], weight.shape[0], dtype=x.dtype)
        dbias = torch.zeros(parts, *bias.shape, dtype=x.dtype)
        arrays = (_numpy(grad), _numpy(x), _numpy(weight.t()), _numpy(bias), offsets)

        def work(i: int, first: int, last: int) -> None:
            kernels.conv_backward(*arrays, first, last, dx.numpy(), dweight[i].numpy(), dbias[i].numpy())

        _each_range(offsets, work)
        return dx, dweight.sum(0).t(), dbias.sum(0), None


def _scan_arrays(
    u: torch.Tensor, delta: torch.Tensor, A: torch.Tensor, B: torch.Tensor, C: torch.Tensor,
    D: torch.Tensor, z: torch.Tensor | None, bias: torch.Tensor,
) -> tuple[np.ndarray, ...]:  # fmt: skip
    """u, delta, bias, A as (states, channels), B, C, D, z as the kernels take them."""
    gate = u.new_empty((0, 0)) if z is None else z
    return tuple(_numpy(x) for x in (u, delta, bias, A.t(), B, C, D, gate))


class SelectiveScan(torch.autograd.Function):
    """The scan of packed sequences; arguments as in `selective_scan`, all of one dtype, float32 or float64."""

    @staticmethod
    def forward(
        ctx: Any, u: torch.Tensor, delta: torch.Tensor, A: torch.Tensor, B: torch.Tensor, C: torch.Tensor,
        D: torch.Tensor, z: torch.Tensor | None, delta_bias: torch.Tensor, softplus: bool, offsets: np.ndarray,
    ) -> torch.Tensor:  # fmt: skip
        out = torch.empty_like(u, memory_format=torch.contiguous_format)
        ctx.save_for_backward(u, delta, A, B, C, D, z, delta_bias)
        ctx.softplus, ctx.offsets = softplus, offsets
        arrays = _scan_arrays(u, delta, A, B, C, D, z, delta_bias)

        def work(_: int, first: int, last: int) -> None:
            kernels.scan_forward(*arrays, offsets, first, last, softplus, z is not None, out.numpy())

        _each_range(offsets, work)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        offsets = ctx.offsets
        u, delta, A, B, C, D, z, bias = ctx.saved_tensors
        arrays = _scan_arrays(u, delta, A, B, C, D, z, bias)
        parts = len(_ranges(offsets))
        states, channels = A.shape[1], A.shape[0]
        du, ddelta = torch.empty(u.shape, dtype=u.dtype), torch.empty(u.shape, dtype=u.dtype)
        dz = torch.empty(u.shape if z is not None else (0, 0), dtype=u.dtype)
        dB, dC = torch.zeros(B.shape, dtype=u.dtype), torch.zeros(C.shape, dtype=u.dtype)
        dA = torch.zeros(parts, states, channels, dtype=u.dtype)
        dD, dbias = torch.zeros(parts, channels, dtype=u.dtype), torch.zeros(parts, channels, dtype=u.dtype)
        inputs = (_numpy(grad), *arrays, offsets)

        def work(i: int, first: int, last: int) -> None:
            grads = (du, ddelta, dbias[i], dA[i], dB, dC, dD[i], dz)
            outputs = [tensor.numpy() for tensor in grads]
            for low in range(0, channels, TILE):
                high = min(low + TILE, channels)
                kernels.scan_backward(*inputs, first, last, ctx.softplus, z is not None, low, high, *outputs)

        _each_range(offsets, work)
        return du, ddelta, dA.sum(0).t(), dB, dC, dD.sum(0), None if z is None else dz, dbias.sum(0), None, None
