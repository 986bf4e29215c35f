"""`tcl jobs`: background work, started by the app or here, watched and controlled from any terminal."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from tcl.commands.common import JsonFlag, emit, say

cli = typer.Typer(no_args_is_help=True)

JobId = Annotated[str, typer.Argument(metavar="ID", help="The job's id, or the four digits it ends in.")]


@cli.callback()
def group() -> None:
    """List, watch and control background jobs."""


@cli.command("list")
def list_(json: JsonFlag = False) -> None:
    """All jobs, newest first."""
    from tcl.jobs.store import all_jobs

    rows = [job.summary() for job in all_jobs()]
    if json:
        emit({"jobs": rows})
        return
    if not rows:
        say("No jobs yet. `tcl jobs submit -- tune matmul:256,256,256` starts one; so does the app's Tune page.")
        return
    table = [("id", "state", "progress", "what"), *((r["id"], r["state"], _progress(r), r["title"] or r["command"]) for r in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)][:-1]
    for *cells, what in table:
        print("  ".join([*(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)), what]))


@cli.command(context_settings={"ignore_unknown_options": True})
def submit(
    arguments: Annotated[list[str], typer.Argument(metavar="COMMAND…", help="A tcl command line, after --.")],
    json: JsonFlag = False,
) -> None:
    """Run a tcl command in the background: tcl jobs submit -- tune softmax:512,512 --trials 64."""
    from tcl.jobs.store import find
    from tcl.jobs.store import submit as start

    arguments = arguments[1:] if arguments[:1] == ["tcl"] else arguments
    job = find(start(arguments[0], arguments))
    emit(job.summary()) if json else print(job.id)


@cli.command()
def show(identity: JobId, json: JsonFlag = False) -> None:
    """One job: state, progress, result, the end of its log."""
    from tcl.jobs.store import find

    job = find(identity)
    if json:
        emit(job.summary() | {"latest": job.progress["latest"], "result": job.result, "path": str(job.path)})
        return
    row = job.summary()
    print(f"{row['id']}\n{row['command']}\n{row['state']}  {_progress(row)}  {row['message']}".rstrip())
    print(f"started {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(row['created']))}; everything it wrote: {job.path}")
    if row["error"]:
        print(row["error"])
    print(job.log(4000), end="")


@cli.command()
def wait(identity: JobId, json: JsonFlag = False) -> None:
    """Wait until a job has ended; non-zero when it did not end well."""
    from tcl.jobs.store import ALIVE, DONE, STOPPED, find

    job = find(identity)
    while job.state in ALIVE:
        time.sleep(0.3)
    row = job.summary() | {"result": job.result}
    emit(row) if json else print(f"{row['id']}  {row['state']}")
    if row["state"] not in (DONE, STOPPED):
        raise typer.Exit(1)


@cli.command()
def pause(identity: JobId, json: JsonFlag = False) -> None:
    """Wait after the current step."""
    _verb(identity, "pause", json)


@cli.command()
def resume(identity: JobId, json: JsonFlag = False) -> None:
    """Go on after a pause."""
    _verb(identity, "resume", json)


@cli.command()
def stop(identity: JobId, json: JsonFlag = False) -> None:
    """Finish the current step, keep the results, end."""
    _verb(identity, "stop", json)


@cli.command()
def cancel(identity: JobId, json: JsonFlag = False) -> None:
    """End now; what was written before stays."""
    _verb(identity, "cancel", json)


@cli.command()
def remove(identity: JobId, json: JsonFlag = False) -> None:
    """Delete an ended job's folder; what it made elsewhere stays."""
    from tcl.jobs.store import find

    job = find(identity)
    job.remove()
    emit({"id": job.id, "removed": True}) if json else say(f"{job.id} removed.")


@cli.command()
def replay(
    recording: Annotated[str, typer.Argument(help="A job's id, or a folder that holds an events.jsonl.")],
    speed: Annotated[float, typer.Option(help="Recorded seconds played in one second.")] = 10.0,
    json: JsonFlag = False,
) -> None:
    """Play a recorded job as if it were live, at any speed."""
    from tcl.commands.common import progress
    from tcl.jobs.replay import play
    from tcl.jobs.replay import recording as find_recording

    result = play(find_recording(recording), progress(), speed)
    emit(result) if json else say("Played to its end.")


def _verb(identity: str, verb: str, json: bool) -> None:
    from tcl.jobs.store import find

    job = find(identity)
    getattr(job, verb)()
    emit(job.summary()) if json else say(f"{job.id}: {verb} asked; now {job.state}.")


def _progress(row: dict[str, Any]) -> str:
    from tcl.progress import format_seconds

    if not row["total"]:
        return format_seconds(row["active_s"]) if row["active_s"] else ""
    left = f", {format_seconds(row['left_s'])} left" if row["left_s"] else ""
    return f"{row['done']:.0f}/{row['total']:.0f}{left}"
