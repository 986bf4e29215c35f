"""The two locks: measurements alone, nesting harmless, waiting measurements before newcomers."""

from __future__ import annotations

import fcntl
import os
import threading

import pytest

from tcl.machine import HELD, busy, quiet


@pytest.fixture(autouse=True)
def own_locks(tmp_path, monkeypatch):
    monkeypatch.setenv("TCL_LOCK_DIR", str(tmp_path))
    monkeypatch.delenv(HELD, raising=False)
    return tmp_path


def free(folder, name: str, mode: int) -> bool:
    fd = os.open(folder / f"tcl-{os.getuid()}-{name}.lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(fd, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True


def test_busy_lets_others_be_busy_but_not_measure_and_quiet_lets_nobody(own_locks):
    with busy():
        assert free(own_locks, "work", fcntl.LOCK_SH) and not free(own_locks, "work", fcntl.LOCK_EX)
    with quiet():
        assert not free(own_locks, "work", fcntl.LOCK_SH) and not free(own_locks, "gate", fcntl.LOCK_EX)
    assert free(own_locks, "work", fcntl.LOCK_EX) and free(own_locks, "gate", fcntl.LOCK_EX)


@pytest.mark.timeout(10)
def test_nesting_in_one_thread_does_not_wait_for_itself_even_when_a_measurement_waits(own_locks):
    with busy():
        waiting = threading.Thread(target=lambda: quiet().__enter__(), daemon=True)
        waiting.start()
        while free(own_locks, "gate", fcntl.LOCK_EX):
            pass
        with busy():
            pass
    waiting.join(5)
    assert not waiting.is_alive()


def test_measuring_inside_busy_is_refused(own_locks):
    with busy(), pytest.raises(RuntimeError, match="leave busy"), quiet():
        pass
    with quiet(), quiet(), busy():
        assert not free(own_locks, "work", fcntl.LOCK_SH)


def test_a_process_whose_parent_holds_the_lock_does_not_ask(own_locks, monkeypatch):
    monkeypatch.setenv(HELD, "held")
    with quiet():
        assert free(own_locks, "work", fcntl.LOCK_EX)
