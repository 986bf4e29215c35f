"""`tcl report RUN...`: tuning runs as one HTML file to keep or to share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tcl.commands.common import JsonFlag, emit, say
from tcl.errors import UserError


def run(
    runs: Annotated[list[str], typer.Argument(metavar="RUN", help="A job's id (its last four letters do), or a recording's folder.")],
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("report.html"),
    baseline: Annotated[str, typer.Option(help="One of the runs: the others are compared with it.")] = "",
    as_json: JsonFlag = False,
) -> None:
    """Write a report of tuning runs: charts, tasks, where the time went, the best schedules, machine, versions and the commands."""
    from tcl.jobs.replay import recording
    from tcl.jobs.store import Job
    from tcl.jobs.tuning_run import several
    from tcl.views.tuning_report import report

    folders = {name: recording(name).resolve() for name in runs}
    if baseline and baseline not in folders:
        raise UserError(f"The baseline {baseline!r} is none of the runs.", hint="Name it among them as well, written alike.")
    unique = list(dict.fromkeys(folders.values()))
    found = several([Job(folder) for folder in unique])
    pinned = found[unique.index(folders[baseline])].name if baseline else None
    if not out.parent.is_dir():
        raise UserError(f"There is no folder {out.parent}.", hint="Make it first, or name another file.")
    out.write_text(report(found, pinned), encoding="utf-8")
    if as_json:
        emit({"report": str(out), "runs": len(found), "bytes": out.stat().st_size})
    else:
        say(f"Wrote {out}, {out.stat().st_size / 1e6:.1f} MB: it opens in any browser.")
