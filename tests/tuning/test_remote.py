"""Measuring over TVM's RPC: a tracker and two servers on loopback, one of them killed in the middle."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from tcl.errors import UserError
from tcl.programs.types import Program
from tcl.tuning.design_space import sample_programs
from tcl.tuning.operators import operator_task
from tcl.tuning.remote import RemoteMeasurer, Tracker
from tcl.tuning.targets import remote_platform

pytestmark = pytest.mark.tvm
KEY = "loopback"


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture(scope="module")
def devices():
    """A tracker with two devices: (tracker, the servers' processes)."""
    port, processes = free_port(), []

    def start(module, *arguments):
        command = [sys.executable, "-m", f"tvm.exec.{module}", "--host", "127.0.0.1", *arguments]
        processes.append(subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True))

    def wait(condition):
        for _ in range(600):
            try:
                if condition():
                    return
            except UserError:
                pass
            time.sleep(0.2)
        pytest.fail("the tracker and its servers did not start")

    tracker = Tracker("127.0.0.1", port, KEY)
    try:
        start("rpc_tracker", "--port", str(port), "--port-end", str(port + 1))
        wait(lambda: tracker.devices() == 0)
        for _ in range(2):
            own = free_port()
            start("rpc_server", "--port", str(own), "--port-end", str(own + 1), "--tracker", f"127.0.0.1:{port}", "--key", KEY)
        wait(lambda: tracker.devices() == 2)
        yield tracker, processes[1:]
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # its own session: the servers' children too
            process.wait()


@pytest.fixture(scope="module")
def platform():
    return remote_platform(KEY, "native")


def test_one_device_dropping_out_costs_only_time(devices, platform):
    tracker, servers = devices
    task = operator_task("matmul:64,64,64")
    programs = sample_programs(task, json.loads(platform.target), 16, seed=1)
    broken = Program(task.id, '[[["GetSBlock",[],["no such block","main"],["b0"]]],[]]')
    with RemoteMeasurer(tracker, patience_s=60.0, run_timeout_s=60.0) as measurer:
        assert len(measurer._workers) == 2
        rows = measurer.measure(platform, task, [*programs[:2], broken])
        assert [r.error for r in rows] == ["", "", "invalid_schedule"]
        assert all(r.platform == KEY and r.latency_s > 1e-6 for r in rows[:2])
        assert measurer.check(platform, task, programs[0]) < 1e-5
        threading.Timer(0.5, lambda: os.killpg(servers[0].pid, signal.SIGKILL)).start()
        rows = measurer.measure(platform, task, programs[2:])
    assert [r.program for r in rows] == [p.id for p in programs[2:]]
    assert all(not r.error for r in rows)
    servers[0].wait()
    assert tracker.devices() == 1


def test_mistakes(devices):
    tracker, _ = devices
    with pytest.raises(UserError, match="HOST:PORT"):
        Tracker.parse("somewhere", KEY)
    with pytest.raises(UserError, match="no name"):
        Tracker.parse("127.0.0.1:9190", "")
    with pytest.raises(UserError, match="No tracker answers"):
        Tracker("127.0.0.1", free_port(), KEY).devices()
    with pytest.raises(UserError, match="No device called 'other' is registered"):
        RemoteMeasurer(Tracker(tracker.host, tracker.port, "other"))
    with pytest.raises(UserError, match="no compiler"):
        RemoteMeasurer(tracker, cc="no-such-gcc")
