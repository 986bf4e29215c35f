"""What all subcommands share: one JSON object on standard output with `--json`, everything else on standard error."""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from tcl.progress import ConsoleProgress, Progress

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output, nothing else there.")]


def say(message: str) -> None:
    """A message for people, on standard error."""
    print(message, file=sys.stderr, flush=True)


def emit(result: dict[str, Any]) -> None:
    """Print `result` as the command's one JSON object. NaN and infinity, which JSON does not have, become null."""
    print(json.dumps(_plain(result), allow_nan=False))


def progress() -> Progress:
    """The progress of this process: a job's folder when it runs as a background job, else the console."""
    folder = os.environ.get("TCL_JOB_DIR")
    if folder:
        from tcl.jobs.worker import JobProgress

        return JobProgress(Path(folder))
    return ConsoleProgress()


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(v) for v in value]
    if hasattr(value, "item") and not isinstance(value, str):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value
