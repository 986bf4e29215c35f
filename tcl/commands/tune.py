"""`tcl tune NETWORK|OP`: search for the fastest programs of an operator or of all tasks of a network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tcl.commands.common import JsonFlag, emit, progress, say
from tcl.errors import UserError
from tcl.progress import format_seconds


def run(
    subject: Annotated[
        str, typer.Argument(metavar="NETWORK|OP|FILE", help="resnet18, …, a .pt2 or .onnx file, or an operator such as matmul:256,256,256.")
    ],
    trials: Annotated[int, typer.Option(help="Programs to measure in all, those of earlier runs into the same folder included.")] = 64,
    cost_model: Annotated[str, typer.Option(help="random, xgb (TVM's), or the folder of a saved cost model.")] = "xgb",
    strategy: Annotated[str, typer.Option(help="decisions (ours), tvm (its evolutionary search) or random.")] = "decisions",
    target: Annotated[
        str, typer.Option(help="native, an instruction set of this machine (sse42, avx2, avx512), or with --runner rpc TVM's JSON.")
    ] = "native",
    out: Annotated[Path | None, typer.Option(help="Dataset that keeps what is measured. Default: one a run in the workspace.")] = None,
    warm_start: Annotated[Path | None, typer.Option(help="A dataset whose measurements of the same tasks are used as well.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of every random choice.")] = 0,
    compare: Annotated[str, typer.Option(help="What the result is compared with: pytorch, torch_compile, onnxruntime; with commas.")] = (
        "pytorch,torch_compile,onnxruntime"
    ),
    runner: Annotated[str, typer.Option(help="local, or rpc: programs run on the devices of a TVM RPC tracker.")] = "local",
    tracker: Annotated[str, typer.Option(help="HOST:PORT of the tracker, for --runner rpc.")] = "",
    key: Annotated[str, typer.Option(help="The devices' key at the tracker; their platform is called so.")] = "",
    cc: Annotated[str, typer.Option(help="The compiler that links for the devices, such as aarch64-linux-gnu-gcc.")] = "",
    export: Annotated[bool, typer.Option(help="Leave a MetaSchedule database and a library with a snippet in OUT/export.")] = True,
    as_json: JsonFlag = False,
) -> None:
    """Tune an operator or a network on this machine. Stopped or killed, it goes on where it was when started again. The app shows it."""
    from tcl.jobs.terminal import kept
    from tcl.jobs.tuning_run import title_of
    from tcl.tuning.remote import Tracker
    from tcl.tuning.tune import default_folder, tune

    if runner not in ("local", "rpc"):
        raise UserError(f"There is no runner {runner!r}.", hint="Choose local or rpc.")
    devices = Tracker.parse(tracker, key) if runner == "rpc" else None
    folder = out or default_folder(subject, cost_model, strategy, target, seed, key if devices else "")
    with kept("tune", title_of(subject, strategy, cost_model, trials), progress()) as following:
        result = tune(
            subject,
            trials=trials,
            out=folder,
            model=cost_model,
            strategy=strategy,
            profile=target,
            seed=seed,
            warm_start=warm_start,
            export=export,
            rivals=[name.strip() for name in compare.split(",") if name.strip()],
            tracker=devices,
            cc=cc,
            progress=following,
        )
    if as_json:
        emit(result)
    else:
        say(summary(result))


def summary(result: dict[str, Any]) -> str:
    """The result for people, in a few lines."""

    def time(key: str) -> str:
        return format_seconds(result[key]) if result.get(key) else "–"

    failed = ", ".join(f"{n} {kind}" for kind, n in result["failed"].items()) or "none"
    lines = [
        f"{result['subject']} on {result['platform']}: {result['measured']} programs measured in {format_seconds(result['seconds'])}",
        f"  failed: {failed}",
        f"  best {time('best_latency_s')}, median candidate {time('median_latency_s')}",
        f"  untuned {time('untuned_latency_s')}, PyTorch {time('pytorch_latency_s')}, torch.compile {time('torch_compile_latency_s')}, "
        f"ONNX Runtime {time('onnxruntime_latency_s')}",
        f"  output {'correct' if result['correct'] else 'WRONG or nothing found'}; everything measured is in {result['dataset']}",
    ]
    if result.get("tasks_default"):
        lines.append(f"  not measured, given a default schedule: {', '.join(result['tasks_default'])}")
    if result["stopped"]:
        lines.append("  stopped early; start it again to go on")
    return "\n".join(lines)
