"""The Train page's figures and tables, from plain data of the shapes that occur: live, resumed, without epochs, all failed, empty."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from tcl.views import benchmarks
from tcl.views.training import by_operator, curves, curves_figure, importance_figure, minus, operator_figure, rank_figure, ranks


def epoch(number: int, loss: float | None, **more: float | None) -> dict:
    return {"kind": "epoch", "epoch": number, "loss": loss, "train_s": 2.0, "valid_s": 1.0, **more}


def test_curves_of_a_resumed_training_take_the_later_of_an_epoch_told_twice():
    frame = curves([epoch(1, 0.9, valid_top1=0.5), epoch(2, 0.8), epoch(2, 0.7, valid_top1=0.6), epoch(3, None)])
    assert frame["epoch"].tolist() == [1, 2, 3] and frame["seconds"].tolist() == [3, 6, 9]
    assert frame["loss"].tolist()[:2] == [0.9, 0.7] and np.isnan(frame["loss"].iloc[2])
    assert frame["valid_top1"].tolist()[:2] == [0.5, 0.6] and frame["valid_spearman"].isna().all()
    nothing = curves([])
    assert nothing.empty and {"epoch", "seconds", "loss", "valid_pairwise"} <= set(nothing.columns)


def test_the_difference_is_to_the_baseline_at_the_same_epoch():
    a = curves([epoch(i, 1.0, valid_pairwise=0.5 + 0.1 * i) for i in (1, 2, 3)])
    base = curves([epoch(i, 1.0, valid_pairwise=0.5) for i in (1, 2)])
    assert minus(a, base, "valid_pairwise")["valid_pairwise"].tolist() == pytest.approx([0.1, 0.2])
    figure = curves_figure({"a": a, "base": base}, "valid_pairwise", {"a": "#111111", "base": "#222222"}, baseline="base", difference=True)
    assert [t.name for t in figure.data] == ["a"] and list(figure.data[0].y) == pytest.approx([0.1, 0.2])
    assert figure.layout.shapes[0].y0 == 0 and figure.layout.yaxis.title.text == "difference"
    plain = curves_figure({"a": a, "base": base}, "loss", {}, baseline="base")
    assert [t.line.dash for t in plain.data] == ["solid", "dash"] and len(plain.data[0].x) == 3


def test_trees_without_epochs_are_a_line_across():
    a = curves([epoch(i, 1.0, valid_pairwise=0.6) for i in (1, 2, 3, 4)])
    figure = curves_figure({"a": a}, "valid_pairwise", {}, levels={"xgb": 0.8, "stopped": None})
    assert figure.data[1].name == "xgb (no epochs)" and list(figure.data[1].x) == [1, 4] and list(figure.data[1].y) == [0.8, 0.8]
    assert len(figure.data) == 2 and len(curves_figure({}, "valid_pairwise", {}, levels={"xgb": 0.8}).data) == 1


def programs(latency: list[float], prediction: list[float]) -> pd.DataFrame:
    return pd.DataFrame({"program": range(len(latency)), "latency_s": latency, "prediction": prediction})


def test_ranks_of_failures_and_ties():
    frame = ranks(programs([2e-3, 1e-3, np.nan, np.nan], [0.1, 0.5, 0.5, -1]))
    assert frame["measured"].tolist() == [2, 1, 3.5, 3.5] and frame["predicted"].tolist() == [3, 1.5, 1.5, 4]


def test_the_rank_figure_rings_the_choice_and_the_fastest_and_carries_rows():
    figure = rank_figure(programs([3e-3, 1e-3, 2e-3, np.nan], [0.9, 0.1, 0.5, 0.2]))
    by_name = {t.name: t for t in figure.data}
    assert by_name["the model's choice"].customdata == (0,) and list(by_name["the model's choice"].x) == [3]
    assert by_name["the fastest"].customdata == (1,) and list(by_name["the fastest"].y) == [4]
    assert list(by_name["measured (3)"].customdata) == [0, 1, 2] and list(by_name["failed (1)"].customdata) == [3]
    failed = rank_figure(programs([np.nan, np.nan], [1, 2]))
    assert not any("choice" in (t.name or "") for t in failed.data)
    rank_figure(programs([1e-3], [0.0]))
    rank_figure(programs([], []))


def assignments(operators: list[str], top1: list[float]) -> pd.DataFrame:
    return pd.DataFrame({"operator": operators, "top1": top1, "best_s": np.where(np.isnan(top1), np.nan, 1e-3)})


def test_operators_the_worst_first_and_all_failed_ones():
    tables = {"a": assignments(["conv", "conv", "dense"], [0.4, 0.6, 0.9]), "b": assignments(["conv", "dense", "sum"], [1.0, 0.7, np.nan])}
    frame = by_operator(tables, "top1")
    assert frame.loc["conv", "a"] == 0.5 and frame.index[0] == "conv" and frame.loc["conv", "assignments"] == 2
    assert np.isnan(frame.loc["sum", "b"]) and frame.loc["sum", "assignments"] == 0
    figure = operator_figure(frame, "top1", {"a": "#111111", "b": "#222222"})
    assert [t.name for t in figure.data] == ["a", "b"] and figure.data[0].y[0] == "conv (2)"
    operator_figure(by_operator({"a": assignments(["x"], [np.nan])}, "top1"), "top1", {})


def test_importance_shows_what_changes_with_its_spread():
    rows = {"primitive": ["split", "pragma_unroll", "fuse"], "changed": [1.0, 0.5, 0.0], "pairwise_drop": [0.2, 0.05, 0.0],
            "pairwise_drop_sd": [0.01, None, 0.0], "top1_drop": [0.3, -0.01, 0.0], "top1_drop_sd": [0.02, None, 0.0]}  # fmt: skip
    figure = importance_figure({"a": pd.DataFrame(rows), "b": pd.DataFrame(rows).iloc[:1]}, "pairwise", {})
    assert list(figure.data[0].y) == ["split", "pragma unroll"] and figure.data[0].error_x.array[0] == 0.01
    assert list(importance_figure({"a": pd.DataFrame(rows)}, "top1", {}).data[0].x) == [0.3, -0.01]
    assert not importance_figure({"a": pd.DataFrame()}, "pairwise", {}).data


def line(model: str, value: float | None, sd: float | None, platform: str = "k80", seeds: int = 3) -> dict:
    return {"dataset": "gpu", "platform": platform, "model": model, "seeds": seeds, "top1": value, "top1_sd": sd}


def test_who_wins_where_is_said_plainly_and_with_the_spread():
    summary = [line("tlp", 0.80, 0.02), line("mamba", 0.90, 0.01), line("xgb", 0.885, 0.02), line("mlp", 0.7, None, "v100", 1)]
    first, second = benchmarks.winners(summary, "top1")
    assert (first["where"], first["model"], first["close"]) == ("k80 of gpu", "mamba", ["xgb"])
    assert benchmarks.winner_text(first, "top1") == (
        "k80 of gpu: **mamba** is best, top-1 0.900 ± 0.010 (3 seeds); the spread does not tell xgb from it."
    )
    assert "one seed: no spread known" in benchmarks.winner_text(second, "top1") and second["close"] == []
    table = benchmarks.benchmark_table(summary, "top1")
    assert table.index[0] == "mamba" and table.loc["tlp", "k80 of gpu"] == "0.800 ± 0.020" and table.loc["tlp", "v100 of gpu"] == ""
    assert len(benchmarks.benchmark_figure(summary, "top1").data) == 4
    assert benchmarks.winners([line("mlp", None, None)], "top1") == [] and benchmarks.benchmark_table([], "top1").empty
    assert benchmarks.benchmark_table([line("mlp", None, None)], "top1").iloc[0, 0] == "–"
