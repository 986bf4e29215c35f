"""`tcl bench continual` and `tcl distill`, on the small dataset."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from tcl.bench.continual import METHODS, run
from tcl.cli import cli
from tcl.errors import UserError
from tcl.progress import Progress

QUICK = {"epochs": 2, "consolidate_epochs": 1}


def bench(dataset, cells, **changes):
    settings = {"platforms": ["a100", "b200"], "seeds": [0], "fraction": 0.5, "settings": QUICK, "all_epochs": 1, **changes}
    return run(progress=Progress(), data=str(dataset.path), cells=str(cells), **settings)


def test_a_bench_that_ran_out_of_time_goes_on(dataset, tmp_path):
    nothing = bench(dataset, tmp_path, time_limit_s=-1)
    assert nothing["rows"] == []
    assert len(nothing["missing"]) == 2 * len(METHODS)
    assert not any(g["met"] for g in nothing["goals"])
    first = bench(dataset, tmp_path)
    assert {r["method"] for r in first["rows"]} == set(METHODS)
    assert first["missing"] == []
    times = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("cell.json")}
    assert bench(dataset, tmp_path)["rows"] == first["rows"]
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("cell.json")} == times
    with pytest.raises(UserError, match="other"):
        bench(dataset, tmp_path, fraction=0.25)
    ours = [r for r in first["rows"] if r["method"] == "ours"]
    assert all(r["size_mb"] <= 0.8 for r in ours)
    assert {a["source"] for a in first["agreement"]} == {"a100", "b200"}


def test_ablation_changes_one_choice(dataset, tmp_path):
    result = bench(dataset, tmp_path, ablation=["target=scores", "rank=0"], orders=[["a100", "b200"]])
    assert [r["method"] for r in result["rows"]] == ["ours", "unprotected", "target=scores", "rank=0"]
    assert result["rows"][3]["size_mb"] < result["rows"][0]["size_mb"]


def test_bench_refuses_what_it_does_not_know(dataset, tmp_path):
    for changes in ({"platforms": ["z"]}, {"methods": ["magic"]}):
        with pytest.raises(UserError, match="Not known"):
            bench(dataset, tmp_path, **changes)


def test_distill_command_continues_a_knowledge_base(dataset, tmp_path):
    def call(*arguments):
        return CliRunner().invoke(
            cli, ["distill", str(dataset.path), "--epochs", "1", "--fraction", "0.5", "--out", str(tmp_path / "kb"), *arguments]
        )

    first = call("--order", "a100,b200", "--json")
    assert first.exit_code == 0, first.output
    assert json.loads(first.stdout)["platforms"] == ["a100", "b200"]
    second = call("--order", "c300", "--for-platform", "a100", "--json")
    result = json.loads(second.stdout)
    assert result["platforms"] == ["a100", "b200", "c300"]
    assert len(result["R"]) == 3
    assert result["steps"][2]["measured"] < result["steps"][2]["programs"]
    assert json.loads((tmp_path / "kb" / "model.json").read_text())["about"]["platform"] == "a100"
    assert len(result["agreement"]) == 3
    assert isinstance(call("--order", "nowhere").exception, UserError)
    assert isinstance(call("--order", "b200,a100").exception, UserError)
