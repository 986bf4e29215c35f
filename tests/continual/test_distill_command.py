"""`tcl distill` as it is used: killed, moved to another place, stopped; and the plain files that a page reads."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from typer.testing import CliRunner

from tcl.cli import cli
from tcl.continual.movement import aligned, distance, flattened
from tcl.errors import UserError
from tcl.jobs.store import read_events
from tcl.views import continual

QUICK = ("--epochs", "2", "--fraction", "0.5", "--json")


def call(dataset, out, *arguments):
    return CliRunner().invoke(cli, ["distill", str(dataset.path), "--out", str(out), *QUICK, *arguments])


@pytest.fixture(scope="module")
def whole(dataset, tmp_path_factory):
    """A knowledge base of three platforms in one go, as a job: (folder, result, events)."""
    out, job = tmp_path_factory.mktemp("whole") / "kb", tmp_path_factory.mktemp("job")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TCL_JOB_DIR", str(job))
        done = call(dataset, out, "--order", "a100,b200,c300", "--compare")
    assert done.exit_code == 0, done.output
    return out, json.loads(done.stdout), read_events(job / "events.jsonl")


def timeless(history: list[dict]) -> list[dict]:
    """A history without the seconds that it took."""

    def without(value):
        if isinstance(value, dict):
            return {k: without(v) for k, v in value.items() if k != "seconds"}
        return [without(v) for v in value] if isinstance(value, list) else value

    return without(history)


def test_files_hold_what_a_page_draws(whole):
    out, result, _ = whole
    files = continual.read(out)
    assert files.names == ["a100", "b200", "c300"]
    assert "NaN" not in (out / continual.CARD).read_text()
    assert files.summary["R"] == result["R"]
    r = continual.matrix(files.names, [h["row"] for h in files.history])
    assert np.isfinite(r[np.tril_indices(3)]).all()
    assert len(continual.losses(files.history)) == 2 + 2 * (2 + 8)  # the first is copied, not distilled
    pairs = continual.pairs(files.names, files.about["agreement"], files.history)
    assert len(pairs) == 3 and pairs[["spearman", "as_is", "scratch"]].notna().all().all()
    assert pairs["gained"].notna().sum() == 2
    assert files.task(next(iter(files.history[0]["row"]["a100"]["by_task"])))["operator"] in ("conv2d", "matmul")
    assert files.movement(0) is None
    frame, about = files.movement(2)
    assert set(frame["model"]) == {"a100", "b200", "c300"} == set(about["models"])
    assert (frame[frame["model"] == "a100"]["moved"] < 1e-5).all()  # the trunk is closed
    assert frame[frame["model"] == "c300"]["moved"].mean() > 0.01
    drop = continual.drops(files.history, "by_operator")["drop"].max()
    assert drop == pytest.approx(files.summary["worst_slice"]["drop"], abs=1e-9)


def test_events_tell_how_far_it_is(whole):
    _, _, events = whole
    kinds = [e["kind"] for e in events if e["kind"] not in ("step", "epoch")]
    assert kinds == ["sequence", *["platform", "learned", "consolidated"] * 3]
    steps = [e for e in events if e["kind"] == "step"]
    shares = [e["done"] / e["total"] for e in steps if e["total"]]
    assert shares == sorted(shares) and shares[-1] == 1  # one measure for the whole sequence: it never goes back
    epochs = [(e["platform"], e["phase"]) for e in events if e["kind"] == "epoch"]
    assert ("b200", "scratch") in epochs and ("a100", "scratch") not in epochs  # the first column is learned from scratch


def test_a_moved_folder_learns_the_next_platform(dataset, whole, tmp_path):
    assert call(dataset, tmp_path / "here", "--order", "a100", "--compare").exit_code == 0
    shutil.move(tmp_path / "here", tmp_path / "elsewhere")
    done = call(dataset, tmp_path / "elsewhere", "--order", "b200", "--compare")
    assert done.exit_code == 0, done.output
    assert timeless(continual.read(tmp_path / "elsewhere").history) == timeless(continual.read(whole[0]).history[:2])


def test_killed_it_ends_with_the_same_numbers(dataset, whole, tmp_path):
    """kill -9 as soon as the second platform's column is there; the same command then ends as if nothing had happened. Other moments
    are in `test_sequence.py`."""
    out = tmp_path / "kb"
    assert call(dataset, out, "--order", "a100", "--compare").exit_code == 0
    command = [
        sys.executable,
        "-m",
        "tcl",
        "distill",
        str(dataset.path),
        "--out",
        str(out),
        *QUICK,
        "--order",
        "a100,b200",
        "--compare",
    ]
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}  # as in these tests: sums over other numbers of threads differ in the last digit
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, env=one_thread)
    deadline = time.monotonic() + 100
    while not (out / "column.json").exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert continual.read(out).names == ["a100"]
    done = call(dataset, out, "--order", "a100,b200", "--compare")
    assert done.exit_code == 0, done.output
    assert timeless(continual.read(out).history) == timeless(continual.read(whole[0]).history[:2])


def test_stopped_it_keeps_what_was_finished(dataset, tmp_path, monkeypatch):
    """A stop that was asked for before the second platform: the result tells the first, and what is left."""
    job, out = tmp_path / "job", tmp_path / "kb"
    job.mkdir()
    assert call(dataset, out, "--order", "a100").exit_code == 0
    (job / "control").write_text("stop")
    monkeypatch.setenv("TCL_JOB_DIR", str(job))
    done = call(dataset, out, "--order", "a100,b200")
    result = json.loads(done.stdout)
    assert result["stopped"] and result["platforms"] == ["a100"] and result["left"] == ["b200"]
    assert json.loads((job / "state.json").read_text())["state"] == "stopping"


def test_another_folder_is_not_written_into(dataset, tmp_path):
    (tmp_path / "photos.txt").write_text("mine")
    assert isinstance(call(dataset, tmp_path, "--order", "a100").exception, UserError)
    assert [p.name for p in tmp_path.iterdir()] == ["photos.txt"]


def test_a_refused_order_leaves_no_folder_that_looks_like_a_knowledge_base(dataset, tmp_path):
    out = tmp_path / "kb"
    assert isinstance(call(dataset, out, "--order", "a100,a100").exception, UserError)
    assert not out.exists() or not list(out.iterdir())
    assert isinstance(call(dataset, out, "--order", "a100", "--operators", "softmax").exception, UserError)
    assert not out.exists() or not list(out.iterdir())


def test_movement_ignores_turns():
    random = np.random.default_rng(0)
    x = random.normal(size=(60, 8))
    turn, _ = np.linalg.qr(random.normal(size=(8, 8)))
    np.testing.assert_allclose(distance(*aligned(x, x @ turn + 3)), 0, atol=1e-5)
    moved = x.copy()
    moved[7] += 20
    a, b = aligned(x, moved)
    assert distance(a, b).argmax() == 7
    flat_a, flat_b, share = flattened(a, b)
    assert flat_a.shape == flat_b.shape == (60, 2) and 0 < share <= 1
    flat, _, share = flattened(np.zeros((1, 8)), np.zeros((1, 8)))
    assert flat.shape == (1, 2) and share == 1
