"""exp and erf as arithmetic: right to the last digits, at the edges too, and no call of the C library left."""

from __future__ import annotations

import math

import numpy as np
import pytest

X = np.concatenate([np.linspace(-86.6, 88.7, 40_001), np.linspace(-1e-3, 1e-3, 999)]).astype(np.float32)
EDGES = np.array([0.0, -0.0, 88.72, 88.73, 1e30, np.inf, -86.7, -104.0, -np.inf, np.nan], dtype=np.float32)


def compiled(function: str, x: np.ndarray, dtype: str = "float32", lanes: int = 1) -> tuple[np.ndarray, str]:
    """What a compiled kernel makes of x, and its LLVM code."""
    import tvm
    from tvm import te, tirx

    from tcl.tuning.worker import compile_module

    source = te.placeholder(x.shape, dtype, name="x")
    result = te.compute(x.shape, lambda i: getattr(tirx, function)(source[i]), name="y")
    schedule = tvm.s_tir.Schedule(te.create_prim_func([source, result]))
    if lanes > 1:
        (loop,) = schedule.get_loops(schedule.get_sblock("y"))
        schedule.vectorize(schedule.split(loop, [None, lanes])[1])
    library = compile_module(schedule.mod, tvm.target.Target("llvm"))
    out = tvm.runtime.tensor(np.zeros(x.shape, dtype))
    library["main"](tvm.runtime.tensor(x.astype(dtype)), out)
    return out.numpy(), library.inspect_source("ll")


@pytest.mark.tvm
@pytest.mark.parametrize("lanes", [1, 8])
def test_exp(lanes: int) -> None:
    found, code = compiled("exp", X, lanes=lanes)
    expected = np.exp(X.astype(np.float64))
    assert np.max(np.abs(found - expected) / expected) < 2e-7
    assert "llvm.exp" not in code and "@exp" not in code
    with np.errstate(over="ignore"):
        edges = np.exp(EDGES.astype(np.float64)).astype(np.float32)
    np.testing.assert_allclose(compiled("exp", EDGES)[0], edges, rtol=2e-7, atol=2.0**-125)


@pytest.mark.tvm
@pytest.mark.parametrize("lanes", [1, 8])
def test_erf(lanes: int) -> None:
    found, code = compiled("erf", X, lanes=lanes)
    assert np.max(np.abs(found - np.array([math.erf(x) for x in X]))) < 5e-7
    assert "@erf" not in code
    np.testing.assert_allclose(compiled("erf", EDGES)[0], [math.erf(x) for x in EDGES], atol=5e-7)


@pytest.mark.tvm
@pytest.mark.parametrize("function", ["tanh", "sigmoid"])
def test_what_tvm_makes_of_exp_is_right_too(function: str) -> None:
    x = X[np.abs(X) < 20]
    expected = {"tanh": np.tanh, "sigmoid": lambda v: 1.0 / (1.0 + np.exp(-v))}[function](x.astype(np.float64))
    np.testing.assert_allclose(compiled(function, x)[0], expected, atol=3e-7)


@pytest.mark.tvm
def test_double_precision_is_as_before() -> None:
    x = X.astype(np.float64)
    for function, expected in (("exp", np.exp(x)), ("erf", np.array([math.erf(v) for v in x]))):
        np.testing.assert_allclose(compiled(function, x, "float64")[0], expected, rtol=1e-14)


@pytest.mark.tvm
@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize(("dtype", "rtol"), [("float16", 2e-3), ("float64", 1e-14)])
def test_exp_of_other_types_is_as_before(dtype: str, rtol: float, lanes: int) -> None:
    x = np.linspace(-2, 2, 64).astype(dtype)
    np.testing.assert_allclose(compiled("exp", x, dtype, lanes)[0], np.exp(x.astype(np.float64)), rtol=rtol)
