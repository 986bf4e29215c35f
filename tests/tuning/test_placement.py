"""Arguments lie in memory as the C library would place them, and hold what they should."""

from __future__ import annotations

import mmap

import numpy as np
import pytest

from tcl.tuning.placement import ALIGNMENT, LARGE, placed

pytestmark = pytest.mark.tvm


def test_large_arrays_begin_at_the_same_place_in_a_page_and_small_ones_lie_side_by_side():
    rng = np.random.default_rng(0)
    arrays = [
        rng.standard_normal((64, 1024)).astype(np.float32), np.arange(33, dtype=np.int64), np.ones((512, 512), np.float32), np.float32(3.0).reshape(()), np.zeros(LARGE, np.uint8), np.array([True, False]),
    ]  # fmt: skip
    tensors = placed(arrays)
    views = [np.from_dlpack(t) for t in tensors]
    for array, tensor, view in zip(arrays, tensors, views, strict=True):
        assert tensor.shape == array.shape and str(tensor.dtype) == str(array.dtype)
        assert (tensor.numpy() == array).all() and view.ctypes.data % ALIGNMENT == 0
    assert {v.ctypes.data % mmap.PAGESIZE for v, a in zip(views, arrays, strict=True) if a.nbytes >= LARGE} == {ALIGNMENT}
    first, second, third = (v.ctypes.data for v, a in zip(views, arrays, strict=True) if a.nbytes < LARGE)
    assert second - first == 5 * ALIGNMENT and third - second == ALIGNMENT  # 264 bytes and 4
    tensors[0].copyfrom(np.ones((64, 1024), np.float32))
    assert (tensors[2].numpy() == arrays[2]).all()
