"""TVM's own evolutionary search, driven by hand: TVM mutates traces and ranks them, our measurer measures.

The population is TVM's default (512) and so is its xgboost model on per-store features, which lowers every candidate, and where the
budget allows the size of its batches (`largest_batch`); only the number of random programs before the model is used follows
`WARM_UP` instead of TVM's 100, since a budget may be smaller.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tcl.programs.types import Program
from tcl.tuning.search.base import WARM_UP, Proposal, Search

POPULATION = 512
SPARE = 16
"""TVM is asked for the next multiple of so many candidates: some of them may be known."""


class EvolutionarySearch(Search):
    """`model`: "random", "xgb" (TVM's XGBModel) or a saved cost model of ours, read through TVM's interface."""

    largest_batch = 64
    """TVM's own: its search lowers thousands of candidates a batch, and smaller ones would make it slower than TVM is."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        import tvm
        from tvm.s_tir.meta_schedule import search_strategy
        from tvm.s_tir.meta_schedule.database import MemoryDatabase

        from tcl.tuning.design_space import Applier, module, tune_context

        self._mod = module(self.task)
        self._target = tvm.target.Target(self.target)
        self._applier = Applier(self._mod, self._target)
        self._database = MemoryDatabase()
        self._workload = self._database.commit_workload(self._mod)
        self._cost_model = self._make_model()
        strategy = search_strategy.EvolutionarySearch(
            population_size=POPULATION,
            init_min_unmeasured=1,
            eps_greedy=0.0,  # the random share is drawn by `Search.propose`
        )
        self._context = tune_context(self._mod, self._target, strategy, self.seed + 1, threads=int(self.target.get("num-cores", 1)))
        spaces = self._context.generate_design_space()
        self._a_round = -(-self.batch // SPARE) * SPARE
        self._context.pre_tuning(1 << 30, self._a_round, spaces, self._database, self._cost_model)

    def _guided(self, n: int) -> list[Proposal]:
        from tcl.tuning.design_space import schedule_text

        batch: dict[int, Proposal] = {}
        for _ in range(-(-n // self._a_round)):
            candidates = self._context.generate_measure_candidates()
            if not candidates:
                break
            scores = self._cost_model.predict(self._context, candidates)
            for candidate, score in zip(candidates, scores, strict=True):
                program = Program(self.task.id, schedule_text(candidate.sch.trace))
                if program.id not in self.known and program.id not in batch:
                    batch[program.id] = Proposal(program, float(score))
        return sorted(batch.values(), key=lambda p: -(p.score or 0.0))

    def _learn(self, programs: Sequence[Program], latencies: np.ndarray) -> None:
        from tvm.s_tir.meta_schedule.arg_info import ArgInfo
        from tvm.s_tir.meta_schedule.database import TuningRecord
        from tvm.s_tir.meta_schedule.runner import RunnerResult
        from tvm.s_tir.meta_schedule.search_strategy import MeasureCandidate

        from tcl.tuning.design_space import InvalidSchedule

        candidates, results = [], []
        for program, latency in zip(programs, latencies, strict=True):
            try:
                schedule = self._applier.schedule(program.schedule)
            except InvalidSchedule:
                continue  # TVM never sees it, so it cannot propose it either
            arguments = ArgInfo.from_entry_func(schedule.mod)
            good = bool(np.isfinite(latency))
            candidates.append(MeasureCandidate(schedule, arguments))
            results.append(RunnerResult([float(latency)] if good else None, None if good else "failed"))
            if good:
                record = TuningRecord(schedule.trace, self._workload, [float(latency)], self._target, arguments)
                self._database.commit_tuning_record(record)
        if candidates:
            self._context.notify_runner_results(candidates, results)
            self._cost_model.update(self._context, candidates, results)

    def ready(self) -> bool:
        return self.model != "xgb" or self.shared["xgb"].data_size >= WARM_UP

    def _make_model(self) -> Any:
        """The cost model as TVM calls it, counting what it scores."""
        from tvm.ir.utils import derived_object
        from tvm.s_tir.meta_schedule.cost_model import PyCostModel, RandomModel, XGBModel

        search = self
        if self.model == "random":
            inner = RandomModel(seed=self.seed + 1)
        elif self.model == "xgb":
            if "xgb" not in self.shared:  # one model for all tasks of a network, as in TVM's tuner
                cores = int(self.target.get("num-cores", 1))
                self.shared["xgb"] = XGBModel(num_warmup_samples=WARM_UP, verbose_eval=0, num_tuning_cores=cores)
            inner = self.shared["xgb"]
        else:
            inner = _Saved(self)

        @derived_object
        class Counted(PyCostModel):
            def load(self, path: str) -> None:
                raise NotImplementedError("a search starts from measurements, not from a file")

            def save(self, path: str) -> None:
                raise NotImplementedError("what was measured is in the dataset")

            def update(self, context: Any, candidates: Any, results: Any) -> None:
                inner.update(context, candidates, results)

            def predict(self, context: Any, candidates: Any) -> np.ndarray:
                with search.timed("model"):
                    scores = inner.predict(context, candidates)
                search.scored += len(candidates)
                return np.asarray(scores, dtype=np.float64)

        return Counted()


class _Saved:
    """A saved cost model of ours behind TVM's interface."""

    def __init__(self, search: Search) -> None:
        from tcl.tuning.search.scorer import Scorer

        self.scorer = Scorer(search.task, search.platform, search.model, seed=search.seed, shared=search.shared)

    def predict(self, context: Any, candidates: Any) -> np.ndarray:
        return self.scorer.score(self.scorer.tokens(self._texts(candidates)))

    def update(self, context: Any, candidates: Any, results: Any) -> None:
        latencies = [float(np.mean([float(s) for s in r.run_secs])) if r.run_secs else np.nan for r in results]
        self.scorer.observe(self.scorer.tokens(self._texts(candidates)), np.asarray(latencies))

    @staticmethod
    def _texts(candidates: Any) -> list[str]:
        from tcl.tuning.design_space import schedule_text

        return [schedule_text(c.sch.trace) for c in candidates]
