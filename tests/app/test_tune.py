"""The Tune page: what it starts, runs beside each other, every section, links, and what it says where there is nothing."""

from __future__ import annotations

import json
import shutil

import pytest
from streamlit.testing.v1 import AppTest

from app import bench_results, tune_runs, tune_setup
from tcl.files import write_json
from tcl.jobs.store import all_jobs, jobs_folder
from tcl.tuning.networks import NETWORKS
from tcl.tuning.operators import OPERATORS, parse
from tcl.workspace import ASSETS, workspace
from tests.app import apptest
from tests.app.apptest import ran

RECORDING = ASSETS / "recorded" / "tune-matmul-256"
SECTIONS = ("Tasks", "Time", "Model", "Schedule", "Result", "Report", "Benchmark")
pytestmark = pytest.mark.usefixtures("own_workspace")


def page(**query: str) -> AppTest:
    return apptest.page("tune", **query)


def show(at: AppTest, section: str) -> AppTest:
    return apptest.show(at, "section", section)


def words(at: AppTest) -> str:
    return " ".join(e.value for kind in (at.markdown, at.caption, at.info, at.error, at.subheader, at.warning, at.code) for e in kind)


def charts(at: AppTest) -> dict[str, dict]:
    """What screen readers say of a chart -> its figure."""
    told = [json.loads(c.proto.json) for c in at.get("bidi_component")]
    return {t["alt"]: json.loads(t["figure"]) for t in told}


def finished(identity: str, slower: float = 1.0, title: str = "", state: str = "done", events: int | None = None) -> str:
    """The recorded run as a job of the workspace, its latencies `slower` times as long."""
    folder = jobs_folder() / identity
    shutil.copytree(RECORDING, folder)
    about = json.loads((folder / "job.json").read_text())
    write_json(folder / "job.json", about | {"id": identity, "title": title or identity})
    lines = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    for event in lines:
        for key in ("latency_s", "best_s"):
            if event.get(key):
                event[key] *= slower
    lines.append({
        "t": 19.9, "kind": "best", "task": "b1501213b035c2c9", "name": "matmul:256,256,256", "operator": "matmul", "extents": [64],
        "format": "ansor", "program": "bf8efc08718c133d", "latency_s": 9e-5 * slower,
        "schedule": f'[["SP",0,0,64,[{int(4 * slower)}],1],["AN",0,0,3]]',
    })  # fmt: skip
    (folder / "events.jsonl").write_text("".join(json.dumps(e) + "\n" for e in lines[:events]))
    result = json.loads((folder / "result.json").read_text())
    write_json(folder / "result.json", result | {"best_latency_s": result["best_latency_s"] * slower} if state == "done" else {})
    write_json(folder / "state.json", {"state": state})
    return identity


def test_every_network_and_operator_is_offered():
    at = page(what="Network")
    assert list(at.selectbox(key="network").options) == list(NETWORKS)
    assert list(tune_setup.EXAMPLES) == list(OPERATORS)
    for operator, sizes in tune_setup.EXAMPLES.items():
        parse(f"{operator}:{sizes}")


def test_the_form_is_in_the_link():
    asked = {"operator": "conv2d", "sizes-conv2d": "1,8,14,14,8,3,3,1,1", "trials-one": "128", "tune-seed": "3"}
    assert "tcl tune conv2d:1,8,14,14,8,3,3,1,1 --trials 128" in words(page(**asked)) and "--seed 3" in words(page(**asked))
    at = page(operator="conv2d", **{"trials-one": "99999"})  # a mistyped link opens with the default
    assert f"tcl tune conv2d:{tune_setup.EXAMPLES['conv2d']} --trials 64" in words(at)
    at.selectbox(key="operator").set_value("softmax").run()
    assert f"tcl tune softmax:{tune_setup.EXAMPLES['softmax']}" in words(at)


def test_the_form_is_a_command(tmp_path):
    from tests.views.conftest import fill

    data = fill(tmp_path / "workspace" / "tuning" / "mine")  # what a run measures is offered to the next
    at = page()
    assert "tcl tune matmul:256,256,256 --trials 64 --strategy decisions --cost-model xgb --target native" in words(at)
    at.selectbox(key="strategy").set_value("tvm")
    (earlier,) = at.selectbox(key="warm-start").options[1:]
    at.selectbox(key="warm-start").set_value(earlier)
    at.number_input(key="tune-seed").set_value(3)
    assert f"--strategy tvm --cost-model xgb --target native --warm-start {data.path} --seed 3" in words(ran(at.run()))
    at.selectbox(key="strategy").set_value("random")
    assert "--strategy random --cost-model random" in words(ran(at.run()))
    assert "model" not in [s.key for s in at.selectbox]
    at.text_input(key="sizes-matmul").set_value("256,x,256")
    at = ran(at.run())
    assert at.error and next(b for b in at.button if b.label == "Start tuning").disabled


