"""`tcl bench continual`: continual distillation beside what it is compared with, in all orders of the platforms.

    tcl bench continual --set data=DIR --set 'platforms=["k80","mi50","v100"]' --set cells=workspace/bench/continual

Every finished cell (a method on a prefix of an order, with a seed) is one JSON file in `cells`; a run that is stopped, or that reaches
`time_limit_s`, goes on from there. Orders that begin alike share their first cells. All methods get the same programs, labels, test
tasks, network shape and trainer; what bounds the cost (`per_assignment`, epochs, …) is recorded beside the results.

An order's last platform is the new one, of which `fraction` of the programs is measured; of the earlier ones `source_fraction` is, all
by default: what a knowledge base is for is to make a new platform cheap, not the old ones.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np

from tcl.bench.report import goal, machine
from tcl.errors import UserError
from tcl.files import write_json
from tcl.progress import Progress
from tcl.workspace import BUILT_IN, workspace

METHODS = ("ours", "unprotected", "scratch", "scratch_all", "fine_tune", "frozen", "joint", "hardware")
ABLATIONS: dict[str, dict[str, Any]] = {
    "protect=ewc": {"protect": "ewc"}, "protect=lwf": {"protect": "lwf"}, "protect=ewc+lwf": {"protect": "ewc+lwf"},
    "recall=0": {"recall": 0.0}, "target=scores": {"target": "scores"}, "lateral=off": {"lateral": False},
    "start=fresh": {"start": "fresh"},
    "start=fresh, lateral=off": {"start": "fresh", "lateral": False}, "rank=0": {"rank": 0}, "loss=lambda_rank": {"loss": "lambda_rank"},
}  # fmt: skip
"""Ablations: ours with one choice changed, scored on validation tasks."""
DATA_SHEETS: dict[str, dict[str, float]] = {
    "v100": {"sm_count": 80, "shared_bytes": 98304, "registers": 65536, "warp_size": 32, "clock_hz": 1.53e9, "bandwidth_bytes_s": 9.0e11,
             "peak_flops": 1.57e13, "memory_bytes": 16 * 2**30},
    "k80": {"sm_count": 13, "shared_bytes": 114688, "registers": 131072, "warp_size": 32, "clock_hz": 8.75e8, "bandwidth_bytes_s": 2.4e11,
            "peak_flops": 4.37e12, "memory_bytes": 12 * 2**30},
    "mi50": {"sm_count": 60, "shared_bytes": 65536, "registers": 65536, "warp_size": 64, "clock_hz": 1.725e9, "bandwidth_bytes_s": 1.024e12,
             "peak_flops": 1.33e13, "memory_bytes": 16 * 2**30},
}  # fmt: skip
"""From the vendors' data sheets (K80: one of its two chips), for the hardware-feature model, as the public logs do not tell."""


