"""The measurer against real programs, and against candidates that crash, hang, eat memory or compute something else."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time

import psutil
import pytest

from tcl.programs.types import Program, format_id
from tcl.tuning.check import Check
from tcl.tuning.design_space import sample_programs
from tcl.tuning.measure import Measurer, MeasureStats, together
from tcl.tuning.operators import operator_task
from tcl.tuning.targets import host_target, platform_for
from tcl.tuning.worker import REFERENCE
from tcl.tuning.worker_process import WorkerProcess

pytestmark = pytest.mark.tvm


@pytest.fixture(scope="module")
def measurer():
    # no cut-off and a large budget: the number of repeats must not depend on how busy the machine is
    with Measurer(build_timeout_s=30.0, run_timeout_s=10.0, cutoff=1e9, budget_s=5.0) as warm:
        yield warm


@pytest.fixture(scope="module")
def task():
    return operator_task("matmul:64,64,64")


@pytest.fixture(scope="module")
def programs(task):
    return sample_programs(task, host_target(), 6, seed=3)


def odd_worker(monkeypatch, tmp_path, method, code):
    """Real worker processes that do `code` before a method of theirs; `k` are its arguments."""
    module = f"odd_{method}_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text(
        "import os, time\n"
        "from tcl.tuning.worker import Worker\n"
        "class Odd(Worker):\n"
        f"    def {method}(self, **k):\n"
        f"        {code}\n"
        f"        return super().{method}(**k)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("tcl.tuning.worker_process.Worker", importlib.import_module(module).Odd)


def test_a_worker_that_has_run_a_program_leaves_the_processor_to_the_next() -> None:
    """TVM's idle threads look for work for a tenth of a second by default; the next worker's program shares the processor with them."""
    with Measurer(workers=1) as measurer:
        measurer.time_reference()
        process = psutil.Process(measurer._workers[0].process.pid)
        spent = []
        for _ in range(5):
            measurer.time_reference()
            before = sum(process.cpu_times()[:2])
            time.sleep(0.3)
            spent.append(sum(process.cpu_times()[:2]) - before)
        assert min(spent) < 0.04


def test_no_thread_of_a_worker_is_bound_to_a_core(measurer, task, programs) -> None:
    """The thread that calls a kernel would now and then share the core of one that is: both then take twice as long."""
    assert not measurer.measure(platform_for("native"), task, programs[:1])[0].error
    threads = psutil.Process(measurer._workers[0].process.pid).threads()
    assert len(threads) >= measurer.threads
    assert {frozenset(os.sched_getaffinity(t.id)) for t in threads} == {frozenset(os.sched_getaffinity(0))}


def test_measures_every_program_with_repeats(measurer, task, programs):
    rows = measurer.measure(platform_for("native"), task, programs, source="test")
    assert [r.program for r in rows] == [p.id for p in programs]
    assert all(not r.error for r in rows)
    assert {len(r.costs_s) for r in rows} in ({5}, {10}, {15})  # more than once where the machine was busy
    assert all(r.latency_s > 1e-6 for r in rows)  # 0.5 MFLOP take longer than that on any CPU
    assert len(measurer.reference_s) >= 2


def test_output_check_accepts_right_and_rejects_wrong(measurer, task, programs):
    platform = platform_for("native")
    assert measurer.check(platform, task, programs[0]) < 1e-5
    skipped = json.loads(programs[0].schedule)
    skipped[0].append(["ComputeInline", ["b0"], [], []])  # a reduction cannot be inlined
    assert measurer.check(platform, task, Program(task.id, json.dumps(skipped))) == float("inf")


def test_invalid_schedule_costs_only_itself(measurer, task, programs):
    broken = Program(task.id, '[[["GetSBlock",[],["no such block","main"],["b0"]]],[]]')
    rows = measurer.measure(platform_for("native"), task, [programs[0], broken, programs[1]])
    assert [r.error for r in rows] == ["", "invalid_schedule", ""]


@pytest.mark.parametrize(("code", "kind"), [("os.kill(os.getpid(), 11)", "run_error"), ("time.sleep(60)", "run_timeout")])
def test_a_dying_worker_costs_only_its_candidate(monkeypatch, tmp_path, task, programs, code, kind):
    """A real worker that really dies, or hangs, whenever it runs one particular program."""
    odd_worker(monkeypatch, tmp_path, "run", f"if k['key'] == {format_id(programs[2].id)!r}: {code}")
    with Measurer(workers=2, run_timeout_s=1.0, build_timeout_s=30.0) as measurer:
        rows = measurer.measure(platform_for("native"), task, programs)
        assert [r.error for r in rows] == ["", "", kind, "", "", ""]
        assert measurer.stats.restarts >= 2  # the second death convicts (a loaded machine may stall another candidate once)


def test_a_hung_candidate_ends_with_a_killed_coordinator(tmp_path):
    (tmp_path / "hung.py").write_text(
        "from tcl.tuning.worker import Worker\nclass Hung(Worker):\n    def task(self, task, workload):\n        while True: pass\n"
    )
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import hung; from tcl.tuning.worker_process import WorkerProcess; "
        "worker = WorkerProcess(1, 1 << 31, hung.Hung); worker.wait_ready(); worker.request(do='task', task='', workload=''); "
        "print(worker.process.pid, flush=True); worker.process.join()"
    )
    coordinator = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    worker = psutil.Process(int(coordinator.stdout.readline()))
    assert worker.is_running()
    coordinator.kill()
    coordinator.communicate()
    deadline = time.monotonic() + 30.0
    while time.monotonic() < deadline and worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.05)
    assert not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE


def test_a_build_much_longer_than_others_is_given_up(monkeypatch, tmp_path, task, programs):
    """Well before the time limit, and what its worker had built is built again."""
    odd_worker(monkeypatch, tmp_path, "build", f"while k['key'] == {format_id(programs[5].id)!r}: pass")
    monkeypatch.setattr("tcl.tuning.measure.LEAST_BUILD_S", 4.0)  # a loaded machine may take a second for a plain build
    with Measurer(workers=1, build_timeout_s=60.0, build_patience=4.0) as measurer:
        rows = measurer.measure(platform_for("native"), task, programs)
        assert [r.error for r in rows] == ["", "", "", "", "", "build_timeout"]
        assert 4.0 <= float(rows[5].detail.split()[2]) < 30.0


@pytest.mark.parametrize(("code", "error"), [("os.kill(os.getpid(), 11)", float("inf")), ("time.sleep(60)", float("nan"))])
def test_a_check_that_cannot_be_made_condemns_nobody(monkeypatch, tmp_path, task, programs, code, error):
    """A program that crashes is not right; of one whose check never ends (a stalled machine) nothing is known."""
    odd_worker(monkeypatch, tmp_path, "check", code)
    with Measurer(workers=1, check_timeout_s=0.5, build_timeout_s=30.0) as measurer:
        assert measurer.check(platform_for("native"), task, programs[0]) == pytest.approx(error, nan_ok=True)
        assert not Check(error).correct and Check(error).known == (error == float("inf"))


def test_a_memory_eater_costs_only_itself(task, programs):
    """More memory than the worker may map: the failure has its kind, the next task still runs."""
    big = operator_task("add:16384,16384")  # three tensors of 1 GiB
    with Measurer(workers=1, memory_bytes=1 << 30, build_timeout_s=30.0) as measurer:
        rows = measurer.measure(platform_for("native"), big, [Program(big.id, "")])
        assert rows[0].error == "out_of_memory"
        assert not measurer.measure(platform_for("native"), task, programs[:1])[0].error


def test_same_program_on_every_profile(measurer, task, programs):
    """One pool for all instruction sets: each profile builds and runs the same schedules, and computes the same."""
    from tcl.tuning.targets import available_profiles

    for profile in available_profiles():
        rows = measurer.measure(platform_for(profile), task, programs[:3])
        assert all(not r.error for r in rows), profile
        assert measurer.check(platform_for(profile), task, programs[0]) < 1e-5


@pytest.mark.parametrize(("reference_s", "again"), [(1.0, 0), (1.5, 2)])
def test_a_busy_machine_is_given_another_chance(monkeypatch, measurer, task, programs, reference_s, again):
    monkeypatch.setattr(measurer, "reference_s", [1.0] * 40)
    monkeypatch.setattr(measurer, "time_reference", lambda: reference_s)
    monkeypatch.setattr(measurer, "stats", MeasureStats())
    assert measurer.measure(platform_for("native"), task, programs[:1])[0].latency_s > 0
    assert measurer.stats.timed_again == again and measurer.stats.busy == (again > 0)


def test_several_timings_of_a_batch_are_one() -> None:
    slow, fast, failed = {"costs": [3.0, 2.0]}, {"costs": [2.5]}, {"failed": "run_error"}
    found = together([{1: slow, 2: fast, 3: failed}, {1: fast, 2: failed, 3: slow, 4: slow}])
    assert found == {1: {"costs": [3.0, 2.0, 2.5]}, 2: failed, 3: failed, 4: slow} and slow == {"costs": [3.0, 2.0]}


def test_all_programs_are_timed_in_turns(measurer, task, programs, monkeypatch):
    """A repeat of each before the second of any: what slows the machine down for a while slows all of them down."""
    asked = []
    call = WorkerProcess.call

    def listen(self, *arguments, **message):
        if message["do"] == "run" and message["key"] != REFERENCE:
            asked.append((message["turn"], message["key"]))
        return call(self, *arguments, **message)

    monkeypatch.setattr(WorkerProcess, "call", listen)
    rows = measurer.measure(platform_for("native"), task, programs, repeats=7)
    assert [len(r.costs_s) for r in rows] == [7] * len(programs)  # timed once, however busy the machine
    order = [key for _, key in asked[: len(programs)]]
    assert set(order) == {format_id(p.id) for p in programs}
    turns = sorted({turn for turn, _ in asked})
    assert len(turns) == 7 and asked == [(turn, key) for turn in turns for key in order]


def test_hopeless_candidates_are_cut_off(measurer, task, programs):
    """Next to a best latency of a picosecond every program is hopeless: one repeat each, recorded as what it is."""
    platform = platform_for("native")
    before = measurer.cutoff, measurer.best.copy()
    measurer.cutoff, measurer.best[platform.name, task.id] = 10.0, 1e-12
    rows = measurer.measure(platform, task, programs)
    measurer.cutoff, measurer.best = before
    assert {len(r.costs_s) for r in rows} in ({1}, {2}, {3})  # one each time that the batch was timed
