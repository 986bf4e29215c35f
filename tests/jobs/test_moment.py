"""A recording at any moment: of each kind of job, what its live view would have read then."""

from __future__ import annotations

import json

import pytest

from tcl.jobs import replay
from tcl.jobs.replay import Moment, length
from tcl.jobs.store import DONE, RUNNING, Job, new_job
from tcl.jobs.tuning_run import is_tuning
from tcl.views import recorded

EVENTS = {
    "tune": [
        {"kind": "task", "task": "a", "name": "m"},
        *({"kind": "measured", "trial": i, "task": "a", "latency_s": 1e-3} for i in range(9)),
    ],
    "collect": [{"kind": "measured", "task": "m", "platform": f"p{i % 2}", "programs": 4} for i in range(10)],
    "train": [{"kind": "epoch", "epoch": i + 1, "loss": 1 / (i + 1), "valid_top1": 0.5, "train_s": 1.0} for i in range(10)],
    "distill": [
        {"kind": "sequence", "order": ["p", "q"]},
        *({"kind": "epoch", "phase": "learn", "platform": "p", "epoch": i + 1, "loss": 1.0} for i in range(8)),
        {"kind": "consolidated", "platform": "p", "row": {"p": {"top1": 0.8}}},
    ],
    "other": [{"kind": "step", "done": i, "total": 10, "message": f"step {i}"} for i in range(10)],
}


def write(folder, events):
    folder.mkdir(parents=True)
    lines = [json.dumps({"t": float(i), **e}) for i, e in enumerate(events)]
    (folder / "events.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "job.json").write_text(json.dumps({"id": folder.name, "kind": "x", "argv": ["x"], "created": 0}))
    (folder / "state.json").write_text('{"state": "done"}')
    (folder / "result.json").write_text('{"best_latency_s": 0.001}')
    return folder


@pytest.mark.parametrize("kind", EVENTS)
def test_a_moment_holds_what_was_told_until_then(tmp_path, kind):
    folder = write(tmp_path / kind, EVENTS[kind])
    whole = length(folder)
    assert whole == len(EVENTS[kind]) - 1
    middle, end = Moment(folder, at=4.5), Moment(folder, at=whole)
    assert len(middle.events()) == 5 and middle.state == RUNNING and middle.result is None
    assert len(end.events()) == len(EVENTS[kind]) and end.state == DONE and end.result == {"best_latency_s": 0.001}
    assert recorded.kind_of(end.progress["latest"]) == kind
    assert middle.progress["active_s"] == 4.5
    if kind == "other":
        assert middle.progress["done"] == 4 and middle.progress["message"] == "step 4"
        assert len(recorded.steps_figure(middle.events()).data[0].x) == 5
    if kind == "collect":
        frame = recorded.collected(middle.events())
        assert frame.groupby("platform")["total"].max().to_dict() == {"p0": 12, "p1": 8}
        assert len(recorded.collected_figure(frame).data) == 2


def test_recordings_are_those_shipped_and_those_that_ended(tmp_path, monkeypatch):
    monkeypatch.setenv("TCL_WORKSPACE", str(tmp_path / "workspace"))
    monkeypatch.setattr(replay, "ASSETS", tmp_path / "assets")
    shipped = write(tmp_path / "assets" / "recorded" / "shown", EVENTS["tune"])
    mine = write(tmp_path / "workspace" / "jobs" / "1-tune-abcd", EVENTS["tune"])
    (write(tmp_path / "workspace" / "jobs" / "2-tune-dcba", EVENTS["tune"]) / "events.jsonl").write_text("")
    assert [job.path for job in replay.recordings()] == [shipped.resolve(), mine.resolve()]
    assert length(tmp_path) == 0 and Moment(tmp_path, at=1.0).events() == []


@pytest.mark.parametrize("kind", ["tune", "train"])
def test_a_replay_is_known_before_it_told_anything(tmp_path, monkeypatch, kind):
    monkeypatch.setenv("TCL_WORKSPACE", str(tmp_path / "workspace"))
    source = write(tmp_path / "recorded", EVENTS[kind])
    job = Job(new_job("replay", ["jobs", "replay", str(source), "--speed", "1"]))
    assert is_tuning(job) == (kind == "tune")
    gone = Job(new_job("replay", ["jobs", "replay", str(tmp_path / "gone")]))
    assert not is_tuning(gone)
