"""`tcl bench NAME`: side-by-side comparisons, each from one command, with the machine and the goals beside the figures."""

from __future__ import annotations

import importlib
import inspect
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from tcl.commands.common import JsonFlag, emit, progress, say
from tcl.errors import UserError

BENCHES = {
    "measure": "tcl.bench.measure",
    "import": "tcl.bench.data_import",
    "scan": "tcl.bench.scan",
    "models": "tcl.bench.models",
    "sampling": "tcl.bench.sampling",
    "continual": "tcl.bench.continual",
    "tuning": "tcl.bench.tuning",
    "landscape": "tcl.bench.landscape",
    "app": "tcl.bench.app",
    "steps": "tcl.bench.steps",
}
"""Name -> module. Each has `run(*, progress, **settings) -> {"bench", "rows", "goals", "machine"}`."""
NOT_ASKED = ("cells", "folder", "resume", "time_limit_s")
"""Settings that say where and how long, not what: a result's `asked` leaves them out."""


def run(
    name: Annotated[str, typer.Argument(help="One of: " + ", ".join(BENCHES))],
    settings: Annotated[list[str] | None, typer.Option("--set", help="NAME=VALUE; VALUE is JSON or text.")] = None,
    out: Annotated[Path | None, typer.Option(help="Also write the result to this JSON file.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Run a side-by-side benchmark and say which of its goals were met."""
    if name not in BENCHES:
        raise UserError(f"There is no benchmark {name!r}.", hint="Choose one of: " + ", ".join(BENCHES) + ".")
    function = importlib.import_module(BENCHES[name]).run
    chosen = _settings(function, name, settings or [])
    result = function(progress=progress(), **chosen) | {"asked": {k: v for k, v in chosen.items() if k not in NOT_ASKED}}
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(result, indent=1))
    if as_json:
        emit(result)
        return
    from tcl.bench.report import markdown

    say(markdown(result))


def _settings(function: Any, name: str, pairs: list[str]) -> dict[str, Any]:
    known = [p for p in inspect.signature(function).parameters if p != "progress"]
    chosen: dict[str, Any] = {}
    for pair in pairs:
        key, mark, value = pair.partition("=")
        if not mark or key not in known:
            raise UserError(f"{pair!r} is not a setting of the benchmark {name}.", hint=f"It has: {', '.join(known)}, as NAME=VALUE.")
        try:
            chosen[key] = json.loads(value)
        except ValueError:
            chosen[key] = value
    return chosen
