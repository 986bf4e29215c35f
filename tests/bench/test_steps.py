"""`tcl bench steps`: every move is measured, computes the same, and the wrong ones stand beside the right."""

from __future__ import annotations

import pytest

from tcl.bench.steps import MOVES, run
from tcl.errors import UserError
from tcl.views.lessons import loop_nest


@pytest.mark.tvm
def test_a_small_product(tmp_path, monkeypatch):
    monkeypatch.setenv("TCL_LOCK_DIR", str(tmp_path))
    result = run(size=32, turns=1)
    assert [r["name"] for r in result["rows"]] == [m.name for m in MOVES]
    assert all(0 < r["latency_s"] <= r["median_s"] and r["error"] < 1e-5 for r in result["rows"])
    nests = [loop_nest(step["script"]) for step in result["steps"]]
    assert "for j_1 in vectorized(32):" in nests[5] and "parallel" not in nests[9] and "for i_0 in parallel(4):" in nests[11]
    assert result["steps"][3]["primitives"] == ["reorder to i, k, j"] and 0 <= result["disturbed"] <= 1
    assert result["goals"][1]["met"]


def test_a_size_that_cannot_be_split():
    with pytest.raises(UserError, match="multiple of 32"):
        run(size=40)
