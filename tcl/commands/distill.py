"""`tcl distill`: learn platform after platform into one small knowledge base."""

from __future__ import annotations

from math import isfinite
from pathlib import Path
from typing import Annotated, Any

import typer

from tcl.commands.common import JsonFlag, emit, progress, say


def run(
    dataset: Annotated[Path, typer.Argument(metavar="DIR", help="The dataset with the platforms' measurements.")],
    order: Annotated[str, typer.Option(help="Platforms in the order of learning, with commas: k80,mi50,v100.")],
    out: Annotated[Path, typer.Option(help="Folder of the knowledge base; one that is there already learns the new platforms.")],
    fraction: Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of each platform's programs to learn from.")] = 0.1,
    sampler: Annotated[str, typer.Option(help="What picks them; see `tcl sample --help`.")] = "rdu",
    seed: Annotated[int, typer.Option(help="Of the selection and the training.")] = 0,
    split_seed: Annotated[int, typer.Option(help="Of the split by task; a knowledge base that is there keeps its own.")] = 0,
    operators: Annotated[str, typer.Option(help="Only tasks of these operators, with commas.")] = "",
    per_task: Annotated[int, typer.Option(help="Use at most so many programs of each task; 0: all.")] = 0,
    epochs: Annotated[int, typer.Option(help="Of learning; 0: the default.")] = 0,
    protect: Annotated[str, typer.Option(help="What keeps earlier platforms: freeze, ewc, lwf, ewc+lwf or none; empty: the default.")] = "",
    mixed: Annotated[bool, typer.Option(help="Allow CPU and GPU platforms in one knowledge base.")] = False,
    compare: Annotated[
        bool, typer.Option(help="Also train each platform from scratch, to say what transfer gained; up to twice the time.")
    ] = False,
    for_platform: Annotated[str, typer.Option(help="Write the plain cost model of this platform; default: the last one.")] = "",
    json: JsonFlag = False,
) -> None:
    """Learn platforms one after the other from a share of their programs, and show what each step made of the earlier ones.

    Stopped or killed, the same command goes on after the last finished step and ends with the same numbers.
    """
    from dataclasses import replace

    from tcl.continual.data import Choice, PlatformData, platform_data
    from tcl.continual.distill import Settings
    from tcl.continual.evaluate import summary
    from tcl.continual.knowledge_base import KnowledgeBase, exists
    from tcl.continual.sequence import run_sequence
    from tcl.errors import UserError
    from tcl.models.base import Examples
    from tcl.programs.dataset import Dataset
    from tcl.progress import Stopped

    data = Dataset.open(dataset)
    known = data.platforms()
    names = [p.strip() for p in order.split(",") if p.strip()]
    unknown = [p for p in names if p not in known]
    if unknown:
        raise UserError(f"{dataset} has no platform {', '.join(unknown)}.", hint=f"It has: {', '.join(known)}.")
    if not fraction > 0:
        raise UserError("Nothing can be learned from a fraction of 0.", hint="Give --fraction 0.1, for a tenth of the programs.")
    settings = Settings(**({"epochs": epochs} if epochs else {}) | ({"protect": protect} if protect else {}))
    split = _split(data, out, split_seed)
    choice = Choice(fraction, sampler, seed, per_task or None, operators=[o.strip() for o in operators.split(",") if o.strip()] or None)
    tests: dict[str, Examples | None] = {}

    def data_of(platform: str) -> PlatformData:
        found = platform_data(data, platform, split, choice)
        tests[platform] = found.test
        return found

    def test_of(platform: str) -> Examples | None:
        if platform not in tests:
            here = platform in known  # a knowledge base continued on another machine may know platforms that this dataset does not have
            tests[platform] = platform_data(data, platform, split, replace(choice, sampler="random")).test if here else None
        return tests[platform]

    stopped = False
    try:
        base = run_sequence(
            names, data_of, out, test_of=test_of, settings=settings, seed=seed, mixed=mixed, compare=compare, progress=progress()
        )
    except UserError:
        if not exists(out):  # nothing was learned: leave no folder that looks as if
            (out / "split.json").unlink(missing_ok=True)
        raise
    except Stopped:  # what was finished is on disk; the same command goes on
        stopped = True
        base = KnowledgeBase.load(out) if exists(out) else KnowledgeBase.new(seed=seed)
    about = _remember(data, out, [p for p in base.platforms if p in known])
    if for_platform and not stopped:
        base.export(out, for_platform)
    result: dict[str, Any] = {
        "model": str(out), "seed": seed, "fraction": fraction, "sampler": sampler, "stopped": stopped,
        "left": [p for p in names if p not in base.platforms], **summary(base.history),
    }  # fmt: skip
    result["size_bytes"] = base.history[-1]["size_bytes"] if base.history else {}
    result["warnings"] = [h["learned"]["warning"] for h in base.history if h["learned"]["warning"]]
    result["steps"] = [
        {
            "platform": h["platform"], "measured": h["data"]["measured"], "programs": h["data"]["programs"],
            "sources": h["learned"]["sources"],
            "column_top1": h["learned"]["score"].get("top1"), "top1": h["row"].get(h["platform"], {}).get("top1"),
            "scratch_top1": h["learned"].get("scratch", {}).get("top1"),
            "seconds": h["learned"]["seconds"] + h["consolidated"]["seconds"],
        }
        for h in base.history
    ]  # fmt: skip
    result["agreement"] = about["agreement"]
    if json:
        emit(result)
        return
    for line in _lines(result):
        say(line)


