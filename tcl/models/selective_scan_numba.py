"""The fast CPU kernels behind `tcl.models.selective_scan`: causal convolution and selective scan, forward and backward.

Everything is laid out tokens first, channels last: `(tokens, channels)`, the sequences one behind the other and their
bounds in `offsets` (sequences + 1). Linear layers produce this layout, so nothing is ever transposed; neighbouring
channels are neighbouring SIMD lanes, so the sum over the states needs no reduction across lanes; and padding costs
nothing, because it is not there.

Two things make the kernels fast. The exponential is a polynomial that LLVM vectorises: numba from PyPI comes without
Intel's SVML, and a call of libm per element would take most of the time. And the backward pass keeps no states between
the passes: it computes those of one sequence again, in a scratch that fits the second-level cache.

The kernels release the GIL and work on the sequences first..last; `tcl.models.selective_scan_cpu` spreads them over threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import types
from numba.extending import overload

_POLY = [np.float32(math.log(2) ** k / math.factorial(k)) for k in range(7)]
_P0, _P1, _P2, _P3, _P4, _P5, _P6 = _POLY
_LOG2E, _HALF, _LOWEST = np.float32(math.log2(math.e)), np.float32(0.5), np.float32(-126.0)
_BIAS, _MANTISSA = np.int32(127), np.int32(23)
_Q = [np.float32(2.0 / (2 * k + 1)) for k in range(8)]
_Q0, _Q1, _Q2, _Q3, _Q4, _Q5, _Q6, _Q7 = _Q
_ZERO, _ONE, _TWO = np.float32(0), np.float32(1), np.float32(2)


def _jit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """`numba.njit` that keeps its machine code on disk where it can, and compiles anew in each process where it cannot."""

    def wrap(function: Callable[..., Any]) -> Any:
        try:
            return numba.njit(cache=True, **options)(function)
        except RuntimeError:  # neither this folder nor the user's cache folder can be written
            return numba.njit(**options)(function)

    return wrap


def _exp(x: Any) -> Any:
    """exp(x) for x <= 0; below exp(-87) it returns about 1e-38 instead of a denormal."""
    return math.exp(x)


@overload(_exp, jit_options={"fastmath": {"contract"}})
def _exp_overload(x):  # type: ignore[no-untyped-def]
    if x != types.float32:
        return lambda x: math.exp(x)  # noqa: PLW0108 - numba overloads need a Python function

    def exp32(x):  # type: ignore[no-untyped-def]
        # exp(x) = 2^k * 2^f with k an integer, f in [-1/2, 1/2]; a degree-6 Taylor polynomial is exact to 2e-7 there
        y = max(x * _LOG2E, _LOWEST)
        k = np.int32(y - _HALF)  # the conversion truncates towards zero, so this rounds y <= 0 to the nearest
        f = y - np.float32(k)
        p = ((((((_P6 * f + _P5) * f + _P4) * f + _P3) * f + _P2) * f) + _P1) * f + _P0
        return p * np.int32((k + _BIAS) << _MANTISSA).view(np.float32)

    return exp32


def _softplus(x: Any) -> Any:
    """log(1 + exp(x)), exact in the relative sense for very negative x too."""
    return max(x, 0) + math.log1p(math.exp(-abs(x)))


@overload(_softplus, jit_options={"fastmath": {"contract"}})
def _softplus_overload(x):  # type: ignore[no-untyped-def]
    if x != types.float32:
        return lambda x: max(x, 0.0) + math.log1p(math.exp(-abs(x)))

    def softplus32(x):  # type: ignore[no-untyped-def]
        # log(1 + w) = 2 artanh(w / (2 + w)), whose argument is at most 1/3, so that eight terms of the series suffice
        w = _exp(-abs(x))
        s = w / (_TWO + w)
        q = s * s
        p = ((((((_Q7 * q + _Q6) * q + _Q5) * q + _Q4) * q + _Q3) * q + _Q2) * q + _Q1) * q + _Q0
        return max(x, _ZERO) + s * p

    return softplus32


def _sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)) without overflow."""
    return 1 / (1 + math.exp(-x))


