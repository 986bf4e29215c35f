"""`tcl evaluate`: score a saved cost model on a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tcl.commands.common import JsonFlag, emit, say


def run(
    model: Annotated[Path, typer.Argument(help="The folder of a trained model.", show_default=False)],
    dataset: Annotated[Path, typer.Argument(help="A dataset; its tasks and platforms need not be those of training.", show_default=False)],
    split: Annotated[str, typer.Option(help="test, valid or train by the model's own split, or all.")] = "test",
    platform: Annotated[list[str] | None, typer.Option(help="Only this platform; may be repeated.")] = None,
    operator: Annotated[list[str] | None, typer.Option(help="Only tasks of this operator; may be repeated.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Say how well a saved model ranks a dataset's measured programs."""
    from tcl.programs.dataset import Dataset
    from tcl.training.runs import evaluate

    result = evaluate(model, Dataset.open(dataset), split, platform, operator)
    if as_json:
        emit(result)
        return
    for name, row in {"all": result, **result["by_platform"], **result["by_operator"]}.items():
        say(f"{name}: top-1 {row['top1']:.4f}, top-5 {row['top5']:.4f}, pairwise {row['pairwise']:.4f}, Spearman {row['spearman']:.4f}")
