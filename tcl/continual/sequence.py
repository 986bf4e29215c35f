"""Learn platform after platform into one knowledge base: learn -> consolidate, each a step that is kept when it is finished.

The folder holds the knowledge base (`tcl.continual.knowledge_base`) and, between the two steps of a platform, `column.safetensors`
and `column.json`. Whoever kills the process loses the step at hand and nothing else; every step's randomness comes from (seed, number
of the platform, its name), so a continued sequence ends with the numbers of one that never stopped.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tcl.continual.active_column import ActiveColumn
from tcl.continual.data import PlatformData
from tcl.continual.distill import Settings, consolidate, learn, new_column, step_seed
from tcl.continual.evaluate import score, summary
from tcl.continual.knowledge_base import KnowledgeBase, Shape, exists
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
    progress: Progress | None = None,
) -> KnowledgeBase:
    """Learn the platforms of `order` that the knowledge base in `folder` does not know yet (a new one where there is none).

    data_of: called for the platform at hand only, never for an earlier one. test_of: a platform's test programs, or None where they are
    no longer there; only used to fill the row R[i, :]; its labels are never learned from. mixed: allow CPU and GPU platforms in one
    knowledge base. Events: "epoch"; "learned" {platform, number, top1, sources, nearest, warning, seconds}; "consolidated" {platform,
    number, row: platform -> scores, summary, size_bytes, seconds}.

    Raises UserError for a platform named twice, an order that contradicts what was learned, or CPU and GPU together. `Stopped` passes
    through; what was finished is on disk.
    """
    progress, settings, folder = progress or Progress(), settings or Settings(), Path(folder)
    base = KnowledgeBase.load(folder) if exists(folder) else KnowledgeBase.new(shape, seed)
    if shape is not None and base.shape != shape:
        raise UserError(f"The knowledge base in {folder} has another shape: {asdict(base.shape)}.", hint="Name another folder.")
    todo = _todo(order, base)
    folder.mkdir(parents=True, exist_ok=True)
    for done, platform in enumerate(todo):
        progress.check()
        progress.step(done, len(todo), f"learn {platform}")
        _platform(platform, data_of(platform), base, folder, test_of, settings, seed, mixed, progress)
    progress.step(len(todo), len(todo), "done")
    return base


def _todo(order: Sequence[str], base: KnowledgeBase) -> list[str]:
    if not order or len(set(order)) != len(order):
        raise UserError(f"An order names each platform once; got {', '.join(order) or 'nothing'}.")
    known = list(base.platforms)
    todo = [p for p in order if p not in base.platforms]
    repeated = [p for p in order if p in base.platforms]
    if repeated and (repeated != known[: len(repeated)] or list(order[: len(repeated)]) != repeated):
        raise UserError(
            f"The knowledge base learned {', '.join(known)}, in this order, which {', '.join(order)} contradicts.",
            hint="Name only the new platforms, or another folder.",
        )
    return todo


def _platform(
    platform: str, data: PlatformData, base: KnowledgeBase, folder: Path, test_of: TestOf | None,
    settings: Settings, seed: int, mixed: bool, progress: Progress,
) -> None:  # fmt: skip
    kinds = {p["kind"] for p in base.platforms.values()} | {data.kind}
    if len(kinds) > 1 and not mixed:
        raise UserError(
            f"{platform} is a {data.kind}, what was learned are {', '.join(sorted(kinds - {data.kind}))} platforms; they are kept apart.",
            hint="Use another folder, or --mixed to put both into one.",
        )
    number = len(base.platforms)
    how = {"platform": platform, "number": number, "seed": seed, "settings": settings.plain(), "data": data.about}
    labelled = _Labelled(progress, platform, number)
    began = time.perf_counter()
    column, report = _learned(how, base, data, settings, step_seed(seed, number, platform), folder, labelled)
    learn_s = time.perf_counter() - began
    test = test_of(platform) if test_of else data.test
    own = score(test, column.predict(test.inputs)) if test is not None else {}
    progress.event("learned", platform=platform, number=number, top1=own.get("top1"), seconds=learn_s, measured=len(data.train), **report)
    began = time.perf_counter()
    kept = consolidate(base, column, data, settings, step_seed(seed, number, platform), labelled)
    row = rows_of_r(base, test_of or (lambda name: data.test if name == platform else None))
    entry = how | {
        "learned": report | {"score": own, "seconds": learn_s}, "consolidated": kept | {"seconds": time.perf_counter() - began}, "row": row,
        "size_bytes": {"knowledge_base": base.size_bytes(), "column": column.size_bytes()},
    }  # fmt: skip
    base.history.append(entry)
    base.save(folder)
    for name in ("column.json", "column.safetensors"):
        (folder / name).unlink(missing_ok=True)
    progress.event(
        "consolidated", platform=platform, number=number, row=row, summary=summary(base.history), size_bytes=entry["size_bytes"],
        seconds=entry["consolidated"]["seconds"], losses=kept["losses"],
    )  # fmt: skip


def _learned(
    how: dict[str, Any], base: KnowledgeBase, data: PlatformData, settings: Settings, seed: int, folder: Path, progress: Progress
) -> tuple[ActiveColumn, dict[str, Any]]:  # fmt: skip
    card = folder / "column.json"
    if card.exists():
        kept = json.loads(card.read_text())
        if kept["how"] == json.loads(json.dumps(how)):  # else: of another platform, seed or data: learn again
            column, _ = new_column(base, data, settings, seed)
            column.load_weights(folder / "column.safetensors")
            return column, kept["report"]
    column, report = learn(base, data, settings, seed, progress)
    column.save_weights(folder / "column.safetensors")
    write_json(card, {"how": how, "report": report})
    return column, report


def rows_of_r(base: KnowledgeBase, test_of: TestOf) -> dict[str, dict[str, Any]]:
    """One row of R: platform -> `score`, of every learned platform whose test programs are there."""
    row = {}
    for name in base.platforms:
        test = test_of(name)
        if test is not None:
            row[name] = score(test, base.model(name).predict(test.inputs))
    return row


class _Labelled(Progress):
    """Says of which platform and phase an epoch is."""

    def __init__(self, progress: Progress, platform: str, number: int) -> None:
        self.progress, self.about = progress, {"phase": "learn", "platform": platform, "number": number}

    def event(self, kind: str, **data: Any) -> None:
        self.progress.event(kind, **(self.about | data))

    def step(self, done: float, total: float, message: str = "") -> None:
        self.progress.step(done, total, f"{self.about['platform']}: {message}")

    def check(self) -> None:
        self.progress.check()
