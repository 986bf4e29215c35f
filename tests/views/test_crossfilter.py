"""One selection from many conditions: what each asks for, what the views draw of it, what is said about it."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from tcl.features.flat import FLAT_FEATURES, flat_features
from tcl.features.map import EVERYTHING, make_map
from tcl.programs.types import format_id
from tcl.views import crossfilter, explain
from tcl.views.crossfilter import LATENCY, Conditions, drawn_rows, neighbours, pair_figure, pair_places, parallel_figure, platform_columns
from tcl.views.crossfilter import selected as select
from tcl.views.explore import explore_frame
from tcl.views.search import search
from tests.views.conftest import fill


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """(dataset, frame, flat features) of 27 programs of three tasks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TCL_WORKSPACE", str(tmp_path_factory.mktemp("w")))
        dataset = fill(tmp_path_factory.mktemp("d") / "few", programs_a_task=9)
        frame = explore_frame(dataset, EVERYTHING, "avx2", make_map(dataset))
        yield dataset, frame, flat_features(dataset, frame["program"].to_numpy(), tasks=False)


def test_conditions_are_met_together(shown):
    _, frame, flat = shown
    assert select(frame, Conditions()) is None
    latency = frame["latency_s"].to_numpy()
    middle = float(np.nanmedian(latency))
    fast = select(frame, Conditions(latency_s=(0.0, middle)))
    assert fast.sum() == (latency <= middle).sum()
    column = flat[:, FLAT_FEATURES.index("split0_factor1")]
    small = select(frame, Conditions(axes={"split0_factor1": [(0.0, 2.0)]}), flat)
    assert small.tolist() == (column <= 2.0).tolist()
    two = select(frame, Conditions(axes={"split0_factor1": [(0.0, 0.0), (4.0, 6.0)]}), flat)
    assert two.tolist() == ((column == 0) | (column >= 4)).tolist()
    ids = frame["program"].to_numpy()[:5]
    asked = Conditions(latency_s=(0.0, middle), axes={"split0_factor1": [(0.0, 2.0)], LATENCY: [(-9.0, 9.0)]}, programs=[ids])
    assert select(frame, asked, flat).tolist() == (fast & small & np.isin(frame["program"], ids) & np.isfinite(latency)).tolist()
    box = {"box": [-1e9, 1e9, -1e9, float(frame["y"].median())]}
    assert 0 < select(frame, Conditions(outlines=[box])).sum() < len(frame)


def test_two_platforms(shown):
    dataset, frame, _ = shown
    columns = platform_columns(dataset, frame["program"].to_numpy())
    places = pair_places(columns, "avx2", "avx512")
    known = np.isfinite(places).all(axis=1)
    assert known.sum() > 5 and (places[known] >= 0).all()
    here = frame["label"].to_numpy()[known]
    assert np.allclose(10 ** places[known, 0], 1 / here, rtol=1e-5)
    figure = pair_figure(places, "avx2", "avx512")
    assert sorted(figure.data[0].customdata) == np.flatnonzero(known).tolist()
    near_best = select(frame, Conditions(pair=[{"box": [-1, 0.2, -1, 9]}]), places=places)
    assert near_best.tolist() == (known & (places[:, 0] <= 0.2)).tolist()
    pair_figure(np.full((3, 2), np.nan), "a", "b").to_json()


def test_parallel_coordinates_draw_every_row_or_say_so(shown):
    _, frame, flat = shown
    features = crossfilter.telling(flat, frame)
    assert features and len(set(features)) == len(features)
    rows = drawn_rows(len(frame), None)
    figure = parallel_figure(frame, flat, features, rows)
    trace = figure.data[0]
    assert [d.name for d in trace.dimensions] == [*features, LATENCY]
    assert trace.customdata.tolist() == list(range(len(frame)))
    json.loads(figure.to_json())
    chosen = np.zeros(10_000, dtype=bool)
    chosen[9_000:9_010] = True
    some = drawn_rows(10_000, chosen, 500)
    assert len(some) == 500 and set(range(9_000, 9_010)) <= set(some)
    assert len(drawn_rows(10_000, chosen, None)) == 10_000


