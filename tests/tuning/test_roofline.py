"""The machine's roofline: plausible, measured once, and what tasks are held against."""

from __future__ import annotations

import pytest

from tcl.tuning import roofline as module
from tcl.tuning.apart import ProcessFailed
from tcl.tuning.operators import operator_task
from tcl.tuning.roofline import Roofline, known_roofline, roofline

pytestmark = pytest.mark.tvm


def test_measured_once(tmp_path, monkeypatch):
    monkeypatch.setenv("TCL_WORKSPACE", str(tmp_path))
    found = roofline(1)
    assert 1e9 < found.flops < 1e13 and 1e8 < found.bandwidth < 1e12
    monkeypatch.delattr(module, "call")  # from the workspace
    assert roofline(1) == found
    (path,) = (tmp_path / "cache").glob("roofline-*-1.json")
    path.write_text("{cut")
    with pytest.raises(NameError):  # a broken file is measured again
        roofline(1)


def test_measured_again_the_higher_of_each_peak_counts(tmp_path, monkeypatch):
    monkeypatch.setenv("TCL_WORKSPACE", str(tmp_path))
    assert known_roofline(1) is None
    answers = iter([(5e9, 2e9), (4e9, 3e9)])  # the second time other work took a part of the arithmetic

    def measured(*args, **settings):
        flops, bandwidth = next(answers)
        return {"flops": flops, "bandwidth": bandwidth, "threads": 1, "measured_at": 0.0}

    monkeypatch.setattr(module, "call", measured)
    assert roofline(1) == known_roofline(1) == Roofline(5e9, 2e9, 1, 0.0)
    assert roofline(1, again=True) == known_roofline(1) == Roofline(5e9, 3e9, 1, 0.0)

    def fails(*args, **settings):
        raise ProcessFailed("killed")

    monkeypatch.setattr(module, "call", fails)
    assert roofline(1, again=True) == Roofline(5e9, 3e9, 1, 0.0)
    assert roofline(2) is None


def test_share():
    roof = Roofline(flops=1e9, bandwidth=1e9, threads=1, measured_at=0.0)
    product, copy = operator_task("matmul:256,256,256"), operator_task("transpose:256,256")
    assert roof.least_s(product) == pytest.approx(2 * 256**3 / 1e9, rel=0.01)  # arithmetic limits it
    assert roof.least_s(copy) == pytest.approx(2 * 4 * 256**2 / 1e9)  # traffic does
    assert roof.share(product, 2 * roof.least_s(product)) == pytest.approx(0.5)
    assert roof.share(product, None) is None
