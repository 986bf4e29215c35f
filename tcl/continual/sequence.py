"""Learn platform after platform into one knowledge base: learn -> consolidate, each a step that is kept when it is finished.

The folder holds the knowledge base (`tcl.continual.knowledge_base`) and, between the two steps of a platform, `column.safetensors`
and `column.json`. Whoever kills the process loses the step at hand and nothing else; every step's randomness comes from (seed, number
of the platform, its name), so a continued sequence ends with the numbers of one that never stopped (on as many threads: with another
number of them, sums differ in the last digit). Beside them lie plain files for people and pages: `movement-N.parquet`
(`tcl.continual.movement`).
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tcl.continual import baselines, movement
from tcl.continual.active_column import ActiveColumn
from tcl.continual.data import PlatformData
from tcl.continual.distill import Settings, consolidate, learn, new_column, step_seed
from tcl.continual.evaluate import score, summary, transfer
from tcl.continual.knowledge_base import KnowledgeBase, Shape, bytes_of, exists
from tcl.errors import UserError
from tcl.files import write_json
from tcl.models.base import Examples
from tcl.progress import Progress

DataOf = Callable[[str], PlatformData]
TestOf = Callable[[str], Examples | None]


def run_sequence(
    order: Sequence[str],
    data_of: DataOf,
    folder: str | Path,
    *,
    test_of: TestOf | None = None,
    shape: Shape | None = None,
    settings: Settings | None = None,
    seed: int = 0,
    mixed: bool = False,
    compare: bool = False,
    progress: Progress | None = None,
) -> KnowledgeBase:
    """Learn the platforms of `order` that the knowledge base in `folder` does not know yet (a new one where there is none).

    data_of: called for the platform at hand only, never for an earlier one. test_of: a platform's test programs, or None where they are
    no longer there; only used to fill the row R[i, :]; its labels are never learned from. mixed: allow CPU and GPU platforms in one
    knowledge base. compare: also train each platform's programs from scratch, to say what transfer gained; it changes nothing else.

    Events: "sequence" {order, known, todo, seed, settings}; "platform" {platform, number, measured, programs, pool, tasks}; "epoch"
    {phase, platform, number, epoch, epochs, loss}; "learned" {platform, number, top1, sources, nearest, warning, transfer, scratch,
    seconds}; "consolidated" {platform, number, row: platform -> scores, summary, size_bytes, losses, seconds}.

    Raises UserError for a platform named twice, an order that contradicts what was learned, or CPU and GPU together. `Stopped` passes
    through; what was finished is on disk.
    """
    progress, settings, folder = progress or Progress(), settings or Settings(), Path(folder)
    base = KnowledgeBase.load(folder) if exists(folder) else KnowledgeBase.new(shape, seed)
    if shape is not None and base.shape != shape:
        raise UserError(f"The knowledge base in {folder} has another shape: {asdict(base.shape)}.", hint="Name another folder.")
    todo = _todo(order, base)
    folder.mkdir(parents=True, exist_ok=True)
    progress.event("sequence", order=list(order), known=list(base.platforms), todo=todo, seed=seed, settings=settings.plain())
    work = _Work(progress)
    for done, platform in enumerate(todo):
        progress.check()
        work.say(f"read {platform}")
        data = data_of(platform)
        work.plan(data, settings, len(todo) - done, compare, bool(base.platforms))
        _platform(platform, data, base, folder, test_of, settings, seed, mixed, compare, work)
    progress.step(work.done, work.done, "done")
    return base


def _todo(order: Sequence[str], base: KnowledgeBase) -> list[str]:
    if not order or len(set(order)) != len(order):
        raise UserError(f"An order names each platform once; got {', '.join(order) or 'nothing'}.")
    known = list(base.platforms)
    todo = [p for p in order if p not in base.platforms]
    repeated = [p for p in order if p in base.platforms]
    # What was learned may stand first, in the order in which it was: so the same command goes on after a kill, whatever was known before.
    if repeated != [p for p in known if p in repeated] or list(order[: len(repeated)]) != repeated:
        raise UserError(
            f"The knowledge base learned {', '.join(known)}, in this order, which {', '.join(order)} contradicts.",
            hint="Name only the new platforms, or another folder.",
        )
    return todo


def _platform(
    platform: str, data: PlatformData, base: KnowledgeBase, folder: Path, test_of: TestOf | None,
    settings: Settings, seed: int, mixed: bool, compare: bool, work: _Work,
) -> None:  # fmt: skip
    kinds = {p["kind"] for p in base.platforms.values()} | {data.kind}
    if len(kinds) > 1 and not mixed:
        raise UserError(
            f"{platform} is a {data.kind}, what was learned are {', '.join(sorted(kinds - {data.kind}))} platforms; they are kept apart.",
            hint="Use another folder, or --mixed to put both into one.",
        )
    number = len(base.platforms)
    work.event("platform", platform=platform, number=number, **{k: data.about[k] for k in ("measured", "programs", "pool", "tasks")})
    how = {"platform": platform, "number": number, "seed": seed, "settings": settings.plain(), "data": data.about}
    one_seed = step_seed(seed, number, platform)
    test = test_of(platform) if test_of else data.test
    began = time.perf_counter()
    column, report = _learned(how, base, data, test, settings, one_seed, folder, compare, work)
    learn_s = time.perf_counter() - began
    own = score(test, column.predict(test.inputs)) if test is not None else {}
    learned = _finite(report | {"score": own, "seconds": learn_s})
    work.event("learned", platform=platform, number=number, top1=own.get("top1"), measured=len(data.train), **report, seconds=learn_s)
    began = time.perf_counter()
    probe = movement.Probe(base, data, report["nearest"], one_seed)
    kept = consolidate(base, column, data, settings, one_seed, work.phase("consolidate", platform, number))
    seen = probe.after(base)
    if seen is not None:
        movement.write(folder / f"movement-{number}.parquet", *seen)
    row = rows_of_r(base, test_of or (lambda name: data.test if name == platform else None))
    size = {
        "knowledge_base": base.size_bytes(), "column": column.size_bytes(), "model": bytes_of(base.trunk),
        "head": bytes_of({k: v for k, v in base.trunk.items() if k.startswith("head.")}),
    }  # fmt: skip
    entry = how | {
        "learned": learned, "consolidated": kept | {"seconds": time.perf_counter() - began}, "row": _finite(row), "size_bytes": size,
    }  # fmt: skip
    base.history.append(entry)
    entry["summary"] = _finite(summary(base.history))
    base.save(folder)
    for name in ("column.json", "column.safetensors"):
        (folder / name).unlink(missing_ok=True)
    work.event(
        "consolidated", platform=platform, number=number, row=entry["row"], summary=entry["summary"], size_bytes=size,
        seconds=entry["consolidated"]["seconds"], losses=kept["losses"],
    )  # fmt: skip


def _learned(
    how: dict[str, Any], base: KnowledgeBase, data: PlatformData, test: Examples | None, settings: Settings, seed: int, folder: Path,
    compare: bool, work: _Work,
) -> tuple[ActiveColumn, dict[str, Any]]:  # fmt: skip
    platform, number = how["platform"], how["number"]
    card = folder / "column.json"
    kept = json.loads(card.read_text()) if card.exists() else {}
    if kept.get("how") == json.loads(json.dumps(how)):  # else: of another platform, seed or data: learn again
        column, _ = new_column(base, data, settings, seed)
        column.load_weights(folder / "column.safetensors")
        report = kept["report"]
        work.skip("learn")
    else:
        progress = work.phase("learn", platform, number)
        column, report = learn(base, data, settings, seed, progress)
        report |= {"losses": progress.losses, "transfer": _finite(transfer(base, test))}
        column.save_weights(folder / "column.safetensors")
        write_json(card, {"how": how, "report": report})
    if compare and test is not None and "scratch" not in report:
        report["scratch"] = _scratch(column, base, data, test, settings, seed, report, work.phase("scratch", platform, number))
        write_json(card, {"how": how, "report": report})
    return column, report


def _scratch(
    column: ActiveColumn, base: KnowledgeBase, data: PlatformData, test: Examples, settings: Settings, seed: int, report: dict[str, Any],
    progress: Progress,
) -> dict[str, Any]:  # fmt: skip
    """Scores of a Mamba that learned the same programs from nothing; without a source the column itself is one."""
    model: Any = column
    if report["nearest"] is not None:
        model = baselines.scratch(base.shape, data.train, baselines.trainer_of(settings, seed, progress))
        progress.check()
    found = score(test, model.predict(test.inputs))
    return _finite({k: found[k] for k in ("top1", "top5", "spearman")})


def _finite(value: Any) -> Any:
    """NaN and infinity, which JSON does not have, as None."""
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def rows_of_r(base: KnowledgeBase, test_of: TestOf) -> dict[str, dict[str, Any]]:
    """One row of R: platform -> `score`, of every learned platform whose test programs are there."""
    row = {}
    for name in base.platforms:
        test = test_of(name)
        if test is not None:
            row[name] = score(test, base.model(name).predict(test.inputs))
    return row


class _Work:
    """How far the whole sequence is, in programs seen by a training step, which take about the same time in every phase."""

    def __init__(self, progress: Progress) -> None:
        self.progress, self.done, self.total, self.units = progress, 0.0, 0.0, dict.fromkeys(("learn", "scratch", "consolidate"), 0.0)

    def plan(self, data: PlatformData, settings: Settings, platforms: int, compare: bool, known: bool) -> None:
        """Before a platform: its phases' sizes; the `platforms` still to learn are taken to be like it. The first of all is not
        distilled: the knowledge base becomes its column."""
        learn_units = float(len(data.train) * settings.epochs)
        later = {"learn": learn_units, "scratch": learn_units * compare, "consolidate": float(len(data.pool) * settings.consolidate_epochs)}
        self.units = later if known else {"learn": learn_units, "scratch": 0.0, "consolidate": 0.0}
        self.total = self.done + sum(self.units.values()) + (platforms - 1) * sum(later.values())

    def phase(self, name: str, platform: str, number: int) -> _Phase:
        return _Phase(self, name, platform, number)

    def skip(self, name: str) -> None:
        """The phase was finished before: it is no work of this run, and would make the time left look shorter."""
        self.total -= self.units[name]
        self.units[name] = 0.0

    def say(self, message: str) -> None:
        self.progress.step(self.done, self.total, message)

    def event(self, kind: str, **data: Any) -> None:
        self.progress.event(kind, **data)


class _Phase(Progress):
    """Says of which platform and phase an epoch is, and keeps its losses."""

    def __init__(self, work: _Work, name: str, platform: str, number: int) -> None:
        self.work, self.about = work, {"phase": name, "platform": platform, "number": number}
        self.began, self.units, self.losses = work.done, work.units[name], []

    def event(self, kind: str, **data: Any) -> None:
        if kind == "epoch":
            self.losses.append(data["loss"])
        self.work.event(kind, **(self.about | data))

    def step(self, done: float, total: float, message: str = "") -> None:
        self.work.done = self.began + self.units * done / max(total, 1)
        self.work.say(f"{self.about['phase']} {self.about['platform']}: {message}")

    def check(self) -> None:
        self.work.progress.check()