def test_a_file_by_its_path(tmp_path):
    at = page(what="File")
    start = lambda: next(b for b in at.button if b.label == "Start tuning")  # noqa: E731
    assert start().disabled
    at.text_input(key="model_file").set_value(str(tmp_path / "mine.onnx"))
    at = ran(at.run())
    assert start().disabled and "There is no file" in at.error[0].proto.title + at.error[0].value
    (tmp_path / "mine.onnx").write_bytes(b"")
    at = ran(at.run())
    assert not start().disabled and f"tcl tune {tmp_path / 'mine.onnx'} --trials 256" in words(at)


def test_starting_again_is_a_new_run_that_is_drawn_first():
    finished("20260101-000000-tune-aaaa")
    at = page()
    for expected in (2, 3):
        at = ran(next(b for b in at.button if b.label == "Start tuning").click().run())
        assert len(all_jobs()) == expected
    folders = {job.about["argv"][job.about["argv"].index("--out") + 1] for job in all_jobs() if job.id != "20260101-000000-tune-aaaa"}
    assert len(folders) == 2  # in one folder the second would have nothing left to measure
    newest = next(job.id for job in all_jobs() if job.about["argv"][-2].endswith("-2"))
    assert at.multiselect(key="tune-runs").value[0] == newest == at.selectbox(key="tune-look").value
    assert "Nothing measured yet" in words(at)


def test_runs_beside_each_other_and_every_section():
    a, b = finished("20260101-000000-tune-aaaa", title="slow", slower=2.0), finished("20260101-000001-tune-bbbb", title="fast")
    at = page(runs=f"{a},{b}", baseline=a, job=b)
    assert at.selectbox(key="tune-baseline").value == a and at.selectbox(key="tune-look").value == b
    shown = charts(at)
    both = next(figure for alt, figure in shown.items() if alt.startswith("Best latencies of 2 runs"))
    assert [t["name"] for t in both["data"]] == ["slow · aaaa", "fast · bbbb"] and both["data"][0]["line"]["dash"] == "dash"
    table = at.dataframe[0].value.set_index("run")
    assert table["ratio"].round(6).tolist() == [1.0, 2.0]
    assert table.loc["fast · bbbb", "reach_trials"] < table.loc["baseline: slow · aaaa", "reach_trials"]
    at = ran(at.toggle(key="relative").set_value(True).run())
    relative = next(figure for alt, figure in charts(at).items() if alt.startswith("Best latencies of 2 runs"))
    (line,) = relative["data"]
    assert line["name"] == "fast · bbbb" and line["line"]["color"] == both["data"][1]["line"]["color"]

    tasks = at.dataframe[1].value
    assert tasks["operator"].tolist() == ["matmul"] and tasks["roofline"].iloc[0] == pytest.approx(0.9117, abs=1e-3)
    at = show(at, "Time")
    bars = charts(at)["Where the time went, one bar a run"]
    assert {y for t in bars["data"] for y in t["y"]} == {"slow · aaaa", "fast · bbbb"}
    at = show(at, "Model")
    assert {"Rank correlation, each batch", "Predicted score against measured latency"} <= charts(at).keys()
    at = show(at, "Schedule")
    assert "bf8efc08718c133d" in words(at) and at.dataframe[1].value["change"].tolist() == ["differs"]
    assert ran(at.toggle(key="schedule-only").set_value(False).run()).dataframe[1].value["change"].tolist() == ["differs", ""]
    at = show(at, "Result")
    assert "tcl tune matmul:256,256,256 --trials 64" in words(at)
    at = show(at, "Report")
    assert f"tcl report {a} {b} --baseline {a} --out report.html" in words(at)
    assert at.get("download_button")


def test_the_choice_is_in_the_address():
    a, b = finished("20260101-000000-tune-aaaa"), finished("20260101-000001-tune-bbbb")
    at = page()
    assert at.query_params["runs"] == b == at.query_params["job"] and "baseline" not in at.query_params
    ran(at.multiselect(key="tune-runs").set_value([b, a]).run())
    ran(at.selectbox(key="tune-baseline").set_value(b).run())
    at = ran(at.selectbox(key="tune-look").set_value(a).run())
    assert at.query_params["runs"] == f"{b},{a}" and at.query_params["baseline"] == b and at.query_params["job"] == a
    at = ran(at.multiselect(key="tune-runs").set_value([a]).run())
    assert at.query_params["job"] == a and "baseline" not in at.query_params
    assert "Choose a run above" in words(ran(at.multiselect(key="tune-runs").set_value([]).run()))
    at = page(runs=f"gone,{a}")
    assert at.multiselect(key="tune-runs").value == [a] and "`gone`" in at.toast[0].value


