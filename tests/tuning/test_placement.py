"""Arguments lie in memory as the C library would place them, and hold what they should."""

from __future__ import annotations

import mmap

import numpy as np
import pytest

from tcl.tuning.placement import ALIGNMENT, LARGE, RENEWED, on_other_pages, placed

pytestmark = pytest.mark.tvm


def test_large_arrays_begin_at_the_same_place_in_a_page_and_small_ones_lie_side_by_side():
    large = [np.random.default_rng(0).standard_normal((64, 1024)).astype(np.float32), np.zeros(LARGE, np.uint8)]
    small = [np.arange(33, dtype=np.int64), np.float32(3.0).reshape(()), np.array([True, False])]
    arrays = [large[0], small[0], large[1], small[1], small[2]]
    tensors = placed(arrays)
    views = [np.from_dlpack(t) for t in tensors]
    for array, tensor, view in zip(arrays, tensors, views, strict=True):
        assert tensor.shape == array.shape and str(tensor.dtype) == str(array.dtype)
        assert (tensor.numpy() == array).all() and view.ctypes.data % ALIGNMENT == 0
    where = [v.ctypes.data for v in views]
    assert where[0] % mmap.PAGESIZE == where[2] % mmap.PAGESIZE == ALIGNMENT
    assert where[3] - where[1] == 5 * ALIGNMENT and where[4] - where[3] == ALIGNMENT  # 264 bytes and 4
    tensors[0].copyfrom(np.ones((64, 1024), np.float32))
    assert (tensors[1].numpy() == small[0]).all() and (tensors[0].numpy() == 1).all()


def test_on_other_pages_the_values_are_the_same():
    before = placed([np.arange(LARGE, dtype=np.int32), np.arange(3, dtype=np.float32)])
    after = on_other_pages(before)
    for old, new in zip(before, after, strict=True):
        assert (new.numpy() == old.numpy()).all() and np.from_dlpack(new).ctypes.data != np.from_dlpack(old).ctypes.data
    vast = placed([np.zeros(RENEWED + 1, np.uint8)])
    assert on_other_pages(vast)[0].same_as(vast[0])
