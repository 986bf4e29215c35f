"""`tcl train`: train a cost model on a dataset and save it to a folder."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated, Any

import typer

from tcl.commands.common import JsonFlag, emit, progress, say
from tcl.commands.evaluate import say_importance
from tcl.errors import UserError

Dir = Annotated[Path, typer.Argument(help="A dataset.", show_default=False)]


def run(
    dataset: Dir,
    out: Annotated[Path, typer.Option(help="The folder for the model.")],
    model: Annotated[str, typer.Option(help="mamba, tlp, hardware_attention, lstm, mlp, xgb or random.")] = "mamba",
    fraction: Annotated[float, typer.Option(help="The share of the programs that counts as measured.")] = 1.0,
    sampler: Annotated[str, typer.Option(help="Which sampler picks that share (see `tcl sample`).")] = "random",
    selection: Annotated[str | None, typer.Option(help="A selection of the dataset, in place of --fraction.")] = None,
    split: Annotated[str, typer.Option(help="task, network, within-task, platform:NAME, or a split's JSON file.")] = "task",
    platform: Annotated[list[str] | None, typer.Option(help="Only this platform; may be repeated.")] = None,
    operator: Annotated[list[str] | None, typer.Option(help="Only tasks of this operator; may be repeated.")] = None,
    seed: int = 0,
    epochs: Annotated[int | None, typer.Option(help="At most so many; the default is the model's.")] = None,
    loss: Annotated[str | None, typer.Option(help="pairwise, lambda_rank, listnet or mse.")] = None,
    across: Annotated[bool, typer.Option(help="Compare programs of different tasks too, as TLP does.")] = False,
    per_assignment: Annotated[int | None, typer.Option(help="At most so many programs of each task and platform.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    amp: Annotated[bool, typer.Option(help="Compute in bfloat16.")] = False,
    importance: Annotated[int, typer.Option(min=0, help="Repeats of permutation importance on the test part; 0: leave it out.")] = 3,
    resume: Annotated[bool, typer.Option(help="Continue where a training into the same folder stopped.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Train a cost model; its test score is on tasks that it never saw."""
    from tcl.programs.dataset import Dataset
    from tcl.training.loop import Trainer
    from tcl.training.runs import Choice, train

    data = Dataset.open(dataset)
    checkpoint = out / "checkpoint"
    if not resume and (checkpoint / "checkpoint.json").exists():
        shutil.rmtree(checkpoint)
    chosen: dict[str, Any] = {k: v for k, v in {"epochs": epochs, "loss": loss}.items() if v is not None}
    trainer = Trainer(seed=seed, device=device, amp=amp, checkpoint=checkpoint, compare_across=across, progress=progress(), **chosen)
    if not 0 < fraction <= 1:
        raise UserError(f"A fraction is more than 0 and at most 1, not {fraction}.")
    programs = _selected(data, selection, sampler, fraction, split, seed, platform, operator, per_assignment)
    choice = Choice(split, seed, platform, operator, programs, fraction, per_assignment)
    _, result = train(data, model, trainer, choice, out, importance=importance)
    if not result.get("stopped"):
        shutil.rmtree(checkpoint, ignore_errors=True)
    if as_json:
        emit(result)
        return
    say(
        f"{model}: top-1 {result['top1']:.4f}, top-5 {result['top5']:.4f}, pairwise {result['pairwise']:.4f} on "
        f"{result['programs']} test programs"
    )
    say_importance(result)
    say(f"trained on {result['train_programs']} programs in {result['seconds']:.1f} s; saved to {out}")


def _selected(data: Any, selection: str | None, sampler: str, fraction: float, split: str, seed: int, *rest: Any) -> Any:
    """int64 ids of the programs that count as measured; None where a random share is meant."""
    if selection is not None:
        from tcl.programs.selection import load_selection

        return load_selection(data, selection)[0]["program"].to_numpy()
    if fraction >= 1 or sampler == "random":
        return None
    import numpy as np

    from tcl.sampling.base import Pool
    from tcl.sampling.registry import make_sampler
    from tcl.training.runs import Choice, parts_of

    platform, operator, per_assignment = rest
    parts = parts_of(data, Choice(split, seed, platform, operator, None, 1.0, per_assignment))
    picked = []
    for part in (parts.train, parts.valid):  # validation costs measurements too; no label is read
        if part is not None:
            pool = Pool(part.inputs.flat, part.assignment)
            picked.append(part.program[make_sampler(sampler).query(pool, max(1, round(fraction * len(part))), seed=seed)])
    return np.concatenate(picked)
