"""Figures of the Data page."""

from __future__ import annotations

from tcl.programs import overview
from tcl.views.data import NAME, distribution_figure
from tests.views.conftest import fill


def test_every_task_is_named_beside_its_latencies(tmp_path):
    frame = overview.latency_distribution(fill(tmp_path / "data", programs_a_task=4, failing=0.0))
    frame["name"] = frame["name"].replace("matmul 64", "matmul " + "64x" * 20)
    axis = distribution_figure(frame, "avx2").layout.yaxis
    assert len(axis.tickvals) == len(axis.ticktext) == 3
    assert max(map(len, axis.ticktext)) == NAME and sum(text.endswith("…") for text in axis.ticktext) == 1
