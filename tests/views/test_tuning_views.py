"""Figures and tables of tuning runs: several beside each other, where the time went, what the model learned, the report."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tcl.jobs.store import Job
from tcl.jobs.tuning_run import events_of, recorded
from tcl.views import tuning, tuning_model, tuning_runs, tuning_time
from tcl.views.tuning_report import Recorded, report
from tcl.workspace import ASSETS

RECORDING = ASSETS / "recorded" / "tune-matmul-256"


def run(latencies, *, start=2.0, step=1.0, batch=1, scores=None, task="a"):
    """Events of a run whose search begins at second `start`; one measurement each `step` seconds, a failure where there is no latency."""
    events = [{"kind": "phase", "t": start, "name": "search"},
              {"kind": "task", "t": start, "task": task, "name": "matmul", "operator": "matmul", "weight": 1.0, "trials": len(latencies),
               "best_s": min((v for v in latencies if v), default=None), "flops": 2e6, "bytes": 1e3}]  # fmt: skip
    for i, latency in enumerate(latencies):
        events.append({
            "kind": "measured", "t": start + step * (i + 1), "trial": i + 1, "batch": i // batch + 1, "task": task, "latency_s": latency,
            "error": "" if latency else "run_timeout", "predicted": scores[i] if scores else None, "program": f"{i:016x}",
        })  # fmt: skip
    return events


def test_curves_begin_with_the_search():
    curve = tuning_runs.curve(run([4e-3, None, 2e-3], start=10.0))
    assert curve["trials"].tolist() == [1, 2, 3] and curve["seconds"].tolist() == [1.0, 2.0, 3.0]
    assert curve["best_s"].tolist() == [4e-3, 4e-3, 2e-3]


def test_ratio_compares_with_the_baseline_at_the_same_moment():
    slow, fast = tuning_runs.curve(run([8e-3, 4e-3, 4e-3], step=2.0)), tuning_runs.curve(run([8e-3, 2e-3, 1e-3, 1e-3]))
    by_trials = tuning_runs.ratio(fast, slow)
    assert by_trials["trials"].tolist() == [1, 2, 3] and by_trials["ratio"].tolist() == [1.0, 2.0, 4.0]  # the baseline has no fourth
    by_seconds = tuning_runs.ratio(fast, slow, "seconds")
    assert by_seconds["seconds"].tolist() == [2, 3, 4] and by_seconds["ratio"].tolist() == [4.0, 8.0, 4.0]  # it has its first after 2 s
    assert tuning_runs.ratio(fast, tuning_runs.curve(run([None]))).empty


def test_comparison_with_a_pinned_run():
    curves = {"a": tuning_runs.curve(run([8e-3, 4e-3, 4e-3], step=2.0)), "b": tuning_runs.curve(run([4e-3, 2e-3])),
              "c": tuning_runs.curve(run([5e-3]))}  # fmt: skip
    table = tuning_runs.comparison(curves, "a", {"b": 2.2e-3}).set_index("run")
    assert table["best_s"].tolist() == [4e-3, 2e-3, 5e-3]
    assert table["ratio"].tolist() == [1.0, 2.0, 0.8]  # the baseline was not measured again: curves compare
    assert table.loc["b", ["reach_trials", "reach_seconds", "times"]].tolist() == [1, 1.0, 4.0]
    assert table.loc["c", ["reach_trials", "times"]].isna().all()
    assert tuning_runs.comparison(curves, "a", {"a": 4.4e-3, "b": 2.2e-3}).set_index("run").loc["b", "ratio"] == 2.0
    assert "ratio" not in tuning_runs.comparison(curves, "gone")


@pytest.mark.parametrize("against", ["trials", "seconds"])
@pytest.mark.parametrize("relative", [False, True])
def test_figures_of_several_runs(against, relative):
    curves = {"a": tuning_runs.curve(run([8e-3, 4e-3])), "b": tuning_runs.curve(run([4e-3, 2e-3])), "none": tuning_runs.curve([])}
    colors = {"a": "#000001", "b": "#000002", "none": "#000003"}
    figure = tuning_runs.curves_figure(curves, colors, against=against, baseline="a", relative=relative, references={"PyTorch": 1e-3})
    shown = {trace.name: trace for trace in figure.data}
    assert shown["b"].line.color == "#000002"
    if relative:
        assert "a" not in shown and list(shown["b"].y) == [2.0, 2.0] and figure.layout.shapes[0].y0 == 1
    else:
        assert shown["a"].line.dash == "dash" and list(shown["b"].y) == [4.0, 2.0]  # ms
        assert figure.layout.shapes[0].y0 == pytest.approx(1.0)
    figure.to_json()


def test_words_of_near_lines_do_not_overlap():
    figure = tuning.best_figure(tuning.measured(run([1e-3])), references={"one": 1e-3, "two": 1.1e-3, "three": 1e-2})
    at = {label.text.split()[0]: label.x for label in figure.layout.annotations}
    assert at["two"] < at["one"] == at["three"] == 1


def test_batches_are_numbered_or_told_by_their_gaps():
    told = run([1e-3] * 6, batch=2)
    assert tuning.measured(told)["batch"].tolist() == [1, 1, 2, 2, 3, 3]
    for i, event in enumerate(e for e in told if e["kind"] == "measured"):
        del event["batch"]
        event["t"] = 5.0 * (i // 3) + 0.001 * i
    assert tuning.measured(told)["batch"].tolist() == [1, 1, 1, 2, 2, 2]
    assert tuning.measured(events_of(Job(RECORDING)))["batch"].nunique() == 4  # of 16 programs each


def test_rank_correlation_of_a_batch():
    latencies = [1e-3 * (i + 1) for i in range(7)]
    right, wrong = [7.0 - i for i in range(7)], [float(i) for i in range(7)]
    frame = tuning.measured(run(latencies * 2, batch=7, scores=right + wrong))
    rows = tuning_model.learning(frame)
    assert rows["tau"].tolist() == [1.0, -1.0] and rows["pairs"].tolist() == [21, 21] and rows["trial"].tolist() == [7, 14]
    one_swap = [7.0, 6.0, 5.0, 4.0, 3.0, 1.0, 2.0]
    assert tuning_model.learning(tuning.measured(run(latencies, batch=7, scores=one_swap)))["tau"].iloc[0] == pytest.approx(19 / 21)
    constant = tuning_model.learning(tuning.measured(run(latencies, batch=7, scores=[1.0] * 7)))
    assert constant["tau"].tolist() == [0.0]


def test_small_batches_are_put_together_but_never_compared():
    scores = [2.0, 1.0, 0.2, 0.1] * 10  # right within each batch of two; between batches they say nothing
    frame = tuning.measured(run([1e-3, 2e-3, 1e-6, 2e-6] * 10, batch=2, scores=scores))
    rows = tuning_model.learning(frame)
    assert rows["pairs"].tolist() == [20] and rows["tau"].tolist() == [1.0]
    random = tuning.measured(run([1e-3] * 30, batch=10))
    assert tuning_model.learning(random).empty and not tuning_model.learning_figure({"a": tuning_model.learning(random)}, {}).data


def test_chosen_against_random():
    frame = tuning.measured(run([4e-3, 2e-3, 1e-3, 1e-3], scores=[None, None, 1.0, 2.0]))
    assert tuning_model.chosen_against_random(frame) == {"chosen": 1e-3, "random": 3e-3}
    assert tuning_model.chosen_against_random(tuning.measured(run([1e-3]))) == {}


def test_the_parts_of_the_time_are_the_whole():
    time_s = {"tasks": 2.0, "space": 1.0, "random": 0.5, "search": 6.0, "features": 2.0, "model": 1.0, "validate": 0.7, "learn": 0.25,
              "measure": 9.0, "build": 5.0, "run": 3.0, "waiting": 1.0, "compare": 4.0, "roofline": 3.0, "check": 0.5}  # fmt: skip
    found = tuning_time.parts(time_s, 40.0)
    assert found["search"] == 1.0 + 0.5 + 6.0 - 2.0 - 1.0 and found["features"] == 2.0 and found["cost model"] == 1.25
    assert found["comparing"] == 7.0 and sum(found.values()) == pytest.approx(40.0)
    figure = tuning_time.time_figure({"a": found, "b": tuning_time.parts({"build": 10.0}, 20.0)})
    assert sum(trace.x[0] for trace in figure.data) == pytest.approx(40.0)
    share = tuning_time.time_figure({"a": found}, share=True)
    assert sum(trace.x[0] for trace in share.data) == pytest.approx(100.0)
    assert tuning_time.time_table(found)["share"].sum() == pytest.approx(1.0)


def test_the_newest_word_on_the_time_counts():
    told = [{"kind": "time", "time_s": {"build": 1.0}, "seconds": 2.0}, {"kind": "time", "time_s": {"build": 3.0}, "seconds": 4.0}]
    assert tuning_time.spent(told)["build"] == 3.0 and tuning_time.spent([]) == {}
    recording = tuning_time.spent(events_of(Job(RECORDING)))
    assert recording["build"] == 3.135 and sum(recording.values()) == pytest.approx(17.881, abs=1e-3)


def test_tasks_held_against_the_roofline():
    tasks = tuning.tasks(run([1e-3]))
    held = tuning.held_against(tasks, {"flops": 1e10, "bandwidth": 1e9})
    assert held["roofline"].tolist() == [pytest.approx(2e6 / 1e10 / 1e-3)] and held["gflops"].tolist() == [2.0]
    narrow = tuning.held_against(tasks, {"flops": 1e10, "bandwidth": 1e6})
    assert narrow["roofline"].tolist() == [pytest.approx(1e3 / 1e6 / 1e-3)]  # traffic limits it
    assert np.isnan(tuning.held_against(tasks, None)["roofline"][0])
    assert tuning.held_against(tasks.assign(bytes=np.nan), {"flops": 1e10, "bandwidth": 1e9}, 0.5)["roofline"].tolist() == [0.5]
    again = tuning.tasks([*run([1e-3]), {"kind": "best", "task": "a", "latency_s": 2e-3}])
    assert again["best_s"].tolist() == [2e-3]  # measured once more at the end


class Page(HTMLParser):
    """What a browser would fetch, and the words outside scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.words: list[str] = []
        self.tags: list[str] = []
        self.skip = False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.skip = tag in ("script", "style")
        self.fetched += [v for k, v in attrs if k in ("src", "href") and v]

    def handle_endtag(self, tag):
        self.skip = False

    def handle_data(self, data):
        if not self.skip:
            self.words.append(data)


