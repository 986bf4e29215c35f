"""`tcl collect`: measure random programs of networks and operators on this machine and append them to a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tcl.commands.common import JsonFlag, emit, progress, say
from tcl.errors import UserError


def run(
    what: Annotated[list[str], typer.Argument(help="Networks (resnet18, bert_tiny, …) and operators (matmul:256,256,256, …).")],
    out: Annotated[Path, typer.Option("--out", help="The dataset: a new folder, or one to continue.")],
    platform: Annotated[str, typer.Option(help="Targets, separated by commas: native, sse42, avx2, avx512.")] = "native",
    programs_per_task: Annotated[int, typer.Option(min=1, help="Size of each task's pool of candidates.")] = 256,
    sampler: Annotated[str, typer.Option(help="Which programs of the pool are measured.")] = "random",
    budget: Annotated[str, typer.Option(help="How much of the pool: 10% or 0.1. 0 makes the pool only.")] = "100%",
    seed: Annotated[int, typer.Option(help="Seed of the pool and of the sampler.")] = 0,
    description: Annotated[str, typer.Option(help="What the dataset is, for those who open it.")] = "",
    json: JsonFlag = False,
) -> None:
    """Measure programs of networks and operators here. Stop it at any time and run it again: it continues."""
    share = parse_share(budget)
    from tcl.programs.types import FAILURE_KINDS
    from tcl.tuning.collect import collect
    from tcl.tuning.targets import platform_for

    platforms = [platform_for(name.strip()) for name in platform.split(",") if name.strip()]
    if not platforms:
        raise UserError("No platform was named.", hint="Use --platform native, or avx2,avx512,sse42.")
    found = collect(
        what, out, platforms, programs_per_task=programs_per_task, budget=share, sampler=sampler, seed=seed,
        description=description, progress=progress(),
    )  # fmt: skip
    failures = {kind: found.failed[kind] for kind in FAILURE_KINDS if found.failed[kind]}
    say(
        f"{found.measured} measured, {sum(failures.values())} failed, {found.already_there} were there already; "
        f"{found.programs} programs of {found.tasks} tasks in {out}."
    )
    if json:
        emit({
            "dataset": out, "tasks": found.tasks, "programs": found.programs, "selected": found.selected,
            "measured": found.measured, "failed": failures, "already_there": found.already_there,
            "by_platform": dict(found.by_platform), "seconds": found.seconds, "timed_again": found.timed_again,
            "busy_batches": found.busy, "stopped": found.stopped,
        })  # fmt: skip


def parse_share(text: str) -> float:
    """ "10%" or "0.1" -> 0.1.

    Raises:
        UserError: it is no number from 0 to 1 (100 %).
    """
    try:
        share = float(text.rstrip("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise UserError(f"A budget of {text!r} is no share of the pool.", hint="Write 10% or 0.1; at most 100%.")
    return share
