"""`tcl tune` on an operator: what it returns, that it resumes and stops, that a wrong kernel never wins, that exports run."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tcl.errors import UserError
from tcl.programs.dataset import Dataset
from tcl.programs.types import Measurement, Program, parse_id
from tcl.progress import Progress, Stopped
from tcl.tuning.best import best_trial
from tcl.tuning.check import check
from tcl.tuning.design_space import module, sample_programs, schedule_text
from tcl.tuning.journal import FINAL, RANDOM, SEARCH, Journal
from tcl.tuning.measure import Measurer
from tcl.tuning.operators import operator_task
from tcl.tuning.remote import Tracker
from tcl.tuning.targets import platform_for
from tcl.tuning.tune import Run, default_folder, tune
from tcl.tuning.worker import largest_error

pytestmark = pytest.mark.tvm
SPEC = "matmul:64,64,64"


class Recorder(Progress):
    """Keeps events; asks to stop after so many batches."""

    def __init__(self, batches: int = 10**9) -> None:
        self.events: list[tuple[str, dict]] = []
        self.batches = batches

    def event(self, kind, **data):
        json.dumps(data, allow_nan=False)  # an event must be plain JSON data
        self.events.append((kind, data))

    def check(self):
        self.batches -= 1
        if self.batches < 0:
            raise Stopped

    def of(self, kind):
        return [data for k, data in self.events if k == kind]


@pytest.fixture(scope="module", autouse=True)
def own_workspace(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:  # the roofline is kept in the workspace
        patch.setenv("TCL_WORKSPACE", str(tmp_path_factory.mktemp("workspace")))
        yield


@pytest.fixture(scope="module")
def tuned(tmp_path_factory, own_workspace):
    folder = tmp_path_factory.mktemp("tune") / "out"
    recorder = Recorder()
    return folder, recorder, tune(SPEC, trials=40, out=folder, model="xgb", strategy="decisions", progress=recorder)


def test_result(tuned):
    folder, recorder, result = tuned
    assert result["trials"] == 40 and result["measured"] + sum(result["failed"].values()) == 40
    assert result["correct"] is True and result["max_error"] < 1e-3
    assert 0 < result["best_latency_s"] <= result["median_measured_latency_s"] and result["untuned_latency_s"] > 0
    assert 0 < result["roofline_share"] < 20 and result["roofline"]["flops"] > 1e9
    assert result["pytorch_latency_s"] > 0 and result["seconds"] > 0 and result["scored"] > 1000
    assert recorder.of("result")[-1]["best_latency_s"] == result["best_latency_s"]
    measured = recorder.of("measured")
    assert [m["trial"] for m in measured] == list(range(1, 41))
    assert {m["random"] for m in measured} == {True, False}
    assert all((m["predicted"] is None) == m["random"] for m in measured)
    assert [p["name"] for p in recorder.of("phase")] == ["tasks", "baselines", "search", "final", "export"]
    batches = [m["batch"] for m in measured]
    assert batches == sorted(batches) and set(batches) == set(range(1, max(batches) + 1)) and max(batches) > 1
    rows = Dataset.open(folder).measurements()
    assert rows[rows["source"].isin([RANDOM, SEARCH])]["program"].nunique() == 40


def test_it_tells_what_a_report_needs(tuned):
    _, recorder, result = tuned
    (about,) = recorder.of("about")
    assert about["machine"] and about["trials"] == 40 and {"python", "apache-tvm"} <= about["versions"].keys()
    (roof,) = recorder.of("roofline")
    assert roof == result["roofline"]
    task = recorder.of("task")[-1]
    assert result["roofline_share"] * result["best_latency_s"] == pytest.approx(
        max(task["flops"] / roof["flops"], task["bytes"] / roof["bandwidth"])
    )
    (best,) = recorder.of("best")
    assert best["program"] == result["best_program"] and best["latency_s"] == result["best_latency_s"]
    assert Program(parse_id(task["task"]), best["schedule"]).id == parse_id(best["program"])
    told = recorder.of("time")
    assert len(told) == 1 + max(m["batch"] for m in recorder.of("measured"))
    for earlier, later in itertools.pairwise(told):  # seconds only grow
        assert all(later["time_s"][part] >= spent for part, spent in earlier["time_s"].items())
    spent = result["time_s"]
    apart = ("tasks", "roofline", "compare", "space", "random", "search", "learn", "build", "run", "waiting", "check", "export")
    assert sum(spent.get(part, 0.0) for part in apart) <= result["seconds"] + 0.1
    assert spent["features"] + spent["model"] + spent["validate"] <= spent["search"] + 0.1


def test_others_than_pytorch_are_timed_after_the_search(tmp_path):
    recorder = Recorder()
    settings = {"trials": 4, "out": tmp_path / "out", "model": "random", "strategy": "random", "export": False}
    result = tune("softmax:16,64", rivals=("onnxruntime", "pytorch"), progress=recorder, **settings)
    first, last = recorder.of("baseline")
    assert first["pytorch_latency_s"] > 0 and first["onnxruntime_latency_s"] is None
    assert last == {key: result[key] for key in last} and last["pytorch_latency_s"] == first["pytorch_latency_s"]
    assert last["onnxruntime_latency_s"] > 0 and last["rivals_failed"] == {}
    kinds = [kind for kind, _ in recorder.events]
    assert kinds.index("baseline") < kinds.index("measured") < len(kinds) - 1 - kinds[::-1].index("baseline")


def test_exports_run_in_a_fresh_process(tuned):
    _, _, result = tuned
    done = subprocess.run([sys.executable, result["export"]["snippet"]], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "largest relative error" in done.stdout


def test_stock_tvm_loads_the_database(tuned):
    from tvm import s_tir, target
    from tvm.s_tir.meta_schedule.database import JSONDatabase

    _, _, result = tuned
    database = JSONDatabase(work_dir=result["export"]["folder"])
    mod = module(operator_task(SPEC))
    schedule = database.query_schedule(mod, target.Target(json.loads(platform_for("native").target)), "main")
    assert isinstance(schedule, s_tir.Schedule)
    assert "T.parallel" in schedule.mod.script() or "vectorized" in schedule.mod.script()


def test_goes_on_where_it_was(tmp_path):
    first = Recorder(batches=1)
    stopped = tune(SPEC, trials=32, out=tmp_path / "out", model="random", strategy="random", export=False, rivals=(), progress=first)
    assert stopped["stopped"] and stopped["trials"] == 16 and stopped["correct"]
    before = set(Dataset.open(tmp_path / "out").programs()["program"])
    second = Recorder()
    result = tune(SPEC, trials=32, out=tmp_path / "out", model="random", strategy="random", export=False, rivals=(), progress=second)
    assert not result["stopped"] and result["trials"] == 32
    assert [m["trial"] for m in second.of("measured")] == list(range(17, 33))
    assert before < set(Dataset.open(tmp_path / "out").programs()["program"])
    third = Recorder()
    again = tune(SPEC, trials=32, out=tmp_path / "out", model="random", strategy="random", export=False, rivals=(), progress=third)
    assert again["trials"] == 32 and not third.of("measured")

    warm = Recorder()
    result = tune(
        SPEC, trials=16, out=tmp_path / "warm", model="xgb", strategy="decisions", warm_start=tmp_path / "out", export=False, rivals=(),
        progress=warm,
    )  # fmt: skip
    assert result["trials"] == 16
    assert any(not m["random"] for m in warm.of("measured"))  # the earlier records teach the model from the first batch on
    assert not {m["program"] for m in warm.of("measured")} & {m["program"] for m in first.of("measured") + second.of("measured")}


def test_a_killed_run_keeps_every_finished_batch(tmp_path):
    code = (
        "import sys; from pathlib import Path; from tcl.tuning.tune import tune; "
        "tune(sys.argv[1], trials=200, out=Path(sys.argv[2]), model='random', strategy='random')"
    )
    process = subprocess.Popen([sys.executable, "-c", code, SPEC, str(tmp_path / "out")], stderr=subprocess.DEVNULL)
    try:
        for _ in range(1200):
            if process.poll() is not None:
                pytest.fail("the run ended by itself")
            if (tmp_path / "out" / "dataset.json").exists() and Dataset.open(tmp_path / "out").stats()["measurements"] >= 16:
                break
            try:
                process.wait(0.1)
            except subprocess.TimeoutExpired:
                continue
    finally:
        process.kill()
        process.wait()
    kept = Dataset.open(tmp_path / "out").stats()["measurements"]
    assert kept >= 16 and kept % 16 == 0
    assert Journal(tmp_path / "out", platform_for("native"), [operator_task(SPEC)]).count() == kept


def half_precision(task) -> Program:
    """A program that TVM accepts and whose output is wrong: it sums in float16."""
    from tvm.s_tir import Schedule

    schedule = Schedule(module(task))
    block = schedule.get_sblock("matmul")
    schedule.cache_write(block, 0, "global")
    schedule.unsafe_set_dtype(block, 0, "float16")
    return Program(task.id, schedule_text(schedule.trace))


def test_a_wrong_kernel_is_never_the_best(tmp_path, monkeypatch):
    from tcl.tuning.subject import subject

    spec = "matmul:64,64,2048"
    what, platform = subject(spec), platform_for("native")
    (task,) = what.tasks
    good, wrong = sample_programs(task, json.loads(platform.target), 1, seed=1)[0], half_precision(task)
    journal = Journal(tmp_path / "out", platform, [task])
    with Measurer(workers=1) as measurer:
        assert check(measurer, platform, task, good, spec).correct
        assert not check(measurer, platform, task, wrong, spec).correct
        journal.add([good], measurer.measure(platform, task, [good], source=RANDOM))
        journal.add([wrong], [Measurement(wrong.id, task.id, platform.name, (1e-9,), source=SEARCH)])
        assert journal.ranked(task)[0].program == wrong
        real = measurer.measure  # by far the fastest whenever it is measured
        fast = {"costs_s": (1e-9,) * 45}
        monkeypatch.setattr(
            measurer, "measure", lambda *a, **k: [replace(m, **fast) if m.program == wrong.id else m for m in real(*a, **k)]
        )
        run = Run(what, platform, journal, 2, "random", "random", 0, Progress(), measurer)
        trial, verdict = best_trial(run, task)
    assert trial.program == good and verdict.correct
    assert journal.failures() == {"wrong_output": 1}
    again = Journal(tmp_path / "out", platform, [task])
    assert [t.program for t in again.ranked(task)] == [good]
    assert (Dataset.open(tmp_path / "out").measurements()["source"] == FINAL).any()


def test_a_lucky_latency_does_not_win(tmp_path):
    from tcl.tuning.subject import subject

    spec = "matmul:64,64,64"
    what, platform = subject(spec), platform_for("native")
    (task,) = what.tasks
    programs = sample_programs(task, json.loads(platform.target), 7, seed=1)
    journal = Journal(tmp_path / "out", platform, [task])
    with Measurer(workers=1) as measurer:
        journal.add(programs, measurer.measure(platform, task, programs, source=RANDOM))
        right = journal.ranked(task)[0].program
        lucky = [t.program for t in journal.ranked(task)[-2:]]
        for at, program in enumerate(lucky):
            journal.trials[task.id][program.id].costs = [(1e-9 * (1 + at),)]
        run = Run(what, platform, journal, 7, "random", "random", 0, Progress(), measurer)
        trial, _ = best_trial(run, task)
    assert trial.program not in lucky and trial.latency_s < 10 * journal.trials[task.id][right.id].latency_s
    final = Dataset.open(tmp_path / "out").measurements()
    final = final.loc[final["source"] == FINAL, "program"]
    assert trial.program.id in final.tolist() and len(final) == final.nunique() == 5


def test_checks_against_pytorch_too(tmp_path):
    """A task that is not what its name says agrees with itself, but not with PyTorch."""
    task, platform = operator_task("add:64,64"), platform_for("native")
    program = sample_programs(task, json.loads(platform.target), 1)[0]
    with Measurer(workers=1) as measurer:
        verdict = check(measurer, platform, task, program, SPEC)
    assert verdict.unscheduled < 1e-6 and verdict.pytorch > 0.1 and not verdict.correct


def test_largest_error():
    ones = np.ones(3, np.float32)
    assert largest_error(ones, ones) == 0
    assert largest_error(np.array([1, 1, np.nan], np.float32), ones) == float("inf")
    assert largest_error(ones[:2], ones) == float("inf")
    assert largest_error(np.array([10.0, 11.0]), np.array([10.0, 10.0])) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"text": "resnet81"}, "resnet18"),
        ({"text": "matmull:3,3,3"}, "not an operator"),
        ({"text": "matmul:3,3"}, "2 numbers instead of 3"),
        ({"text": "nothing/like/this.onnx"}, "There is no file"),
        ({"text": "nothing/like/this.pt2"}, "There is no file"),
        ({"text": "notes.txt"}, "cannot be tuned"),
        ({"profile": "z80"}, "not a target"),
        ({"profile": "cuda:sm_80"}, "cannot be tuned here"),
        ({"model": "no/such/folder"}, "not a saved model"),
        ({"strategy": "magic"}, "no search strategy"),
        ({"trials": 0}, "too few"),
        ({"rivals": ["abacus"]}, "nothing called 'abacus'"),
        ({"tracker": Tracker("127.0.0.1", 1, "board")}, "No tracker answers"),
        ({"tracker": Tracker("127.0.0.1", 1, "board"), "profile": '{"kind": "llvm"}'}, "cores must be known"),
    ],
)
def test_user_mistakes(kwargs, message, tmp_path):
    settings = {"text": SPEC, "trials": 4, "out": tmp_path / "out"} | kwargs
    with pytest.raises(UserError) as error:
        tune(settings.pop("text"), **settings)
    assert message in str(error.value)
    assert not (tmp_path / "out").exists()


def test_a_folder_that_is_no_dataset_is_refused(tmp_path):
    (tmp_path / "photo.jpg").write_text("")
    with pytest.raises(UserError, match="not a dataset"):
        tune(SPEC, trials=4, out=tmp_path)


def test_default_folder_depends_on_the_settings(tmp_path, monkeypatch):
    monkeypatch.setenv("TCL_WORKSPACE", str(tmp_path))
    one = default_folder(SPEC, "xgb", "tvm", "native", 0)
    assert one == default_folder(SPEC, "xgb", "tvm", "native", 0) and one.parent == Path(tmp_path) / "tuning"
    assert len({one, default_folder(SPEC, "xgb", "tvm", "native", 1), default_folder(SPEC, "random", "tvm", "native", 0)}) == 3
