"""exp and erf of float32 as arithmetic that vectorises, on CPUs.

LLVM has no vector exp: it calls the C library for every element, and a softmax spends most of its time there. TVM's lowering of
the two functions is replaced by polynomials, for whatever is compiled in this process: candidates of both searches, kernels and
networks that are exported, the unscheduled program they are compared with. Tasks and schedules stay as they are.

Errors (tested against NumPy's float64): exp 2e-7 relative, and 0 for what is less than 2^-125; erf 5e-7 absolute.
"""

from __future__ import annotations

import math
from functools import cache, partial
from typing import Any

LN2_HIGH = 0.693359375  # ln 2 in two parts: a whole number of up to 15 bits times this one is exact in float32
LN2_LOW = math.log(2.0) - LN2_HIGH
LARGEST, LEAST = 88.72283, -86.64  # exp is infinite above (float32), and counts as 0 below
TERMS = 7
"""Of exp's Taylor series around 0 up to ln(2) / 2, where the next one is less than 1e-8 of it."""


@cache
def use() -> None:
    """Compile exp and erf this way from now on, in this process; other types than float32 as TVM does."""
    from tvm.tirx import call_llvm_pure_intrin, call_pure_extern, register_intrin_lowering

    def exp(call: Any) -> Any:
        dtype = str(call.ty.dtype)
        return _exp(*call.args, dtype) if dtype.startswith("float32") else call_llvm_pure_intrin(dtype, "llvm.exp", *call.args)

    def erf(call: Any) -> Any:
        dtype = str(call.ty.dtype)
        if dtype == "float64":
            return call_pure_extern(dtype, "erf", *call.args)
        return _erf(*call.args, dtype) if dtype.startswith("float32") else call

    register_intrin_lowering("tirx.exp", target="llvm", f=exp, level=99)
    register_intrin_lowering("tirx.erf", target="llvm", f=erf, level=99)


def _exp(x: Any, dtype: str) -> Any:
    """2^n exp(r), x = n ln(2) + r."""
    from tvm import tirx

    number = partial(tirx.const, dtype=dtype)
    whole = dtype.replace("float", "int")
    v, n, r = (tirx.Var(name, dtype) for name in ("v", "n", "r"))
    series = number(1.0 / math.factorial(TERMS))
    for k in reversed(range(TERMS)):
        series = series * r + number(1.0 / math.factorial(k))
    # 2^(n - 1), and twice the series: n may be 128, whose power of two is no float32
    power = tirx.reinterpret(dtype, (n.astype(whole) + tirx.const(126, whole)) << tirx.const(23, whole))
    inside = (series + series) * power
    value = tirx.Select(v > number(LARGEST), number(math.inf), tirx.Select(v < number(LEAST), number(0.0), inside))
    value = tirx.Let(r, v - n * number(LN2_HIGH) - n * number(LN2_LOW), value)
    return tirx.Let(v, x, tirx.Let(n, tirx.floor(v * number(1.0 / math.log(2.0)) + number(0.5)), value))


def _erf(x: Any, dtype: str) -> Any:
    """Abramowitz and Stegun, Handbook of Mathematical Functions (1964), 7.1.26."""
    from tvm import tirx

    number = partial(tirx.const, dtype=dtype)
    v, a, t, y = (tirx.Var(name, dtype) for name in ("v", "a", "t", "y"))  # bound, since TVM allows no binding inside what occurs twice
    series = number(0.0)
    for coefficient in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592):
        series = (series + number(coefficient)) * t
    value = tirx.Select(v < number(0.0), number(0.0) - y, y)
    value = tirx.Let(y, number(1.0) - series * _exp(number(0.0) - a * a, dtype), value)
    value = tirx.Let(t, number(1.0) / (number(1.0) + number(0.3275911) * a), value)
    return tirx.Let(v, x, tirx.Let(a, tirx.Select(v < number(0.0), number(0.0) - v, v), value))