@pytest.mark.parametrize("section", SECTIONS)
def test_a_recording_without_schedules_and_a_run_with_nothing(section):
    """Recordings that ship with the project, and a job that was cancelled before it measured anything."""
    finished("20260101-000000-tune-cccc", state="cancelled", events=2)
    at = page(runs="tune-matmul-256,20260101-000000-tune-cccc", job="20260101-000000-tune-cccc", section=section)
    assert "Nothing was measured" in words(at)
    at = page(runs="tune-matmul-256", section=section)
    if section == "Schedule":
        assert "does not hold its schedules" in words(at)
    if section == "Report":
        assert f"tcl report {RECORDING}" in words(at)


def test_a_broken_off_run_can_go_on(tmp_path):
    identity = finished("20260101-000000-tune-cccc", state="cancelled", events=20)
    about = json.loads((jobs_folder() / identity / "job.json").read_text())
    write_json(jobs_folder() / identity / "job.json", about | {"cwd": str(tmp_path)})
    at = page(runs=identity)
    at = ran(next(b for b in at.button if b.label == "Continue").click().run())
    newest = max(all_jobs(), key=lambda job: job.about["created"])
    again = newest.about["argv"]
    assert again[again.index("--out") + 1] == str(tmp_path / "workspace/tune/matmul-256")  # wherever the app was started
    assert [a for a in again if "matmul-256" not in a] == [a for a in about["argv"] if "matmul-256" not in a]
    assert at.query_params["job"] == newest.id
    assert not [b for b in page(runs="tune-matmul-256").button if b.label == "Continue"]


@pytest.mark.browser
@pytest.mark.timeout(180)
def test_the_report_from_the_page_opens_without_a_network(browser, tmp_path):
    from tests.app.serving import app

    a, b = finished("20260101-000000-tune-aaaa", title="slow", slower=2.0), finished("20260101-000001-tune-bbbb", title="fast")
    with app(tmp_path / "workspace") as address:
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        opened = context.new_page()
        opened.goto(f"{address}/tune?runs={a},{b}&baseline={a}&section=Report")
        opened.wait_for_selector(".tcl-chart[data-drawn]", timeout=60_000)
        with opened.expect_download() as download:
            opened.get_by_role("button", name="Report of the 2 chosen runs").click()
        download.value.save_as(tmp_path / "report.html")
        context.close()
    context = browser.new_context(offline=True)
    opened = context.new_page()
    problems: list[str] = []
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on("request", lambda request: request.url.startswith("file:") or problems.append(request.url))
    opened.goto(f"file://{tmp_path}/report.html")
    opened.wait_for_function("document.querySelectorAll('.main-svg').length > 0")
    drawn = opened.evaluate("[...document.querySelectorAll('.js-plotly-plot')].map(c => c.querySelectorAll('.main-svg').length)")
    context.close()
    assert not problems and len(drawn) == 3 + 2 * 5 and all(drawn)  # latency twice, the ratio; five of each run


def test_nothing_at_all(monkeypatch, tmp_path):
    monkeypatch.setattr(tune_runs, "ASSETS", tmp_path)
    assert "No tuning run yet" in words(page())


def test_the_benchmark_that_ships_is_shown():
    rows = json.loads((ASSETS / "results" / "tuning.json").read_text())["rows"]
    subject, methods = rows[0]["subject"], {r["method"] for r in rows}
    at = show(page(), "Benchmark")
    assert f"Best latency of {subject} against seconds" in charts(at) and f"{len(rows):,} runs" in words(at)
    assert methods == {"tvm/xgb", "decisions/mlp", "decisions/kb"} and "**ours, kb** against TVM, xgb at equal trials" in words(at)


def test_the_benchmark_tells_losses_too(monkeypatch, tmp_path):
    monkeypatch.setattr(bench_results, "ASSETS", tmp_path)
    at = show(page(), "Benchmark")
    assert "Nobody has run it here yet" in words(at) and "tcl bench tuning --set trials=500" in words(at)
    from tests.views.test_tuning_bench import row

    timed = {"pytorch_ms": 0.5}
    rows = [row("matmul:8,8,8", "tvm/xgb", 0, 2.0, 1.0, **timed), row("matmul:8,8,8", "decisions/kb", 0, 1.0, 8.0, **timed)]
    goals = [{"name": "times", "target": 16.8, "value": 8.0, "at_most": False, "met": False}]
    result = {
        "bench": "tuning",
        "caution": "Handle with care.",
        "rows": rows,
        "missing": 3,
        "goals": goals,
        "machine": {},
        "asked": {"trials": 500},
    }
    (workspace() / "bench").mkdir()
    write_json(workspace() / "bench" / "tuning.json", result)
    at = show(page(), "Benchmark")
    assert "**slower** on `matmul:8,8,8` (2.00 times as long)" in words(at) and "3 operators or networks with a seed not done" in words(at)
    assert at.warning[0].value == "Handle with care."
    assert "Best latency of matmul:8,8,8 against seconds" in charts(at) and "not met] times: **8** (goal: at least 16.8)" in words(at)
    write_json(workspace() / "bench" / "tuning.json", result | {"rows": []})
    assert "stopped before its first operator" in words(show(page(), "Benchmark"))