def test_a_report_holds_everything_and_fetches_nothing():
    page = Page(text := report([recorded(Job(RECORDING))]))
    words = " ".join(page.words)
    assert page.fetched == [] and "<!doctype html>" in text
    for told in ("tcl tune matmul:256,256,256 --trials 64", "91.5 µs", "Untuned", "xeon-2c-native", "64; failed: none", "91.2%"):
        assert told in words
    assert "--json" not in words and text.count("Plotly.newPlot(") == 5  # latency twice, time, learning twice


def test_a_report_of_several_escapes_and_compares():
    schedule = {"kind": "best", "t": 9.0, "task": "a", "name": "<b>&matmul", "operator": "matmul", "extents": [64], "format": "ansor",
                "program": "0" * 16, "schedule": '[["SP",0,0,64,[4],1],["AN",0,0,3]]', "latency_s": 2e-3}  # fmt: skip
    runs = [Recorded("a <script>x</script>", "tcl tune a", [*run([4e-3, 2e-3]), schedule]), Recorded("b", "tcl tune b", run([1e-3]))]
    page = Page(text := report(runs, "b", "a & b"))
    words = " ".join(page.words)
    assert page.tags.count("script") == 1 + text.count("Plotly.newPlot(") and "b" not in page.tags
    assert "a <script>x</script>" in words and "<b>&matmul" in words
    assert "split i (64) into 16 × 4" in words or "16 × 4" in words
    assert "× baseline" in words and "Times as fast as b" in words
    assert "Nothing was measured." in " ".join(Page(report([Recorded("empty", "tcl tune c", [])])).words)


def test_events_on_the_clock_of_the_run(tmp_path: Path):
    folder = tmp_path / "replay"
    folder.mkdir()
    (folder / "job.json").write_text('{"id": "r", "kind": "replay", "argv": ["jobs", "replay", "x", "--speed", "10"]}')
    (folder / "events.jsonl").write_text('{"t": 1.5, "kind": "phase", "name": "search"}\n')
    assert [e["t"] for e in events_of(Job(folder))] == [15.0]
    assert events_of(Job(tmp_path)) == []


def test_empty_tables():
    assert tuning_runs.comparison({"none": tuning_runs.curve([])}, "none")["best_s"].isna().all()
    assert isinstance(tuning.held_against(tuning.tasks([]), None), pd.DataFrame)
    tuning_time.time_figure({}).to_json()
