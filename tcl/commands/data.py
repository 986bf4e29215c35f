"""`tcl data`: import logs, look at a dataset, check it, export it, split it; a catalogue of public data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tcl.commands.common import JsonFlag, emit, progress, say
from tcl.errors import UserError

if TYPE_CHECKING:
    from tcl.programs.dataset import Dataset

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


@cli.command()
def stats(folder: Annotated[Path, typer.Argument(help="The dataset.")], json: JsonFlag = False) -> None:
    """Count platforms, tasks, programs, measurements and failures; answers at once, whatever the size."""
    from tcl.programs.manifest import read_manifest
    from tcl.programs.manifest import stats as count

    found = count(folder, read_manifest(folder))
    if json:
        emit(found)
        return
    say(f"{found['platforms']} platforms, {found['tasks']:,} tasks, {found['programs']:,} programs, {found['measurements']:,} measurements")
    if found["failures"]:
        kinds = ", ".join(f"{kind} {n:,}" for kind, n in sorted(found["failures_by_kind"].items(), key=lambda item: -item[1]))
        say(f"{found['failures']:,} of the measurements failed: {kinds}")
    for name, counts in sorted(found["by_platform"].items()):
        say(f"  {name}: {counts['measurements']:,} measurements, {sum(counts['failures'].values()):,} failed")
    for name, counts in sorted(found["by_operator"].items()):
        say(f"  {name}: {counts['tasks']:,} tasks, {counts['programs']:,} programs, {counts['measurements']:,} measurements")


@cli.command()
def validate(folder: Annotated[Path, typer.Argument(help="The dataset.")], json: JsonFlag = False) -> None:
    """Check ids, references, costs, totals and files; ends with an error where something is wrong."""
    from tcl.programs.dataset import Dataset
    from tcl.programs.validate import validate as check

    dataset = Dataset.open(folder)
    problems = check(dataset, progress())
    for problem in problems:
        say(problem)
    if json:
        emit({"sound": not problems, "problems": problems, "measurements": dataset.stats()["measurements"]})
    if problems:
        raise UserError(f"{folder} is not sound: {len(problems)} kinds of problem, see above.")
    say(f"{folder} is sound: {dataset.stats()['measurements']:,} measurements checked.")


@cli.command()
def export(
    folder: Annotated[Path, typer.Argument(help="The dataset.")],
    out: Annotated[Path, typer.Option(help="The file to write; for metaschedule a folder.")],
    format: Annotated[str, typer.Option(help="ansor, metaschedule, parquet or csv.")] = "parquet",
    platform: Annotated[list[str] | None, typer.Option(help="Only this platform (may be given more than once).")] = None,
    target: Annotated[str, typer.Option(help="TVM target to write where the platform has none: for metaschedule as JSON.")] = "",
    json: JsonFlag = False,
) -> None:
    """Write a dataset for other tools: Ansor lines, a MetaSchedule database that TVM loads, a flat table."""
    from tcl.programs.dataset import Dataset
    from tcl.records.export import export_ansor, export_table

    dataset = Dataset.open(folder)
    known = sorted(dataset.platforms())
    unknown = sorted(set(platform or ()) - set(known))
    if unknown:
        raise UserError(f"{folder} has no platform {', '.join(unknown)} (it has: {', '.join(known) or 'none'}).")
    if format == "ansor":
        counts = export_ansor(dataset, out, platform, target, progress())
    elif format in ("parquet", "csv"):
        counts = export_table(dataset, out, format, platform, progress())
    elif format == "metaschedule":
        counts = _export_metaschedule(dataset, out, platform or known, target)
    else:
        raise UserError(f"There is no export format {format!r}.", hint="Choose ansor, metaschedule, parquet or csv.")
    say(f"{counts['written']:,} records written to {out}" + (f", {counts['left_out']:,} left out." if counts["left_out"] else "."))
    if json:
        emit({"out": out, "format": format, **counts})


def _export_metaschedule(dataset: Dataset, out: Path, platforms: list[str], target: str) -> dict[str, int]:
    """One platform's successful programs of MetaSchedule tasks as a database."""
    from dataclasses import replace
    from types import SimpleNamespace

    from tcl.programs.types import Program
    from tcl.tuning.export import write_database

    if len(platforms) != 1:
        raise UserError("A MetaSchedule database holds one platform.", hint="Name it with --platform.")
    device = dataset.platforms()[platforms[0]]
    device = replace(device, target=target or device.target)
    if not device.target:
        raise UserError(f"The TVM target of {device.name} is not known.", hint="Give it with --target, as JSON.")
    tasks = {t.id: t for t in dataset.task_list() if t.format == "metaschedule" and '"root_index"' in t.workload[:40]}
    labels = dataset.labels(platforms)
    good = labels[labels["latency_s"].notna() & labels["task"].isin(list(tasks))].merge(
        dataset.programs(["program", "schedule"], list(tasks)), on="program"
    )
    trials = []
    for row in good.itertuples():
        trials.append((tasks[row.task], SimpleNamespace(program=Program(row.task, row.schedule), latency_s=float(row.latency_s))))
    out.mkdir(parents=True, exist_ok=True)
    write_database(out, trials, device)
    return {"written": len(good), "left_out": len(labels) - len(good)}


