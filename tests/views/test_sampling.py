"""The Sample page's figures and words, on plain tables."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from tcl.views import sampling as views


@pytest.fixture
def frame():
    """Two tasks of 20 programs on a line; 4 and 2 picked, in two rounds; the last program is not on the map."""
    n = 40
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"program": np.arange(n) - 20, "task": np.repeat([7, 8], 20), "x": np.arange(n, dtype=np.float32), "y": np.float32(0)}
    )
    for name in ("representativeness", "diversity", "uncertainty", "score"):
        frame[name] = rng.random(n).astype(np.float32)
    frame["round"] = -1
    frame.loc[[0, 10, 25], "round"] = 0
    frame.loc[[5, 15, 39], "round"] = 1
    frame["order"] = -1
    frame.loc[39, ["x", "y"]] = np.nan
    return frame


def names(figure):
    return [t.name for t in figure.data]


def test_unpicked_stay_in_grey_below_the_picked(frame):
    figure = views.sample_figure(frame, "score")
    assert names(figure) == ["not picked (34)", "picked (5)"]
    assert sorted(figure.data[1].customdata.tolist()) == [0, 5, 10, 15, 25]
    assert figure.data[0].marker.color == views.palette.GREY
    np.testing.assert_allclose(sorted(figure.data[1].marker.color), sorted(frame["score"].iloc[[0, 5, 10, 15, 25]]))


def test_rounds_are_colours_and_the_slider_shows_what_one_added(frame):
    assert names(views.sample_figure(frame, "round")) == ["not picked (34)", "round 1 (3)", "round 2 (2)"]
    first = views.sample_figure(frame, "round", rounds_shown=0)
    assert names(first) == ["not picked (36)", "round 1 (3)"]
    second = views.sample_figure(frame, "diversity", rounds_shown=1)
    assert names(second) == ["not picked (34)", "earlier rounds (3)", "picked (2)"]


def test_what_was_not_picked_can_be_coloured_and_one_program_marked(frame):
    frame.loc[3, "score"] = np.nan
    figure = views.sample_figure(frame, "score", everything=True, row=25)
    assert names(figure) == ["not picked (33)", "not picked (1)", "picked (5)", "this one"]
    assert sum(bool(t.marker.colorbar.len) for t in figure.data) == 1


def test_large_pools_are_thinned_but_not_their_picks(frame):
    picked, rest = views.drawn_rows(frame, 12)
    assert len(picked) == 5 and len(rest) == 7
    assert (frame["round"].to_numpy()[picked] >= 0).all() and (frame["round"].to_numpy()[rest] < 0).all()
    assert views.drawn_rows(frame)[1].size == 34


def test_a_sampler_without_scores_is_drawn_and_told(frame):
    frame["score"] = np.float32(np.nan)
    assert names(views.sample_figure(frame, "score")) == ["not picked (34)", "picked, without this score (5)"]


def test_why_this_one(frame):
    space = np.arange(40, dtype=np.float32)[:, None]
    told = views.why(frame, space, 5, "rdu", np.arange(40) * 1e-6)
    assert "One of 4 picked of 20 in its task in round 2" in told.sentence
    assert told.neighbours["row"].tolist() == [0, 10, 15]  # both at a distance of five, then the one at ten; none of the other task
    assert told.neighbours["distance"].tolist() == pytest.approx([1.0, 1.0, 2.0])  # the spread of 0 … 19 is five
    assert told.neighbours["latency_s"].tolist() == pytest.approx([0.0, 1e-5, 1.5e-5])
    ranks = told.scores.set_index("score")["rank"]
    best = 1 + int((frame["diversity"].iloc[:20] > frame["diversity"].iloc[5]).sum())
    assert ranks["diversity"] == f"{best} of 20"
    assert "close one was" in views.why(frame, space, 11, "rdu").sentence
    assert "chance" in views.why(frame, space, 11, "random").sentence
    assert "the only pick of its task" in views.why(frame.iloc[20:39].reset_index(drop=True), space[20:39], 5, "kmeans").sentence
    assert "models disagree about most" in views.why(frame, space, 5, "uncertainty").sentence
    assert "no model has judged" in views.why(frame.assign(score=np.float32(np.nan)), space, 5, "uncertainty").sentence
    none = frame.assign(round=-1)
    assert "Not picked, nor any other" in views.why(none, space, 3, "rdu").sentence


def test_a_stored_selection_is_a_pool_with_gaps(frame):
    stored = frame.loc[frame["round"] >= 0, ["program", "score", "round"]]
    table = views.kept(frame[["program", "task"]], stored)
    assert len(table) == 40 and (table["round"] >= 0).sum() == 6
    assert sorted(table.loc[table["order"] >= 0, "program"]) == sorted(stored["program"])
    assert table["diversity"].isna().all()
    told = views.why(table, np.arange(40, dtype=np.float32)[:, None], 5, "rdu")
    assert told.scores["rank"].str.endswith("of 4 picked").all()


def bench_row(sampler, fraction, top1, **more):
    row = {"sampler": sampler, "fraction": fraction}
    for name in ("top1_mean", "top5_mean", "pairwise"):
        row |= {name: top1, f"{name}_sd": 0.01}
    return row | {"top1_gain": 0.0, "top1_gain_low": -0.1, "top1_gain_high": 0.1, "top1_p": 0.5} | more


def test_the_verdict_names_the_winner_whoever_it_is():
    rows = [bench_row("random", 0.1, 0.80), bench_row("rdu", 0.1, 0.90, top1_gain=0.1, top1_gain_low=0.05, top1_p=0.001),
            bench_row("kmeans", 0.1, 0.85),
            bench_row("rdu-u", 0.1, 0.95), bench_row("kmeans", 0.2, 0.99), bench_row("all", 1.0, 0.92)]  # fmt: skip
    frame = views.curve_rows({"rows": rows})
    assert views.winner(frame) == "rdu"  # its ablations are no rivals
    text = views.verdict(frame)
    assert "At 10 %" in text and "**rdu wins**" in text and "with all data 0.920" in text and "rdu is better than random" in text
    rows[1] |= {"top1_gain_low": -0.01, "top1_p": 0.04}
    assert "rdu is just about better than random" in views.verdict(views.curve_rows({"rows": rows}))
    rows[2] = bench_row("kmeans", 0.1, 0.95)
    lost = views.verdict(views.curve_rows({"rows": rows}))
    assert "**kmeans wins**" in lost and "RDU does not win" in lost and "kmeans is not shown to be better than random" in lost
    rows[2] |= {"top1_mean": 0.905}
    tied = views.verdict(views.curve_rows({"rows": rows}))
    assert "**kmeans is ahead**" in tied and "does not tell rdu from it" in tied
    assert " As the mean" not in tied  # one share alone was measured of all
    more = [bench_row("random", 0.2, 0.7), bench_row("rdu", 0.2, 0.8)]
    assert "As the mean of 10 and 20 %, kmeans leads with 0.948; rdu 0.850 and random 0.750." in views.verdict(
        views.curve_rows({"rows": rows + more})
    )
    assert views.winner(views.curve_rows({})) is None and "No sampler" in views.verdict(views.curve_rows({}))


def test_curves_have_a_line_a_sampler_with_its_spread():
    rows = [bench_row(s, f, 0.5 + f) for s in ("rdu", "random", "kmeans", "rdu-r") for f in (0.2, 0.01)] + [bench_row("all", 1.0, 0.9)]
    figure = views.curves_figure(views.curve_rows({"rows": rows}), "top1_mean")
    assert names(figure) == ["rdu", "random", "kmeans"]
    assert figure.data[0].customdata.tolist() == [1.0, 20.0] and np.allclose(figure.data[1].x, [1.0, 20.0])  # the middle one of three
    assert figure.data[0].x[0] < figure.data[1].x[0] < figure.data[2].x[0] < 1.05  # their bars do not hide each other
    assert figure.data[0].error_y.array.tolist() == [0.01, 0.01]
    assert len(views.curves_figure(views.curve_rows({"rows": rows}, ablations=True), "pairwise").data) == 4


def test_shares_beside_each_other_and_their_mean_where_all_were_measured():
    rows = [
        {"sampler": name, "fraction": f, "top1_mean": top1}
        for name, curve in (("random", {0.02: 0.2, 0.1: 0.6}), ("rdu", {0.02: 0.4, 0.1: 0.5, 0.2: 0.7}))
        for f, top1 in curve.items()
    ]
    rows.append({"sampler": "all", "fraction": 1.0, "top1_mean": 0.9})
    table = views.shares_table(views.curve_rows({"rows": rows}), "top1_mean")
    assert list(table.index) == ["rdu", "random"] and list(table.columns) == ["2 %", "10 %", "20 %", "mean of 2 and 10 %"]
    assert table.loc["rdu"].tolist() == pytest.approx([0.4, 0.5, 0.7, 0.45]) and np.isnan(table.loc["random", "20 %"])
    assert list(views.shares_table(views.curve_rows({"rows": rows[2:4]}), "top1_mean").columns) == ["2 %", "10 %", "mean of 2 and 10 %"]
    assert views.shares_table(views.curve_rows({}), "top1_mean").empty


def test_of_a_single_share_each_sampler_has_a_row_the_best_on_top():
    rows = [bench_row("rdu", 0.1, 0.8), bench_row("random", 0.1, 0.7), bench_row("kmeans", 0.1, 0.9), bench_row("all", 1.0, 0.95)]
    figure = views.curves_figure(views.curve_rows({"rows": rows}), "top1_mean")
    assert figure.data[0].y.tolist() == ["random", "rdu", "kmeans"] and figure.data[0].x.tolist() == [0.7, 0.8, 0.9]
    assert figure.layout.annotations[0].text == "all data: 0.950"
