"""The Sample page without a browser: knobs, previews, jobs' answers, why, export."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pandas.testing import assert_frame_equal
from streamlit.testing.v1 import AppTest

from app.bench_results import bench_results
from tcl.features.map import Map, store_map
from tcl.programs.selection import list_selections, load_selection
from tcl.programs.types import format_id
from tcl.sampling.plan import Request, sample, select
from tcl.sampling.registry import ABLATIONS, DEFAULT
from tcl.workspace import ASSETS
from tests.views.conftest import fill

APP = Path(__file__).parent.parent.parent / "app"


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """Three platforms, so that two others can disagree about the third; every program has a place on the map."""
    dataset = fill(tmp_path_factory.mktemp("sample") / "data", 40, platforms=("sse42", "avx2", "avx512"))
    programs = dataset.programs(["program"])
    places = programs.assign(x=np.arange(len(programs), dtype=np.float32), y=np.float32(0))
    about = {
        "scope": "all",
        "n": len(programs),
        "of": len(programs),
        "seed": 0,
        "trustworthiness": None,
        "dataset_version": dataset.version,
    }
    store_map(dataset, "all", Map(places, about))
    return dataset


@pytest.fixture
def data(filled, tmp_path, monkeypatch):
    monkeypatch.setenv("TCL_WORKSPACE", str(tmp_path / "workspace"))
    monkeypatch.setenv("TCL_LOCK_DIR", str(tmp_path))
    monkeypatch.setenv("TCL_APP_BUILTIN", "0")
    monkeypatch.setenv("TCL_APP_DATASETS", str(filled.path))
    monkeypatch.setattr("app.bench_results.ASSETS", tmp_path)  # nobody has compared samplers yet
    return filled


def opened(**query) -> AppTest:
    at = AppTest.from_file(str(APP / "main.py"), default_timeout=60).run()
    for name, value in query.items():
        at.query_params[name] = value
    at.switch_page("app_pages/sample.py").run()
    assert not at.exception
    return at


def words(at: AppTest) -> str:
    return "\n".join(e.value for kind in (at.caption, at.markdown, at.subheader) for e in kind)


def test_two_samplers_stand_side_by_side_and_the_budget_is_a_knob(data):
    at = opened()
    n = len(data.programs(["program"]))
    assert words(at).count(f"{round(0.1 * n)} picked of {n}") == 2
    assert "made without combined score" in words(at)  # random looks at nothing
    at.slider(key="budget").set_value(20).run()
    assert words(at).count(f"{round(0.2 * n)} picked of {n}") == 2
    at.selectbox(key="beside").set_value("kcenter").run()
    assert "made without" not in words(at) and not at.exception


def test_a_platforms_uncertainty_comes_from_a_job_and_is_then_played_with(data):
    from app.sampling_work import judgement_file, judging, show

    at = opened(sampler="rdu")
    at.selectbox(key="sample-platform").set_value("avx2").run()
    assert "have not been asked yet" in words(at)
    request = judging(Request(data.path.resolve(), platform="avx2"))
    file = judgement_file(request, data.version)
    sample(request, file.with_suffix(".csv"), scores=file)  # what the page's button runs in the background
    at.selectbox(key="sample-color").set_value("uncertainty").run()
    assert "have not been asked" not in words(at) and "made without uncertainty" in words(at)  # random's, not RDU's
    assert words(at).count("made without uncertainty") == 1
    at.slider(key="weight-u").set_value(3.0).run()
    assert not at.exception and "preview" not in words(at)
    # What is played with in the page is what the command picks.
    request = replace(request, sampler="rdu:u=3", seed=4)
    assert_frame_equal(show("rdu", request, data.version).sampled.programs, select(request).programs)


def test_rounds_without_a_model_are_played_those_with_one_are_a_job(data):
    at = opened(sampler="kcenter", beside="nothing")
    at.selectbox(key="sample-platform").set_value("avx2").run()
    at.slider(key="rounds").set_value(2).run()
    assert not at.exception and "Rounds train models" not in words(at)
    rounds = next(g for g in at.get("button_group") if g.proto.label == "What each round added")
    assert [o.content for o in rounds.proto.options] == ["all rounds", "round 1", "round 2"]
    at.selectbox(key="sampler").set_value("rdu").run()
    assert "Rounds train models in between" in words(at) and "preview" in words(at)


def test_why_a_clicked_program(data):
    identity = format_id(int(data.programs(["program"])["program"].iloc[5]))
    at = opened(why=identity, sampler="rdu")
    assert f"Why {identity}" in words(at)
    assert any(s in words(at) for s in ("picked of", "Not picked"))
    assert words(at).count("**rdu**") >= 2


def test_the_selection_is_saved_and_shown_again(data):
    at = opened(sampler="rdu")
    next(b for b in at.button if b.label == "Save as a selection").click().run()
    assert not at.exception
    (name,) = list_selections(data)
    kept, about = load_selection(data, name)
    assert about["sampler"] == "rdu" and len(kept) == round(0.1 * len(data.programs(["program"])))
    at.selectbox(key="sampler").set_value(f"saved: {name}").run()
    assert not at.exception and f"**saved: {name}**" in words(at)


def test_curves_tell_who_wins_and_without_any_the_command(data, tmp_path):
    at = opened()
    assert any("tcl bench sampling" in c.value for c in at.code)
    rows = []
    for sampler, value in (("rdu", 0.8), ("random", 0.7), ("kmeans", 0.9), ("all", 0.95)):
        row = {"sampler": sampler, "fraction": 1.0 if sampler == "all" else 0.1}
        rows.append(row | {m + s: v for m in ("top1_mean", "top5_mean", "pairwise") for s, v in (("", value), ("_sd", 0.01))})
    folder = tmp_path / "workspace" / "bench"
    folder.mkdir(parents=True)
    (folder / "sampling.json").write_text(json.dumps({"bench": "sampling", "rows": rows, "goals": [], "machine": {}}))
    at = opened()
    assert "**kmeans wins**" in words(at) and "RDU does not win" in words(at)
    assert at.selectbox(key="sampler").value == "kmeans"  # the winner is what the page starts with


def test_the_shipped_comparison_says_who_wins(data, monkeypatch):
    monkeypatch.setattr("app.bench_results.ASSETS", ASSETS)
    results = bench_results("sampling")
    at = opened()
    assert at.selectbox(key="sampler").value == DEFAULT  # one's own result would choose
    for label, result in results.items():
        if len(results) > 1:
            at.segmented_control(key="curve-result").set_value(label).run()
        tenth = {r["sampler"]: r["top1_mean"] for r in result["rows"] if r["fraction"] == 0.1}
        best = max((s for s in tenth if s not in ABLATIONS), key=tenth.__getitem__)
        assert f"programs **{best} " in words(at) and f"{tenth[best]:.3f}" in words(at)
        assert len(tenth) >= 10


def test_a_large_pool_is_thinned_and_says_so(data, monkeypatch):
    import app.sampling_work as work

    monkeypatch.setattr(work, "PLAYED", 90)
    for cached in (work._pool, work._picked):
        cached.clear()
    at = opened()
    n = len(data.programs(["program"]))
    assert f"Picked from 90 of {n} programs" in words(at) and "9 picked of 90" in words(at)
    assert "preview" in words(at)  # what is thinned is not exported
    for cached in (work._pool, work._picked):
        cached.clear()


@pytest.mark.parametrize("settings", [{"programs_a_task": 1, "tasks": 1, "unmeasured": 0.0}, {"failing": 1.0}])
def test_one_record_and_all_failed(tmp_path, monkeypatch, settings):
    monkeypatch.setenv("TCL_WORKSPACE", str(tmp_path / "workspace"))
    monkeypatch.setenv("TCL_LOCK_DIR", str(tmp_path))
    monkeypatch.setenv("TCL_APP_BUILTIN", "0")
    monkeypatch.setenv("TCL_APP_DATASETS", str(fill(tmp_path / "data", **settings).path))
    at = opened()
    assert "No map of this yet" in words(at)
    said = [e.value for e in at.error]  # a tenth of one program is none
    assert said == (["There is 1 program to pick from: give a larger share."] if "tasks" in settings else [])
    at.selectbox(key="sample-platform").set_value("avx2").run()
    at.slider(key="budget").set_value(100).run()
    assert not at.exception
