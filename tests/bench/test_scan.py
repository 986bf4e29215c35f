"""The benchmark runs from end to end at a small size; its figures mean nothing there."""

from __future__ import annotations

import json

import pytest
import torch

from tcl.bench import scan


def test_rows_goals_and_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "BATCH", 8)
    monkeypatch.setattr(scan, "LENGTH", 5)
    threads = torch.get_num_threads()
    result = scan.run(seeds=2)
    assert torch.get_num_threads() == threads
    assert json.loads(json.dumps(result)) == result
    assert result["bench"] == "scan"
    rows = {(r["method"], r["setting"], r["seed"]): r for r in result["rows"]}
    assert len(rows) == len(result["rows"]) == 18
    for row in rows.values():
        assert 0 < row["min_s"] <= row["median_s"] <= row["max_s"]
        assert row["programs_per_s"] == pytest.approx(8 / row["median_s"])
    assert rows["transformers", "train", 0]["relative"] == 1
    assert rows["mamba-cpu", "train", 0]["parameters"] == rows["transformers", "train", 0]["parameters"]
    assert rows["tlp-size", "train", 0]["parameters"] == pytest.approx(676_000, rel=0.01)
    (goal,) = result["goals"]
    expected = [rows["transformers", "train", s]["median_s"] / rows["mamba-cpu", "train", s]["median_s"] for s in (0, 1)]
    assert goal["value"] == pytest.approx(sum(expected) / 2)
    assert goal["met"] == (goal["value"] >= 20)


def test_a_wrong_scan_is_not_timed() -> None:
    models = scan._models()
    with torch.no_grad():
        models["mamba-cpu"].D += 1
    with pytest.raises(AssertionError):
        scan._assert_equal(models, torch.randn(2, 3, scan.D_MODEL))