def _split(data: Any, out: Path, seed: int) -> Any:
    """The split of this knowledge base: what was tested on before is never trained on later; new tasks get a part of their own."""
    from dataclasses import replace

    from tcl.continual.knowledge_base import exists
    from tcl.errors import UserError
    from tcl.programs.splits import Split, split_by_task

    path = out / "split.json"
    if out.is_dir() and any(out.iterdir()) and not exists(out) and not path.exists():
        raise UserError(f"{out} holds other things than a knowledge base.", hint="Name a new or empty folder.")
    split = split_by_task(data.tasks(), seed)
    if path.exists():
        before = Split.load(path)
        split = replace(before, sides=split.sides | before.sides)
    split.save(path)
    return split


def _remember(data: Any, out: Path, platforms: list[str]) -> dict[str, Any]:
    """Keep in `about.json` what a reader without this dataset cannot know: its name, its tasks' names and operators, and how its
    platforms agree. What an earlier run kept of other datasets stays."""
    import json as json_

    from tcl.continual.evaluate import agreement
    from tcl.files import write_json
    from tcl.programs.types import format_id

    path = out / "about.json"
    about: dict[str, Any] = json_.loads(path.read_text()) if path.exists() else {"tasks": {}, "agreement": []}
    tasks = data.tasks()
    about["dataset"] = {"name": data.path.name, "path": str(data.path.resolve()), "version": data.version}
    about["tasks"] |= {
        format_id(int(t)): {"name": n, "operator": o} for t, n, o in zip(tasks["task"], tasks["name"], tasks["operator"], strict=True)
    }
    labels = {p: data.labels([p]) for p in platforms}
    pairs = {(a["a"], a["b"]): a for a in about["agreement"]}
    for i, a in enumerate(platforms):
        for b in platforms[i + 1 :]:
            pairs[a, b] = {"a": a, "b": b, **agreement(labels[a], labels[b])}
    about["agreement"] = list(pairs.values())
    write_json(path, about)
    return about


def _lines(result: dict[str, Any]) -> list[str]:
    def number(value: float | None) -> str:
        return "   –  " if value is None or not isfinite(value) else f"{value:6.3f}"

    names = result["platforms"]
    lines = ["top-1 on test tasks, after learning (rows) on (columns)", " " * 12 + "  ".join(f"{n[:10]:>10}" for n in names)]
    for name, row in zip(names, result["R"], strict=True):
        lines.append(f"{name[:12]:<12}" + "  ".join(f"{number(v):>10}" for v in row))
    if result["stopped"]:
        lines.append(f"Stopped before {', '.join(result['left'])}; the same command goes on.")
    if len(names) > 1:
        slice_, task = result["worst_slice"], result["worst_task"]
        lines.append(
            f"average {number(result['average'])}, forgetting {number(result['forgetting'])}, worst slice {number(slice_['drop'])} "
            f"({slice_['operator']} on {slice_['platform']}), worst task {number(task['drop'])} ({task['task']} on {task['platform']})"
        )
    return [*lines, *result["warnings"], f"Written to {result['model']}."]