@pytest.mark.parametrize("settings", [{"failing": 1.0}, {"programs_a_task": 1, "tasks": 1, "unmeasured": 0.0}, {"unmeasured": 1.0}])
def test_odd_data(tmp_path, settings):
    dataset = fill(tmp_path / "odd", **{"programs_a_task": 9} | settings)
    frame = explore_frame(dataset, EVERYTHING, "avx2", make_map(dataset))
    flat = flat_features(dataset, frame["program"].to_numpy(), tasks=False)
    features = crossfilter.telling(flat, frame)
    parallel_figure(frame, flat, features, np.arange(len(frame))).to_json()
    of = explain.moments(flat, frame["task"].to_numpy())
    for chosen in (np.zeros(len(frame), bool), np.ones(len(frame), bool), np.arange(len(frame)) < 4):
        assert all(isinstance(s, str) for s in explain.explain(frame, flat, of, chosen))
    places = pair_places(platform_columns(dataset, frame["program"].to_numpy()), "avx2", "avx512")
    pair_figure(places, "avx2", "avx512").to_json()


def test_what_sets_a_cluster_apart_is_found(shown):
    """Selected by one parameter, and by their task: the parameter is named first, with its direction; the task does not hide it."""
    _, frame, flat = shown
    of = explain.moments(flat, frame["task"].to_numpy())
    i = FLAT_FEATURES.index("split1_factor1")
    chosen = flat[:, i] >= 4
    effect = explain.effects(flat, of, chosen)
    first = frame["task"] == frame["task"].iloc[0]
    part = flat[first.to_numpy()]
    within = explain.effects(part, explain.moments(part, frame["task"][first].to_numpy()), part[:, i] >= 4)
    by_hand = part[part[:, i] >= 4].mean(axis=0) - part[part[:, i] < 4].mean(axis=0)
    assert within[i] == pytest.approx(by_hand[i] / part[:, i].std(ddof=1), rel=1e-4)
    assert effect[i] > 1 and np.argmax(np.abs(effect)) in (i, FLAT_FEATURES.index("split1_outer"), FLAT_FEATURES.index("split1_align"))
    (sentence,) = [s for s in explain.explain(frame, flat, of, chosen) if s.startswith("Against")]
    assert "split 2" in sentence
    # A whole task differs from others by being another task, not by its tiles.
    assert np.allclose(explain.effects(flat, of, first.to_numpy()), 0)


def test_search(shown):
    _, frame, flat = shown
    first = format_id(int(frame["program"].iloc[0]))
    assert search(frame, first).sum() == 1 and search(frame, first[:6])[0]
    assert search(frame, "softmax").tolist() == (frame["operator"] == "softmax").tolist()
    assert search(frame, "matmul 64").tolist() == (frame["task_name"] == "matmul 64").tolist()
    assert search(frame, "parallel", lambda: flat).all() and not search(frame, "tensorize", lambda: flat).any()
    texts = ["split i", "Unroll up to 16"] + ["x"] * (len(frame) - 2)
    assert np.flatnonzero(search(frame, '"unroll up"', None, lambda: texts)).tolist() == [1]
    assert search(frame, "").all() and not search(frame, "no-such-thing").any()
    assert not search(pd.DataFrame({"program": [], "task_name": pd.Categorical([]), "operator": pd.Categorical([])}), "x").any()


def test_neighbours_are_the_nearest():
    space = np.random.default_rng(0).normal(size=(500, 8)).astype(np.float32)
    found = neighbours(space, 7, 10)
    distance = np.linalg.norm(space - space[7], axis=1)
    assert found[0] == 7 and found.tolist() == np.argsort(distance, kind="stable")[:10].tolist()
    assert len(neighbours(space[:3], 1, 10)) == 3