@dataclass
class _Bench:
    dataset: Any
    platforms: list[str]
    choice: Any
    settings: Any
    shape: Any
    cells: Path
    source_fraction: float
    all_epochs: int
    test_part: str
    split_seed: int
    deadline: float
    progress: Progress
    done: int = 0
    data_cache: dict[tuple[str, float, int], Any] = field(default_factory=dict)

    @cached_property
    def split(self) -> Any:
        from tcl.programs.splits import split_by_task

        return split_by_task(self.dataset.tasks(), self.split_seed, (0.6, 0.2, 0.2))

    def data(self, platform: str, seed: int, fraction: float | None = None) -> Any:
        from tcl.continual.data import platform_data

        fraction = self.choice.fraction if fraction is None else fraction
        key = (platform, fraction, seed)
        if key not in self.data_cache:
            found = platform_data(self.dataset, platform, self.split, replace(self.choice, seed=seed, fraction=fraction), self.test_part)
            _give_hardware(self.dataset, [found.train.inputs, found.pool, *([found.test.inputs] if found.test else [])])
            self.data_cache[key] = found
        return self.data_cache[key]

    def test(self, platform: str) -> Any:
        return self.data(platform, 0).test

    def cell(self, name: str, seed: int, compute: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
        """The cell's result: read, or computed into a folder of its own and then kept. Raises `_OutOfTime` instead of starting late."""
        path = self.cells / f"{name}-s{seed}"
        if (path / "cell.json").exists():
            return json.loads((path / "cell.json").read_text())
        if time.monotonic() > self.deadline:
            raise _OutOfTime
        self.progress.check()
        path.mkdir(parents=True, exist_ok=True)
        began = time.perf_counter()
        result = compute(path) | {"seconds": time.perf_counter() - began}
        write_json(path / "cell.json", result)
        self.done += 1
        self.progress.event("cell", name=name, seed=seed, seconds=result["seconds"])
        return result

    # -- methods -------------------------------------------------------------------------------------------------------

    def sequence(
        self, method: str, prefix: Sequence[str], seed: int, changes: dict[str, Any] | None = None, new: bool = True
    ) -> dict[str, Any]:
        """Our method, or a variant of it, on a prefix of an order; the history of the knowledge base. new: the prefix is the whole order,
        its last platform the new one."""
        from tcl.continual.sequence import run_sequence

        changes = dict(changes or {})
        shape = replace(self.shape, rank=changes.pop("rank")) if "rank" in changes else self.shape
        settings = replace(self.settings, **changes)
        if not new and self.whole_sources:
            settings = replace(settings, epochs=self.all_epochs)

        def compute(folder: Path) -> dict[str, Any]:
            if len(prefix) > 1:
                self.sequence(method, prefix[:-1], seed, changes | ({"rank": shape.rank} if shape != self.shape else {}), new=False)
                shutil.copytree(self._folder(method, prefix[:-1], seed, False) / "kb", folder / "kb", dirs_exist_ok=True)
            base = run_sequence(
                prefix,
                lambda p: self.data(p, seed, None if new and p == prefix[-1] else self.source_fraction),
                folder / "kb",
                test_of=self.test,
                shape=shape,
                settings=settings,
                seed=seed,
                progress=self.progress,
            )
            return {"history": base.history}

        return self.cell(_name(method, prefix, new), seed, compute)

    def _folder(self, method: str, prefix: Sequence[str], seed: int, new: bool = True) -> Path:
        return self.cells / f"{_name(method, prefix, new)}-s{seed}"

    def scratch(self, platform: str, seed: int, everything: bool = False) -> dict[str, Any]:
        from tcl.continual import baselines

        def compute(folder: Path) -> dict[str, Any]:
            train = self.data(platform, seed, 1.0 if everything else None).train
            trainer = baselines.trainer_of(self.settings, seed, self.progress, self.all_epochs if everything else None)
            model = baselines.scratch(self.shape, train, trainer)
            model.save(folder)
            return {"row": self._row(model, [platform]), "programs": len(train), "epochs": trainer.epochs}

        return self.cell(_name("scratch_all" if everything else "scratch", [platform]), seed, compute)

    @property
    def whole_sources(self) -> bool:
        """Whether all programs of the earlier platforms are measured, as `scratch_all` does."""
        return self.source_fraction == 1.0

    @property
    def _source_epochs(self) -> int | None:
        return self.all_epochs if self.whole_sources else None

    def _source(self, platform: str, seed: int) -> Path:
        """Where the model of an earlier platform alone is."""
        return self._folder("scratch_all" if self.whole_sources else "scratch", [platform], seed)

    def fine_tune(self, prefix: Sequence[str], seed: int, new: bool = True) -> dict[str, Any]:
        """The model after the last platform of the prefix, scored on all of them."""
        from tcl.continual import baselines
        from tcl.models.base import load

        if len(prefix) == 1:
            return self.scratch(prefix[0], seed, self.whole_sources)

        def compute(folder: Path) -> dict[str, Any]:
            self.fine_tune(prefix[:-1], seed, new=False)
            before = self._folder("fine_tune", prefix[:-1], seed, False) if len(prefix) > 2 else self._source(prefix[0], seed)
            data = self.data(prefix[-1], seed, None if new else self.source_fraction)
            trainer = baselines.trainer_of(self.settings, seed, self.progress, None if new else self._source_epochs)
            model = baselines.fine_tune(self.shape, load(before), data.train, trainer)
            model.save(folder)
            return {"row": self._row(model, prefix)}

        return self.cell(_name("fine_tune", prefix, new), seed, compute)

    def frozen(self, source: str, target: str, seed: int) -> dict[str, Any]:
        from tcl.models.base import load

        def compute(folder: Path) -> dict[str, Any]:
            self.scratch(source, seed, self.whole_sources)
            return {"row": self._row(load(self._source(source, seed)), [target])}

        return self.cell(_name("frozen", [source, target]), seed, compute)

    def together(self, method: str, order: Sequence[str], seed: int) -> dict[str, Any]:
        """joint or hardware: all platforms at once, the last one new; the order of the others does not matter."""
        from tcl.continual import baselines

        def compute(folder: Path) -> dict[str, Any]:
            trains = [self.data(p, seed, self.source_fraction if p != order[-1] else None).train for p in platforms]
            trainer = baselines.trainer_of(self.settings, seed, self.progress, self._source_epochs)
            model = baselines.joint(self.shape, trains, trainer) if method == "joint" else baselines.hardware(trains, trainer)
            return {"row": self._row(model, platforms), "size_bytes": 4 * model.parameters(), "programs": sum(map(len, trains))}

        platforms = [*sorted(order[:-1]), order[-1]]
        return self.cell(_name(method, platforms), seed, compute)

    def _row(self, model: Any, platforms: Sequence[str]) -> dict[str, Any]:
        from tcl.continual.evaluate import score

        return {p: score(self.test(p), model.predict(self.test(p).inputs)) for p in platforms}

    def result(self, method: str, order: Sequence[str], seed: int, changes: dict[str, Any] | None = None) -> dict[str, Any]:
        """One row of the table: a method on an order with a seed."""
        from tcl.continual.evaluate import summary

        target = order[-1]
        if method in ("ours", "unprotected") or changes is not None:
            extra = {"protect": "none"} if method == "unprotected" else changes
            history = self.sequence(method, order, seed, extra)["history"]
            size = history[-1]["size_bytes"]
            more = {
                "column_top1": history[-1]["learned"]["score"]["top1"], "size_mb": (size["knowledge_base"] + size["column"]) / 1e6,
                "warnings": sum(bool(h["learned"]["warning"]) for h in history),
            }  # fmt: skip
        elif method == "fine_tune":
            steps = [(order[: i + 1], i == len(order) - 1) for i in range(len(order))]
            history = [{"platform": prefix[-1], "row": self.fine_tune(prefix, seed, new)["row"]} for prefix, new in steps]
            more = {"size_mb": self._model_mb()}
        else:
            row = {}
            for i, p in enumerate(order):
                if method == "frozen":
                    row |= self.frozen(order[i - 1], p, seed)["row"] if i else self.scratch(p, seed, self.whole_sources)["row"]
                elif method in ("joint", "hardware"):
                    row = self.together(method, order, seed)["row"]
                else:
                    row |= self.scratch(p, seed, method == "scratch_all" or (self.whole_sources and p != target))["row"]
            history = [{"platform": p, "row": row if i == len(order) - 1 else {}} for i, p in enumerate(order)]
            more = {
                "size_mb": self.together(method, order, seed)["size_bytes"] / 1e6
                if method in ("joint", "hardware")
                else self._model_mb() * len(order)
            }
            if method == "frozen":
                more = {"size_mb": self._model_mb()}
        last = history[-1]["row"]
        whole = summary(history)
        kept = len(order) > 1 and method in ("ours", "unprotected", "fine_tune", *ABLATIONS)
        return {
            "method": method, "order": " > ".join(order), "seed": seed,
            "target_top1": last[target]["top1"], "target_top5": last[target]["top5"],
            "target_pairwise": last[target]["pairwise"], "target_top1_pooled": last[target]["top1_pooled"], "average": whole["average"],
            "backward_transfer": whole["backward_transfer"] if kept else None, "forgetting": whole["forgetting"] if kept else None,
            "worst_slice": whole["worst_slice"]["drop"] if kept else None,
            "worst_where": f"{whole['worst_slice']['platform']} {whole['worst_slice']['operator']}" if kept else "",
            "worst_task": whole["worst_task"]["drop"] if kept else None, **more,
        }  # fmt: skip

    def _model_mb(self) -> float:
        return 4 * self.shape.mamba().parameters() / 1e6


class _OutOfTime(Exception):
    pass


def run(
    *,
    progress: Progress,
    data: str | None = None,
    platforms: Sequence[str] | None = None,
    operators: Sequence[str] | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    methods: Sequence[str] = METHODS,
    orders: Sequence[Sequence[str]] | None = None,
    fraction: float = 0.1,
    source_fraction: float = 1.0,
    sampler: str = "rdu",
    per_assignment: int | None = None,
    pool_per_assignment: int = 200,
    settings: dict[str, Any] | None = None,
    all_epochs: int = 8,
    split_seed: int = 0,
    ablation: bool | Sequence[str] = False,
    time_limit_s: float = 1e9,
    threads: int = 0,
    cells: str | None = None,
) -> dict[str, Any]:
    """Returns {"bench", "rows", "summary", "agreement", "goals", "machine", "settings", "missing"}.

    data: a dataset (the built-in one). platforms: those to learn (all of one kind). methods: some of `METHODS`. orders: all permutations.
    fraction, source_fraction: see this module.
    per_assignment, pool_per_assignment, operators: bound the programs (`tcl.continual.data.Choice`). settings: of
    `tcl.continual.distill.Settings`. all_epochs: of training from scratch on all programs, which is `1 / fraction` times as many. ablation:
    instead of the methods, ours beside `ABLATIONS` (all, or those named) on validation tasks. time_limit_s: start no cell after it; what
    is missing is listed, a later run goes on. threads: of torch and numba (0: leave as it is). cells: where finished cells are kept.
    """
    from tcl.continual.data import Choice
    from tcl.continual.distill import Settings
    from tcl.continual.knowledge_base import Shape
    from tcl.programs.dataset import Dataset

    if threads:
        import numba
        import torch

        torch.set_num_threads(threads)
        numba.set_num_threads(threads)
    dataset = Dataset.open(data or BUILT_IN)
    known = dataset.platforms()
    chosen = list(platforms or known)
    unknown = [p for p in chosen if p not in known] + [m for m in methods if m not in METHODS]
    if unknown:
        raise UserError(f"Not known: {', '.join(unknown)}.", hint=f"Platforms: {', '.join(known)}; methods: {', '.join(METHODS)}.")
    if len({known[p].kind for p in chosen}) != 1:
        raise UserError("CPU and GPU platforms are kept apart.", hint="Name platforms of one kind.")
    how = Settings(**(settings or {}))
    choice = Choice(fraction, sampler, 0, per_assignment, pool_per_assignment, None, tuple(operators) if operators else None)
    about = {
        "data": str(data or "built-in"), "version": dataset.version, "choice": asdict(choice),
        "settings": how.plain(), "shape": asdict(Shape()),
        "source_fraction": source_fraction, "all_epochs": all_epochs, "split_seed": split_seed, "part": "valid" if ablation else "test",
    }  # fmt: skip
    where = Path(cells) if cells else workspace() / "bench" / "continual"
    where.mkdir(parents=True, exist_ok=True)
    _same(where / ("ablation.json" if ablation else "settings.json"), about)
    bench = _Bench(
        dataset, chosen, choice, how, Shape(), where / "ablation" if ablation else where, source_fraction, all_epochs, about["part"],
        split_seed, time.monotonic() + time_limit_s, progress,
    )  # fmt: skip
    every = [list(o) for o in orders] if orders else [list(o) for o in permutations(chosen)]
    variants: list[tuple[str, dict[str, Any] | None]] = [(m, None) for m in methods]
    if ablation:
        names = list(ABLATIONS) if ablation is True else list(ablation)
        variants = [("ours", None), ("unprotected", None), *((n, ABLATIONS[n]) for n in names)]
    plan = [(m, c, o, s) for s in seeds for o in every for m, c in variants]
    rows, missing = [], []
    for number, (method, changes, order, seed) in enumerate(plan):
        progress.step(number, len(plan), f"{method} {' > '.join(order)} seed {seed}")
        try:
            rows.append(bench.result(method, order, seed, changes))
        except _OutOfTime:
            missing.append(f"{method} {' > '.join(order)} seed {seed}")
    progress.step(len(plan), len(plan), "done")
    return {
        "bench": "continual", "rows": rows, "summary": _summary(rows), "agreement": _agreement(dataset, chosen, choice, rows),
        "goals": [] if ablation else _goals(rows, len(plan)), "machine": machine(), "settings": about | {"threads": threads},
        "missing": missing,
    }  # fmt: skip


def _same(path: Path, about: dict[str, Any]) -> None:
    """Cells of other settings must not be mixed in."""
    about = json.loads(json.dumps(about))
    if path.exists() and json.loads(path.read_text()) != about:
        raise UserError(f"{path.parent} holds cells of other data or settings.", hint="Name another folder with --set cells=DIR.")
    write_json(path, about)


def _name(method: str, platforms: Sequence[str], new: bool = True) -> str:
    return "".join(c if c.isalnum() or c in "+.-_" else "_" for c in f"{method}.{'+'.join(platforms)}") + ("" if new else ".source")


def _give_hardware(dataset: Any, inputs: Sequence[Any]) -> None:
    """Fill in the data sheets of platforms whose hardware the dataset does not tell; only the hardware-feature model reads them."""
    from tcl.features.context import platform_features

    known = dataset.platforms()
    full = [p if p.features else replace(p, features=DATA_SHEETS.get(name, {})) for name, p in known.items()]
    for part in inputs:
        part.platform = platform_features(full)


def _summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Per method: mean and, over seeds, standard deviation; worst over everything."""
    result = []
    for method in dict.fromkeys(r["method"] for r in rows):
        mine = [r for r in rows if r["method"] == method]
        line: dict[str, Any] = {"method": method, "rows": len(mine)}
        for key in ("target_top1", "target_top5", "target_pairwise", "target_top1_pooled", "average", "forgetting", "column_top1"):
            by_seed: dict[int, list[float]] = {}
            for r in mine:
                if r.get(key) is not None:
                    by_seed.setdefault(r["seed"], []).append(r[key])
            means = [float(np.mean(v)) for v in by_seed.values()]
            line[key] = float(np.mean(means)) if means else None
            line[f"{key}_sd"] = float(np.std(means, ddof=1)) if len(means) > 1 else None
        drops = [r for r in mine if r.get("worst_slice") is not None]
        worst = max(drops, key=lambda r: r["worst_slice"], default=None)
        line["worst_slice"] = worst["worst_slice"] if worst else None
        line["worst_where"] = f"{worst['worst_where']} in {worst['order']}, seed {worst['seed']}" if worst else ""
        line["size_mb"] = max(r["size_mb"] for r in mine)
        result.append(line)
    return result


def _agreement(dataset: Any, platforms: Sequence[str], choice: Any, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Per ordered pair: rank agreement on shared programs beside the transfer gained. gained: top-1 on the target when learned right
    after the source (orders that begin with the two) is not separable from longer orders, so: ours minus scratch, by last two."""
    from tcl.continual.data import platform_rows
    from tcl.continual.evaluate import agreement

    labels = {p: platform_rows(dataset, p, replace(choice, per_assignment=None)) for p in platforms}
    own = {(r["order"].split(" > ")[-1], r["seed"]): r["target_top1"] for r in rows if r["method"] == "scratch"}
    result = []
    for a, b in permutations(platforms, 2):
        gains = [
            r["target_top1"] - own[b, r["seed"]] for r in rows
            if r["method"] == "ours" and r["order"].split(" > ")[-2:] == [a, b] and (b, r["seed"]) in own
        ]  # fmt: skip
        result.append({"source": a, "target": b, **agreement(labels[a], labels[b]), "gained": float(np.mean(gains)) if gains else None})
    return result


def _goals(rows: list[dict[str, Any]], planned: int) -> list[dict[str, Any]]:
    """A goal is met by a whole run only: with rows missing, the value so far is shown and `met` is false."""
    ours = {(r["order"], r["seed"]): r for r in rows if r["method"] == "ours"}

    def above(method: str) -> float | None:
        pairs = [r["target_top1"] - o["target_top1"] for r in rows if r["method"] == method and (o := ours.get((r["order"], r["seed"])))]
        return -float(np.mean(pairs)) if pairs else None

    def over(key: str, reduce: Callable[[Any], Any]) -> float | None:
        values = [r[key] for r in ours.values() if r[key] is not None]
        return float(reduce(values)) if values else None

    goals = [
        goal("target's top-1 from a fraction of its programs, less that from scratch on all", 0.0, above("scratch_all")),
        goal("target's top-1 less fine-tuning's", 0.0, above("fine_tune")),
        goal("target's top-1 less joint training's", 0.0, above("joint")),
        goal("knowledge base and column, MB", 0.8, over("size_mb", max), at_most=True),
        goal("average forgetting, top-1", 0.01, over("forgetting", np.mean), at_most=True),
        goal("worst slice (platform, operator), drop in top-1", 0.03, over("worst_slice", max), at_most=True),
    ]
    if len(rows) < planned:
        goals = [g | {"met": False, "name": f"{g['name']} (incomplete: {len(rows)} of {planned} rows)"} for g in goals]
    return goals
