"""Wins and losses of `tcl bench tuning`, from rows with known answers."""

from __future__ import annotations

import numpy as np
import pytest

from tcl.views import tuning_bench as views


def row(subject, method, seed, best, times=None, **more):
    return {"subject": subject, "method": method, "seed": seed, "best_ms": best, "times_faster": times, "search_s": 9.0,
            "curve": [[1.0, 5e-3], [4.0, (best or 5.0) / 1e3]], **more}  # fmt: skip


@pytest.fixture
def rows():
    timed = {"a": {"pytorch_ms": 2.0, "onnxruntime_ms": 0.5}, "b": {"pytorch_ms": 1.0, "onnxruntime_ms": None}}
    found = []
    for seed, ours in enumerate((0.9, 1.0, 1.1)):
        found += [row("a", "tvm/xgb", seed, 2.0, 1.0, **timed["a"]), row("a", "decisions/kb", seed, ours, 8.0, **timed["a"])]
        found += [row("b", "tvm/xgb", seed, 1.0, 1.0, **timed["b"]), row("b", "decisions/kb", seed, 4.0, None, **timed["b"])]
    return found


def test_latencies_beside_production(rows):
    table = views.latencies(rows)
    assert list(table.columns) == ["fastest", "TVM, xgb", "ours, kb", "PyTorch", "ONNX Runtime"]
    assert table.loc["a"].tolist() == ["ONNX Runtime", 2.0, 1.0, 2.0, 0.5]
    assert np.isnan(table.loc["b", "ONNX Runtime"]) and table.loc["b", "fastest"] in ("TVM, xgb", "PyTorch")


def test_a_run_that_never_got_there_counts(rows):
    assert views.times_sooner(rows)["ours, kb"].tolist() == [8.0, 0.0]
    assert views.ratios(rows, "decisions/kb").tolist() == [0.5, 4.0] and views.ratios(rows, "decisions/none").empty


def test_losses_are_said(rows):
    against_tvm, pytorch, onnx = views.verdict(rows)
    assert "faster on 1, slower on 1 of 2" in against_tvm and "2.25 times as long" in against_tvm and "4.0 times sooner" in against_tvm
    assert "in the median one, never on 1." in against_tvm
    assert "faster on 1 of 2; **slower** on `b` (4.00 times as long)" in pytorch
    assert "faster on 0 of 1; **slower** on `a` (2.00 times as long)" in onnx


def test_mostly_never_there_is_said(rows):
    (against_tvm, *_) = views.verdict([*rows, row("c", "tvm/xgb", 0, 1.0, 1.0), row("c", "decisions/kb", 0, 1.0, None)])
    assert against_tvm.endswith("; at TVM's last latency on 1 of 3 only.") and "0.0 times" not in against_tvm


def test_a_line_a_seed_and_a_dashed_one_for_production(rows):
    figure = views.curves_figure(rows, "a")
    assert [t.showlegend for t in figure.data[:6]].count(True) == 2 and max(figure.data[0].x) == 9.0
    assert [t.name for t in figure.data[6:]] == ["PyTorch 2 ms", "ONNX Runtime 0.5 ms"]
    assert not views.curves_figure(rows, "nothing").data


def test_without_rows_or_latencies():
    assert views.latencies([]).empty and views.times_sooner([]).empty and views.verdict([]) == []
    failed = [row("a", m, 0, None, None) | {"curve": []} for m in ("tvm/xgb", "decisions/kb")]
    assert views.latencies(failed)["ours, kb"].isna().all() and not views.curves_figure(failed, "a").data
    views.verdict(failed)
