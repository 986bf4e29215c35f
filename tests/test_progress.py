"""Progress on the console."""

from __future__ import annotations

from tcl.progress import ConsoleProgress


def test_a_phase_is_told_once_when_it_begins(capsys):
    progress = ConsoleProgress()
    for name in ("tasks", "search", "search", "final"):
        progress.event("phase", name=name, task="")
    progress.event("measured", best_s=1.0)
    assert capsys.readouterr().err.splitlines() == ["tasks …", "search …", "final …"]


def test_steps_are_not_told_faster_than_they_are_read(capsys):
    progress = ConsoleProgress()
    for done in range(101):
        progress.step(done, 100, "work")
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 2 and told[0].startswith("work 0/100") and told[-1] == "work 100/100"