@overload(_sigmoid, jit_options={"fastmath": {"contract"}})
def _sigmoid_overload(x):  # type: ignore[no-untyped-def]
    one = _ONE if x == types.float32 else 1.0

    def sigmoid(x):  # type: ignore[no-untyped-def]
        w = _exp(-abs(x))
        return (one if x >= 0 else w) / (one + w)

    return sigmoid


# "reassoc" lets LLVM split the sums over channels (dB, dC) into lanes; "nnan" and "ninf" are left out, so that a NaN in
# the input stays a NaN in the output.
_FAST = {"nogil": True, "error_model": "numpy", "fastmath": {"contract", "nsz", "arcp", "reassoc"}}


@_jit(**_FAST)
def conv_forward(x, weight, bias, offsets, first, last, out):  # type: ignore[no-untyped-def]
    """out[t] = silu(bias + sum_k weight[k] * x[t - width + 1 + k]), never across the start of a sequence."""
    width, channels = weight.shape
    acc = np.empty(channels, x.dtype)
    for s in range(first, last):
        start = offsets[s]
        for t in range(start, offsets[s + 1]):
            acc[:] = bias
            for k in range(max(0, width - 1 - (t - start)), width):
                row = x[t - width + 1 + k]
                w = weight[k]
                for e in range(channels):
                    acc[e] += w[e] * row[e]
            o = out[t]
            for e in range(channels):
                o[e] = acc[e] * _sigmoid(acc[e])


@_jit(**_FAST)
def conv_backward(grad, x, weight, bias, offsets, first, last, dx, dweight, dbias):  # type: ignore[no-untyped-def]
    width, channels = weight.shape
    acc = np.empty(channels, x.dtype)
    one = x.dtype.type(1)
    for s in range(first, last):
        start = offsets[s]
        for t in range(start, offsets[s + 1]):
            dx[t] = 0
            acc[:] = bias
            tap = max(0, width - 1 - (t - start))
            for k in range(tap, width):
                row = x[t - width + 1 + k]
                w = weight[k]
                for e in range(channels):
                    acc[e] += w[e] * row[e]
            g = grad[t]
            for e in range(channels):
                sig = _sigmoid(acc[e])
                v = g[e] * sig * (one + acc[e] * (one - sig))
                acc[e] = v
                dbias[e] += v
            for k in range(tap, width):
                row = x[t - width + 1 + k]
                drow = dx[t - width + 1 + k]
                w = weight[k]
                dw = dweight[k]
                for e in range(channels):
                    dw[e] += acc[e] * row[e]
                    drow[e] += acc[e] * w[e]


@_jit(**_FAST)
def scan_forward(u, delta, bias, A, B, C, D, z, offsets, first, last, softplus, gate, out):  # type: ignore[no-untyped-def]
    """A is (states, channels) here; see `selective_scan` for the rest."""
    states, channels = A.shape
    h = np.empty((states, channels), u.dtype)
    dt = np.empty(channels, u.dtype)
    v = np.empty(channels, u.dtype)
    acc = np.empty(channels, u.dtype)
    for s in range(first, last):
        h[:] = 0
        for t in range(offsets[s], offsets[s + 1]):
            ut = u[t]
            dt[:] = delta[t]
            for e in range(channels):
                dt[e] += bias[e]
            if softplus:
                for e in range(channels):
                    dt[e] = _softplus(dt[e])
            for e in range(channels):
                v[e] = dt[e] * ut[e]
                acc[e] = D[e] * ut[e]
            for n in range(states):
                b = B[t, n]
                c = C[t, n]
                a = A[n]
                hn = h[n]
                for e in range(channels):
                    new = _exp(dt[e] * a[e]) * hn[e] + v[e] * b
                    hn[e] = new
                    acc[e] += new * c
            o = out[t]
            if gate:
                zt = z[t]
                for e in range(channels):
                    o[e] = acc[e] * zt[e] * _sigmoid(zt[e])
            else:
                for e in range(channels):
                    o[e] = acc[e]


