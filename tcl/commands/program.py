"""`tcl program`: one program of a dataset, from its primitives to its TVMScript."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from tcl.commands.common import JsonFlag, emit


def run(
    dataset: Annotated[Path, typer.Argument(metavar="DIR", help="The dataset's folder.")],
    identity: Annotated[str, typer.Argument(metavar="ID", help="The program's 16 hex digits.")],
    script: Annotated[bool, typer.Option("--script", help="Also make its TVMScript (needs TVM; a few seconds).")] = False,
    platform: Annotated[str | None, typer.Option(help="Of the TVMScript: whose target it is made for.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show a program: its task, what its schedule does, its latency on every platform."""
    from tcl.programs.dataset import Dataset
    from tcl.programs.types import parse_id
    from tcl.views.program import program_details

    opened = Dataset.open(dataset)
    details = program_details(opened, parse_id(identity))
    if script:
        details["script"] = _script(opened, details, platform)
    if as_json:
        emit(details)
        return
    print(f"{details['id']}  {details['task_name']}")
    for row in details["measurements"]:
        print(f"  {row['platform']:<24} {row['text']}")
    for i, step in enumerate(details["steps"], 1):
        print(f"  {i:>3}  {step}")
    if script:
        print(details["script"])


def _script(dataset: Any, details: dict[str, Any], platform: str | None) -> str:
    """The program's TVMScript. Logs of other formats hold no computation to apply the schedule to."""
    from tcl.errors import UserError
    from tcl.programs.types import Program, parse_id

    if details["format"] != "metaschedule":
        raise UserError(
            f"No TVMScript can be made of {details['id']}: its log ({details['format']}) holds the schedule, not the computation.",
            hint="Programs from `tcl collect` and MetaSchedule databases have one.",
        )
    from tcl.tuning.design_space import apply

    platforms = dataset.platforms()
    names = [platform] if platform else [row["platform"] for row in details["measurements"]] + list(platforms)
    targets = [json.loads(platforms[n].target) for n in names if n in platforms and platforms[n].target]
    target = targets[0] if targets else {"kind": "llvm", "num-cores": 1}
    task = next(t for t in dataset.task_list() if t.id == parse_id(details["task"]))
    return str(apply(task, Program(task.id, details["schedule"]), target).script())
