"""The interface of a search strategy, and what all strategies share: a random start, and a share of random candidates.

    search = make("tvm", task, target, "xgb", seed=0)
    while ...:
        batch = search.propose(16)
        search.observe([p.program for p in batch], latencies)

To add a strategy: one file beside this one with a subclass of `Search`, and its name in `STRATEGIES`.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

import numpy as np

from tcl.errors import UserError
from tcl.programs.types import Platform, Program, Task

STRATEGIES = {
    "tvm": "tcl.tuning.search.evolutionary:EvolutionarySearch",
    "decisions": "tcl.tuning.search.decisions:DecisionSearch",
    "random": "tcl.tuning.search.base:RandomSearch",
}
"""Name -> where its class is."""

WARM_UP = 16
"""Random programs that are measured before a model that knows nothing is asked; of a model that knows something, half of as many."""
RANDOM_SHARE = 0.1
"""Share of random programs in every later batch: they keep the model honest, and tell what a program costs without search."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A program to measure: drawn at random (`score` is None), or chosen for the model's `score` (higher is faster)."""

    program: Program
    score: float | None = None

    @property
    def random(self) -> bool:
        return self.score is None


class Search(ABC):
    """Proposes programs of one task and learns from what was measured.

    Attributes:
        scored: candidates that the cost model has scored so far.
        seconds: where the time went: "space" (learning the design spaces), "random", "search" (which includes "features",
            "model" and "validate"), "learn".
    """

    first_batch: ClassVar[int | None] = None
    """Programs of a task's first batch, None for a full one."""
    largest_batch: ClassVar[int] = 0
    """Programs a batch, where the budget is eight such batches or more."""

    def __init__(
        self, task: Task, target: dict[str, Any], model: str, *, platform: Platform | None = None, seed: int = 0,
        shared: dict[str, Any] | None = None, batch: int = 16,
    ) -> None:  # fmt: skip
        self.batch = batch
        self.shared = {} if shared is None else shared
        self.task, self.target, self.model, self.platform, self.seed = task, target, model, platform, seed
        self.rng = np.random.default_rng(seed)
        self.known: dict[int, float] = {}  # program id -> latency in seconds, NaN for a failure; also what was only proposed
        self.scored = 0
        self.seconds: Counter[str] = Counter()
        self._draws = self._proposed = self._random = 0

    def propose(self, n: int) -> list[Proposal]:
        """Up to `n` distinct programs that were not proposed or observed before; none when the design space is exhausted."""
        guided = n - self._random_share(n) if self.ready() else 0
        counts = guided > 0 and not self._new
        batch: list[Proposal] = []
        if guided > 0:
            with self.timed("search"):
                batch = self._guided(guided)[:guided]
        self.known |= {p.program.id: np.nan for p in batch}
        with self.timed("random"):  # first: built first, they tell how long a build of this task usually takes
            batch = [Proposal(p) for p in self.draw(n - len(batch))] + batch
        self.known |= {p.program.id: np.nan for p in batch}
        if counts:
            self._proposed += len(batch)
            self._random += sum(p.random for p in batch)
        return batch

    @property
    def _new(self) -> bool:
        """Whether hardly anything of the task is known. A task of a network gets few programs in all, and small batches."""
        return len(self.known) < min(WARM_UP, self.batch)

    def _random_share(self, n: int) -> int:
        """How many of the next n programs are drawn at random: half of a task's first (what a model believes of a task that it has not seen
        is at its worst then), later their share, over small batches too."""
        if self._new:
            return max(1, n // 2)
        return min(n, max(0, round(RANDOM_SHARE * (self._proposed + n)) - self._random))

    def observe(self, programs: Sequence[Program], latencies: Sequence[float]) -> None:
        """Learn that `programs` took `latencies` (seconds, NaN for a failure); of this run or of earlier ones."""
        self.known |= {p.id: float(c) for p, c in zip(programs, latencies, strict=True)}
        if len(programs):
            with self.timed("learn"):
                self._learn(programs, np.asarray(latencies, dtype=np.float64))

    def draw(self, n: int) -> list[Program]:
        """Up to `n` new random programs, uniform over the decisions of the design spaces."""
        from tcl.tuning.design_space import sample_programs

        if n <= 0:
            return []
        self._draws += 1
        return sample_programs(self.task, self.target, n, seed=self.seed * 1_000_003 + self._draws, exclude=self.known)

    @abstractmethod
    def ready(self) -> bool:
        """Whether the model can guide the search; until then programs are drawn at random."""

    @abstractmethod
    def _guided(self, n: int) -> list[Proposal]:
        """Up to `n` programs with the model's scores, none of them in `self.known`."""

    @abstractmethod
    def _learn(self, programs: Sequence[Program], latencies: np.ndarray) -> None: ...

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[part] += time.perf_counter() - started


class RandomSearch(Search):
    """No model: every program is drawn at random."""

    def ready(self) -> bool:
        return False

    def _guided(self, n: int) -> list[Proposal]:
        return []

    def _learn(self, programs: Sequence[Program], latencies: np.ndarray) -> None:
        return None


def strategy_of(name: str) -> type[Search]:
    """The class of a strategy.

    Raises:
        UserError: there is none of that name.
    """
    if name not in STRATEGIES:
        raise UserError(f"There is no search strategy {name!r}.", hint=f"Choose one of: {', '.join(STRATEGIES)}.")
    module, _, kind = STRATEGIES[name].partition(":")
    return getattr(import_module(module), kind)


def make(
    strategy: str,
    task: Task,
    target: dict[str, Any],
    model: str,
    *,
    platform: Platform | None = None,
    seed: int = 0,
    shared: dict[str, Any] | None = None,
    batch: int = 16,
) -> Search:
    """A strategy by its name.

    Args:
        model: "random", "xgb" or the folder of a saved cost model.
        shared: one dict for all searches of a run, in which they keep what the tasks have in common (TVM's xgboost model).
        batch: about how many programs a call of `propose` will ask for.

    Raises:
        UserError: the strategy or the model is not known.
    """
    return strategy_of(strategy)(task, target, model, platform=platform, seed=seed, shared=shared, batch=batch)
