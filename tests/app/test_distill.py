"""The Distill page: a sequence is built, started, watched and read; and what it shows where there is nothing to learn from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from tcl.jobs.store import ALIVE, DONE, all_jobs
from tcl.views import continual
from tests.continual.conftest import write
from tests.jobs.conftest import until
from tests.views.conftest import fill

MAIN = Path(__file__).parent.parent.parent / "app" / "main.py"


@pytest.fixture
def page(tmp_path, monkeypatch):
    """Opens the page on these datasets, in a workspace of its own."""
    monkeypatch.setenv("TCL_WORKSPACE", str(tmp_path / "workspace"))
    monkeypatch.setenv("TCL_LOCK_DIR", str(tmp_path))
    monkeypatch.setenv("TCL_APP_BUILTIN", "0")

    def opened(*datasets) -> AppTest:
        monkeypatch.setenv("TCL_APP_DATASETS", ":".join(str(d.path) for d in datasets))
        at = AppTest.from_file(str(MAIN), default_timeout=60).run()
        at.switch_page("app_pages/distill.py").run()
        assert not at.exception, at.exception
        return at

    return opened


def words(at: AppTest) -> str:
    """Everything that is written on the page."""
    kinds = (at.markdown, at.caption, at.subheader, at.info, at.warning, at.error, at.code)
    return "\n".join(str(element.value) for kind in kinds for element in kind)


def order_of(at: AppTest) -> str:
    command = next(c.value for c in at.code if c.value.startswith("tcl distill"))
    return command.split("--order ")[1].split()[0]


def start_button(at: AppTest):
    return next((b for b in at.button if b.label == "Start distilling"), None)


def test_nothing_at_all(page):
    text = words(page())
    assert "There is no data yet" in text and "No knowledge base yet" in text


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ({"failing": 1.0}, "Every measurement in this dataset failed"),
        ({"unmeasured": 1.0}, "no measurements"),
        ({"programs_a_task": 1, "tasks": 1, "failing": 0.0, "unmeasured": 0.0}, "The dataset has 1 task."),
        ({"platforms": ("only",)}, "One platform can be learned"),
    ],
)
def test_little_to_learn_from(page, tmp_path, shape, said):
    at = page(fill(tmp_path / "data", **{"programs_a_task": 9} | shape))
    assert said in words(at)
    assert start_button(at).disabled == (shape in ({"failing": 1.0}, {"unmeasured": 1.0}))


def test_platforms_are_reordered(page, tmp_path):
    at = page(fill(tmp_path / "data", programs_a_task=9))
    assert order_of(at) == "avx2,avx512"
    assert any("likely to help" in d.value.to_csv() for d in at.dataframe)  # both platforms of this dataset agree
    at.button(key="down-avx2").click().run()
    assert order_of(at) == "avx512,avx2"
    at.button(key="up-avx2").click().run()
    assert order_of(at) == "avx2,avx512"
    at.multiselect[0].set_value([]).run()
    assert not at.exception and start_button(at).disabled


def test_kinds_are_mixed_only_when_asked(page, tmp_path):
    at = page(write(tmp_path / "data", platforms=("a100", "xeon"), kinds={"xeon": "cpu"}, programs=6))
    assert order_of(at) == "a100"
    at.multiselect[0].set_value(["a100", "xeon"]).run()
    assert any("kept apart" in w.value for w in at.warning) and start_button(at).disabled
    at.checkbox(key="mixed").check().run()
    assert not start_button(at).disabled
    assert "--mixed" in words(at)


@pytest.mark.timeout(400)
def test_a_run_from_the_button_to_its_slices(page, tmp_path):
    """A real job, started on the page; then every view of what it left, and the next platform offered."""
    data = write(tmp_path / "data", programs=12)
    at = page(data)
    at.multiselect[0].set_value(["a100", "b200"]).run()
    at.number_input(key="distill-epochs").set_value(1).run()
    at.slider(key="distill-share").set_value(50).run()
    start_button(at).click().run()
    job = all_jobs()[0]
    assert "Distill a100 → b200" in job.about["title"]
    try:
        until(lambda: job.state == DONE, 270)  # some 15 s of work, but a crowded machine
    finally:
        if job.state in ALIVE:
            job.cancel()
    at.run()
    assert not at.exception, at.exception
    folder = tmp_path / "workspace" / "models" / "knowledge-base"
    assert continual.read(folder).names == ["a100", "b200"]
    assert {m.label for m in at.metric} >= {"Average top-1", "Forgetting", "Worst slice", "Size"}
    assert "By task" in words(at) and "No operator and no task" in words(at)
    for view, said in (("Transfer", "rank agreement"), ("Maps", "moved"), ("Size and data", "no program of the past")):
        at.segmented_control(key="view-knowledge-base").set_value(view).run()
        assert not at.exception, (view, at.exception)
        assert said in words(at), view
    at.selectbox(key="distill-into").set_value("knowledge-base").run()
    assert "nothing new to learn" in words(at) and start_button(at).disabled
    at.multiselect[0].set_value(["a100", "c300"]).run()
    assert order_of(at) == "c300"


def test_a_cancelled_run_goes_on(page, tmp_path):
    at = page(write(tmp_path / "data", programs=6))
    start_button(at).click().run()
    first = all_jobs()[0]
    first.cancel()
    at.run()
    assert "No platform was finished" in words(at)
    at.button(key=f"go-on-{first.id}").click().run()
    assert not at.exception
    again = next(job for job in all_jobs() if job.id != first.id)
    again.cancel()
    assert again.about["argv"] == first.about["argv"]


def test_benchmark(page, tmp_path, monkeypatch):
    monkeypatch.setattr("app.bench_results.ASSETS", tmp_path)  # without the results that are shipped
    at = page()
    at.segmented_control(key="distill-section").set_value("Benchmark").run()
    assert "No benchmark result yet" in words(at) and "tcl bench continual" in words(at)
    result = {
        "bench": "continual", "rows": [{"order": "a > b", "seed": 0}], "missing": ["ours a > b seed 1"], "settings": {}, "machine": {},
        "summary": [{"method": "ours", "rows": 1, "target_top1": 0.7, "size_mb": 0.78}, {"method": "joint", "rows": 1, "target_top1": 0.8}],
        "goals": [{"name": "worst slice", "target": 0.03, "value": 0.2, "at_most": True, "met": False}],
        "agreement": [{"source": "a", "target": "b", "shared_programs": 3, "spearman": 0.5, "gained": None}],
    }  # fmt: skip
    bench = tmp_path / "workspace" / "bench"
    bench.mkdir(parents=True)
    (bench / "continual.json").write_text(json.dumps(result))
    at.run()
    assert not at.exception, at.exception
    text = words(at)
    assert "0 of 1 met" in text and "1 runs are missing" in text and "Highest top-1 on the target: joint" in text
    (bench / "continual-cut.json").write_text('{"bench"')
    assert not at.run().exception