@cli.command()
def catalog(json: JsonFlag = False) -> None:
    """Public data sets: what, licence, size, where to get them, how to import them."""
    from dataclasses import asdict

    from tcl.records.catalog import CATALOG

    if json:
        emit({"datasets": [asdict(entry) for entry in CATALOG]})
        return
    for entry in CATALOG:
        say(f"{entry.name}: {entry.title}\n  {entry.what}\n  records: {entry.records}; size: {entry.size}\n  licence: {entry.licence}")
        say(f"  where: {entry.where}\n  import: {entry.import_command}" + (f"\n  {entry.remarks}" if entry.remarks else "") + "\n")


@cli.command()
def split(
    folder: Annotated[Path, typer.Argument(help="The dataset.")],
    out: Annotated[Path, typer.Option(help="The split's JSON file, which any method reads.")],
    by: Annotated[str, typer.Option(help="task, network, within-task or platform.")] = "task",
    seed: Annotated[int, typer.Option(help="Equal seeds give equal splits.")] = 0,
    test: Annotated[list[str] | None, typer.Option(help="A network or platform to test on (may be given more than once).")] = None,
    valid: Annotated[list[str] | None, typer.Option(help="A platform to choose checkpoints on.")] = None,
    fractions: Annotated[str, typer.Option(help="Shares of train, valid and test.")] = "0.7,0.1,0.2",
    json: JsonFlag = False,
) -> None:
    """Decide who trains on what; near-duplicate tasks stay on one side."""
    from tcl.programs.dataset import Dataset
    from tcl.programs.splits import KINDS, split_by_network, split_by_platform, split_by_task, split_within_task

    dataset = Dataset.open(folder)
    try:
        first, second, third = (float(f) for f in fractions.split(","))
    except ValueError:
        raise UserError(f"{fractions!r} is not three numbers such as 0.7,0.1,0.2.") from None
    shares = (first, second, third)
    if by == "task":
        made = split_by_task(dataset.tasks(), seed, shares)
    elif by == "network":
        made = split_by_network(dataset.tasks(), test or (), seed, shares)
    elif by == "within-task":
        made = split_within_task(seed, shares)
    elif by == "platform":
        made = split_by_platform(sorted(dataset.platforms()), test or (), valid or (), seed)
    else:
        raise UserError(f"There is no split by {by!r}.", hint=f"Choose one of: {', '.join(KINDS)}.")
    made.save(out)
    rows = dataset.measurements(["program", "task", "platform"])
    parts = made.parts(rows)
    result = {"split": out, "kind": by, "seed": seed, "groups": made.count()}
    result["measurements"] = {part: int((parts == part).sum()) for part in ("train", "valid", "test")}
    say(f"Split by {by}: " + ", ".join(f"{part} {n:,} measurements" for part, n in result["measurements"].items()) + f". Saved as {out}.")
    if json:
        emit(result)
