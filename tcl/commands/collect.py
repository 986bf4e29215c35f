"""`tcl collect`: measure programs of networks and operators on this machine and append them to a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tcl.commands.common import JsonFlag, emit, progress, say
from tcl.errors import UserError


def run(
    out: Annotated[Path, typer.Option("--out", help="The dataset: a new folder, or one to continue.")],
    what: Annotated[
        list[str] | None, typer.Argument(help="Networks (resnet18, bert_tiny, …) and operators (matmul:256,256,256, …).")
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--from", help="Take the pool of programs from this dataset; its platforms then guide a first round.")
    ] = None,
    plan: Annotated[
        Path | None, typer.Option(help="Measure exactly the programs of this plan (`tcl sample`), which --from, or --out itself, holds.")
    ] = None,
    platform: Annotated[str, typer.Option(help="Targets, separated by commas: native, sse42, avx2, avx512.")] = "native",
    programs_per_task: Annotated[int, typer.Option(min=1, help="Size of each task's pool of candidates.")] = 256,
    sampler: Annotated[
        str, typer.Option(help="Which programs are measured: random, or one that learns in rounds (rdu, …; see `tcl sample`).")
    ] = "random",
    budget: Annotated[
        str, typer.Option(help="How much of the pool: a share (10% or 0.1) or programs (500). 0 makes the pool only.")
    ] = "100%",
    rounds: Annotated[int, typer.Option(min=1, help="In how many parts a sampler spends the budget: measure, train, pick again.")] = 3,
    seed: Annotated[int, typer.Option(help="Seed of the pool and of the sampler.")] = 0,
    description: Annotated[str, typer.Option(help="What the dataset is, for those who open it.")] = "",
    json: JsonFlag = False,
) -> None:
    """Measure programs of networks and operators here. Stop it at any time and run it again: it continues.

    What the dataset has measured counts towards the budget, so the same command again measures nothing. The rounds of a sampler
    are kept in the dataset as the selection SAMPLER-PLATFORM, which the app shows.
    """
    from tcl.programs.types import FAILURE_KINDS
    from tcl.tuning.collect import collect
    from tcl.tuning.targets import platform_for

    platforms = [platform_for(name.strip()) for name in platform.split(",") if name.strip()]
    if not platforms:
        raise UserError("No platform was named.", hint="Use --platform native, or avx2,avx512,sse42.")
    found = collect(
        what or [], out, platforms, source=source, plan=plan, programs_per_task=programs_per_task, budget=budget, sampler=sampler,
        rounds=rounds, seed=seed, description=description, progress=progress(),
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
            "by_platform": dict(found.by_platform), "selections": found.selections, "seconds": found.seconds,
            "timed_again": found.timed_again, "busy_batches": found.busy, "stopped": found.stopped,
        })  # fmt: skip
