"""`tcl data`: import logs, look at a dataset, check it, export it, split it; a catalogue of public data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tcl.commands.common import JsonFlag, emit, progress, say
from tcl.errors import UserError

cli = typer.Typer(no_args_is_help=True, help="Import logs; look at, check, export and split datasets.")


@cli.command("import")
def import_(
    paths: Annotated[list[str], typer.Argument(help="Files, folders, globs, .gz, .zip or .tar of logs. The content tells the format.")],
    out: Annotated[Path, typer.Option(help="The dataset's folder; made when it is not there, added to when it is.")],
    platform: Annotated[str, typer.Option(help="What the logs were measured on. Never guessed from a target string.")] = "",
    platforms_map: Annotated[Path | None, typer.Option(help="A file of lines `v100/ -> nvidia-v100`: a platform for each folder.")] = None,
    kind: Annotated[str, typer.Option(help="cpu or gpu. Without it, gpu where schedules bind loops to GPU threads.")] = "",
    description: Annotated[str, typer.Option(help="A sentence kept with a new dataset.")] = "",
    json: JsonFlag = False,
) -> None:
    """Import other people's logs (Ansor, TenSet, AutoTVM, MetaSchedule) into a dataset."""
    from tcl.records.importer import import_logs
    from tcl.records.platform_map import NamedPlatform, PlatformMap
    from tcl.records.report import describe_import

    if bool(platform) == bool(platforms_map):
        raise UserError("Say what the logs were measured on: either --platform NAME or --platforms-map FILE.")
    chosen = PlatformMap.read(platforms_map, kind) if platforms_map else NamedPlatform(platform, kind)
    summary = import_logs(paths, out, chosen, progress(), description)
    for line in describe_import(summary):
        say(line)
    if json:
        emit(summary.to_dict())
    if not summary.imported + summary.duplicates:
        raise UserError("No measurement was imported.", hint="See above why.")