@_jit(**_FAST)
def scan_backward(  # type: ignore[no-untyped-def]
    grad, u, delta, bias, A, B, C, D, z, offsets, first, last, softplus, gate, low, high,
    du, ddelta, dbias, dA, dB, dC, dD, dz,
):  # fmt: skip
    """Gradients of `scan_forward` for the channels low..high; dbias, dA, dB, dC, dD are added to.

    Many short loops: beyond eight checks that the arrays of a loop do not overlap, LLVM no longer vectorises it.
    """
    states = A.shape[0]
    width = high - low
    length = 0
    for s in range(first, last):
        length = max(length, offsets[s + 1] - offsets[s])
    one = u.dtype.type(1)
    hs = np.zeros((length + 1, states, width), u.dtype)  # hs[i + 1]: the states after step i; hs[0] = 0
    decays = np.empty((length, states, width), u.dtype)
    dts = np.empty((length, width), u.dtype)
    ys = np.empty((length, width), u.dtype)
    here_D = D[low:high]
    here_dD = dD[low:high]
    here_bias = bias[low:high]
    here_dbias = dbias[low:high]
    carry = np.empty((states, width), u.dtype)  # the gradient that reaches a step's states from the step after it
    v = np.empty(width, u.dtype)
    g = np.empty(width, u.dtype)
    ddt = np.empty(width, u.dtype)
    dv = np.empty(width, u.dtype)
    for s in range(first, last):
        start = offsets[s]
        steps = offsets[s + 1] - start
        for i in range(steps):
            ut = u[start + i, low:high]
            dt = dts[i]
            y = ys[i]
            raw = delta[start + i, low:high]
            for e in range(width):
                dt[e] = raw[e] + here_bias[e]
            if softplus:
                for e in range(width):
                    dt[e] = _softplus(dt[e])
            for e in range(width):
                v[e] = dt[e] * ut[e]
            for e in range(width):
                y[e] = here_D[e] * ut[e]
            for n in range(states):
                b = B[start + i, n]
                c = C[start + i, n]
                a = A[n, low:high]
                old = hs[i, n]
                new = hs[i + 1, n]
                decay = decays[i, n]
                for e in range(width):
                    d = _exp(dt[e] * a[e])
                    decay[e] = d
                    h = d * old[e] + v[e] * b
                    new[e] = h
                    y[e] += h * c
        carry[:] = 0
        for i in range(steps - 1, -1, -1):
            t = start + i
            ut = u[t, low:high]
            gt = grad[t, low:high]
            dt = dts[i]
            y = ys[i]
            if gate:
                zt = z[t, low:high]
                dzt = dz[t, low:high]
                for e in range(width):
                    g[e] = _sigmoid(zt[e])
                for e in range(width):
                    dzt[e] = gt[e] * y[e] * (g[e] + zt[e] * g[e] * (one - g[e]))
                for e in range(width):
                    g[e] *= gt[e] * zt[e]
            else:
                for e in range(width):
                    g[e] = gt[e]
            for e in range(width):
                v[e] = dt[e] * ut[e]
            dv[:] = 0
            ddt[:] = 0
            for n in range(states):
                b = B[t, n]
                c = C[t, n]
                a = A[n, low:high]
                da = dA[n, low:high]
                old = hs[i, n]
                new = hs[i + 1, n]
                decay = decays[i, n]
                cn = carry[n]
                db = dB[t, n]
                dc = dC[t, n]
                for e in range(width):
                    dh = cn[e] + g[e] * c
                    dv[e] += dh * b
                    db += dh * v[e]
                    dc += g[e] * new[e]
                    cn[e] = dh * decay[e]
                for e in range(width):
                    q = cn[e] * old[e]
                    ddt[e] += q * a[e]
                    da[e] += q * dt[e]
                dB[t, n] = db
                dC[t, n] = dc
            dut = du[t, low:high]
            ddeltat = ddelta[t, low:high]
            for e in range(width):
                dut[e] = dv[e] * dt[e] + g[e] * here_D[e]
            for e in range(width):
                ddt[e] += dv[e] * ut[e]
            for e in range(width):
                here_dD[e] += g[e] * ut[e]
            if softplus:
                raw = delta[t, low:high]
                for e in range(width):
                    ddt[e] *= _sigmoid(raw[e] + here_bias[e])
            for e in range(width):
                ddeltat[e] = ddt[e]
            for e in range(width):
                here_dbias[e] += ddt[e]
