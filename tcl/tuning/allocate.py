"""Which task of a network to spend the next trials on.

The expected gain for the network of one more trial, after Ansor's gradient scheduler (arXiv 2006.06762, section 6.2): a mix of
what the last trials of the task brought, and of the optimistic guess that its latency falls in proportion to its trials.
Ansor's third term, which compares a task with similar ones, is left out, as TVM MetaSchedule leaves it out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from tcl.programs.types import Task

ALPHA = 0.2
WINDOW = 3
"""Batches over which a task's recent gain is taken."""


@dataclass
class Account:
    """One task's trials and latencies, in the order of its batches."""

    task: Task
    weight: float
    trials: list[int] = field(default_factory=list)  # after each batch
    best_s: list[float] = field(default_factory=list)  # after each batch
    exhausted: bool = False

    def add(self, trials: int, best_s: float) -> None:
        self.trials.append(trials)
        self.best_s.append(best_s)


def next_task(accounts: Sequence[Account]) -> Account | None:
    """The account to serve next: first each task once, by its share of the work; then the largest expected gain. None when
    every task is exhausted."""
    open_accounts = [a for a in accounts if not a.exhausted]
    fresh = [a for a in open_accounts if not a.trials]
    if fresh:
        return max(fresh, key=lambda a: a.weight * max(a.task.flops, a.task.bytes))
    return max(open_accounts, key=gain, default=None)


def gain(account: Account) -> float:
    """Seconds of the network's latency that one more trial of the task is expected to save."""
    best, trials = account.best_s[-1], account.trials[-1]
    if not math.isfinite(best) or trials == 0:
        return 0.0 if trials else math.inf
    back = min(WINDOW, len(account.trials) - 1)
    before, then = account.best_s[-1 - back], account.trials[-1 - back]
    recent = (before - best) / (trials - then) if back and math.isfinite(before) and trials > then else best / trials
    return account.weight * (ALPHA * recent + (1 - ALPHA) * best / trials)
