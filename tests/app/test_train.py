"""The Train page: trainings of several kinds started from it, compared, looked into; and what it says where there is nothing."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from app import train_runs
from tcl.files import write_json
from tcl.jobs.store import ALIVE, all_jobs
from tcl.training import outcome
from tests.app import apptest
from tests.app.apptest import ran
from tests.jobs.conftest import until
from tests.views.conftest import fill

SECTIONS = ("Curves", "Ranks", "Errors", "Primitives", "Benchmarks")


@pytest.fixture(autouse=True)
def workspace(own_workspace, monkeypatch):
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")  # three trainings at once on few cores: who waits must not spin


def page(**query: str) -> AppTest:
    return apptest.page("train", **query)


def show(at: AppTest, section: str) -> AppTest:
    return apptest.show(at, "train-section", section)


def words(at: AppTest) -> str:
    return " ".join(e.value for kind in (at.markdown, at.caption, at.info, at.error, at.subheader, at.warning) for e in kind)


def alts(at: AppTest) -> list[str]:
    """What the charts are, as screen readers say it."""
    return [json.loads(c.proto.json)["alt"] for c in at.get("bidi_component")]


def start(at: AppTest) -> AppTest:
    return ran(next(b for b in at.button if b.label.startswith("Start training")).click().run())


def ended(count: int) -> list[str]:
    until(lambda: len(jobs := all_jobs()) == count and all(j.state not in ALIVE for j in jobs), 240)
    return [j.state for j in all_jobs()]


@pytest.mark.timeout(400)
def test_three_kinds_of_model_from_the_page_to_every_section(tmp_path, monkeypatch):
    data = fill(tmp_path / "data", tasks=6, programs_a_task=24)
    monkeypatch.setenv("TCL_APP_DATASETS", str(data.path))
    at = page()
    assert "No model trained yet" in words(at)
    at.multiselect(key="train-models").set_value(["xgb", "mlp", "mamba"])
    at.number_input(key="train-epochs").set_value(2)
    at = start(ran(at.run()))
    assert ended(3) == ["done"] * 3, [j.log() for j in all_jobs()]
    names = ["data-xgb", "data-mlp", "data-mamba"]
    at = page(runs=",".join(names), baseline="data-mlp")
    assert at.multiselect(key="train-compare").value == names and at.selectbox(key="train-baseline").value == "data-mlp"
    table = at.dataframe[0].value
    assert table["model"].tolist() == ["xgb", "mlp", "mamba"] and table["Δ pairwise"].iloc[1] == 0 and table["pairwise"].notna().all()
    assert table["Δ top1"].iloc[0] == pytest.approx(table["top1"].iloc[0] - table["top1"].iloc[1])
    drawn = {section: alts(show(at, section)) for section in SECTIONS}
    assert any("loss" in a for a in drawn["Curves"]) and any("minus the baseline" in a for a in drawn["Curves"])
    assert len(drawn["Ranks"]) == 2 and "Predicted against measured rank" in drawn["Ranks"][0] and drawn["Benchmarks"]
    assert any("by operator" in a for a in drawn["Errors"]) and drawn["Primitives"] == ["Importance of primitives"]
    for name in names:  # what the sections draw
        folder = tmp_path / "workspace" / "models" / name
        assert outcome.read_table(folder, outcome.ASSIGNMENTS)["best_program"].notna().all()
        assert outcome.read_json(folder, outcome.SCORES)["importance"]
    at = show(at, "Ranks")
    assert sum("measured rank" in c.value for c in at.caption) == 2  # the run, and the baseline beside it
    # a second training of the same name gets a folder of its own
    assert train_runs.free_names(["data-xgb", "new", "new"]) == ["data-xgb-2", "new", "new-2"]


def test_where_one_program_was_measured_the_page_says_why_nothing_is_learnt(tmp_path, monkeypatch):
    dataset = fill(tmp_path / "data", programs_a_task=1, tasks=1, failing=0.0, unmeasured=0.0)
    monkeypatch.setenv("TCL_APP_DATASETS", str(dataset.path))
    at = page()
    at = start(ran(at.multiselect(key="train-models").set_value(["xgb"]).run()))
    assert ended(1) == ["failed"]
    at = page()
    assert "two programs of different latency" in words(at) or "No measured program" in words(at)
    for section in SECTIONS:
        at = show(at, section)


def test_where_all_failed_no_training_is_offered(tmp_path, monkeypatch):
    monkeypatch.setenv("TCL_APP_DATASETS", str(fill(tmp_path / "data", programs_a_task=4, failing=1.0).path))
    at = page()
    assert "Every measurement in this dataset failed" in " ".join(i.value for i in at.info)
    assert next(b for b in at.button if b.label == "Start training").disabled


def test_without_any_data(tmp_path, monkeypatch):
    monkeypatch.setattr("app.bench_results.ASSETS", tmp_path)  # nor the results that are shipped
    at = page()
    assert "There is no data yet" in words(at) and "No model trained yet" in words(at)
    assert not any(b.label.startswith("Start") for b in at.button)
    assert "tcl bench models" in " ".join(c.value for c in show(at, "Benchmarks").code)


def test_a_name_that_leads_elsewhere_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("TCL_APP_DATASETS", str(fill(tmp_path / "data").path))
    at = page()
    at = ran(at.text_input(key="train-name").set_value("../elsewhere").run())
    assert next(b for b in at.button if b.label.startswith("Start")).disabled and "A name is letters" in words(at)


def test_benchmark_results_of_the_workspace_say_who_wins(tmp_path, monkeypatch):
    monkeypatch.setattr("app.bench_results.ASSETS", tmp_path)
    folder = tmp_path / "workspace" / "bench" / "models"
    folder.mkdir(parents=True)
    values = {"mamba": (0.9, 0.92), "tlp": (0.7, 0.72)}
    for model, tops in values.items():
        for seed, top1 in enumerate(tops):
            row = {"dataset": "d", "platform": "p", "model": model, "seed": seed, "top1": top1, "parameters": 10}
            write_json(folder / f"{model}-{seed}.json", row)
    (folder / "half.json").write_text('{"dataset": "d", ')
    at = show(page(), "Benchmarks")
    assert "p of d: **mamba** is best, top-1 0.910 ± 0.014 (2 seeds)." in words(at)
    assert at.dataframe[0].value.loc["tlp"].tolist() == ["0.710 ± 0.014"]


def test_runs_are_jobs_and_folders_each_once_and_a_broken_off_one_can_go_on(tmp_path):
    workspace = tmp_path / "workspace"
    folder = workspace / "models" / "mine"
    (folder / "checkpoint").mkdir(parents=True)
    write_json(folder / "checkpoint" / "checkpoint.json", {"history": [{"epoch": 1, "loss": 0.5, "train_s": 1.0}]})
    for number, (resumed, state) in enumerate([(False, "cancelled"), (True, "stopped")]):
        job = workspace / "jobs" / f"2026010{number}-train-000{number}"
        job.mkdir(parents=True)
        argv = ["train", "data", "--model", "tlp", "--out", str(folder), "--json", *(["--resume"] if resumed else [])]
        write_json(job / "job.json", {"kind": "train", "argv": argv, "cwd": str(tmp_path), "created": 0.0})
        write_json(job / "state.json", {"state": state})
        events = [{"t": 1.0, "kind": "epoch", "epoch": 2, "loss": 0.4, "train_s": 1.0}] if resumed else []
        (job / "events.jsonl").write_text("".join(json.dumps(e) + "\n" for e in events))
    terminal = workspace / "models" / "terminal"
    terminal.mkdir()
    write_json(terminal / "history.json", [])
    write_json(terminal / "model.json", {"model": "xgb", "settings": {}, "about": {"dataset": "elsewhere"}})
    (workspace / "models" / "other").mkdir()
    runs = {run.name: run for run in train_runs.all_runs()}
    assert list(runs) == ["mine", "terminal"]
    mine = runs["mine"]
    assert mine.state == "stopped" and mine.can_continue and mine.model == "tlp" and mine.dataset == tmp_path / "data"
    assert mine.curves["loss"].tolist() == [0.5, 0.4] and mine.scores == {} and not np.isfinite(mine.curves["valid_top1"]).any()
    other = runs["terminal"]
    assert other.state == "done" and not other.can_continue and other.loss == "" and other.dataset == Path("elsewhere")
    assert "Continue" in [b.label for b in page(runs="mine").button]


def test_links_to_the_programs_open_them_in_explore():
    from app.links import explore_link, explore_query

    assert explore_query("builtin", (1, -1, 1), "avx2") == {
        "data": "builtin", "platform": "avx2", "open": "0000000000000001,ffffffffffffffff",
    }  # fmt: skip
    assert explore_link("a b", (5,)) == "explore?data=a+b&open=0000000000000005"
