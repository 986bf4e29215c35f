"""What every reader turns a line into: a task, a schedule, a measurement; or why it cannot.

A log format is one file with one function `parse(value, line) -> Record` that raises `Refused`. Nothing in a log is ever run:
lines are parsed as JSON, pickles are left alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tcl.programs.types import Task

SENTINEL_S = 1e9
"""AutoTVM writes 1e9 and Ansor 1e10 seconds for a measurement that failed; no program runs for 30 years."""

ERROR_NUMBERS = {
    1: "invalid_schedule",
    2: "build_error",
    3: "build_error",
    4: "run_error",
    5: "wrong_output",
    6: "build_timeout",
    7: "run_timeout",
    8: "unknown_error",
}
"""`MeasureErrorNo` of TVM's auto_scheduler and autotvm (they agree) -> our failure kinds. 0 is success."""


class Refused(Exception):
    """Why a line is not imported; the text is the reason under which such lines are counted."""


class Record(NamedTuple):
    """One line of a log."""

    key: Any  # the task's description as the log writes it, hashable: equal keys are the same task
    make_task: Callable[[], Task]  # called once a key; may raise `Refused`
    schedule: bytes  # normalised, compact JSON
    costs_s: tuple[float, ...]  # positive and finite; empty for a failure
    error: str  # "" or a failure kind
    detail: str
    measured_at: float  # Unix time, seconds; 0 where the log does not tell
    gpu: bool  # the schedule binds loops to GPU threads


def outcome(costs: Any, error_number: Any) -> tuple[tuple[float, ...], str, str]:
    """(costs_s, error, detail) of a result as auto_scheduler and autotvm write it: a list of costs and an error number.

    A cost that cannot be one (zero, negative, NaN, infinite, a sentinel) makes a `bad_cost` failure whatever the error number says.
    """
    if type(error_number) is not int or not isinstance(costs, list):
        raise Refused("malformed result")
    if error_number:
        return (), ERROR_NUMBERS.get(error_number, "unknown_error"), f"error number {error_number}"
    if not costs:
        raise Refused("a success without a cost")
    for cost in costs:
        if not isinstance(cost, int | float) or isinstance(cost, bool):
            raise Refused("malformed result")
        if not 0 < cost < SENTINEL_S:
            return (), "bad_cost", f"cost {cost!r}"
    return tuple(map(float, costs)), "", ""


def when(value: Any) -> float:
    """A log's time stamp, or 0 where it has none that makes sense."""
    plausible = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e11
    return float(value) if plausible else 0.0
