"""`tcl evaluate`: score a saved cost model on a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tcl.commands.common import JsonFlag, emit, progress, say


def run(
    model: Annotated[Path, typer.Argument(help="The folder of a trained model.", show_default=False)],
    dataset: Annotated[Path, typer.Argument(help="A dataset; its tasks and platforms need not be those of training.", show_default=False)],
    split: Annotated[str, typer.Option(help="test, valid or train by the model's own split, or all.")] = "test",
    platform: Annotated[list[str] | None, typer.Option(help="Only this platform; may be repeated.")] = None,
    operator: Annotated[list[str] | None, typer.Option(help="Only tasks of this operator; may be repeated.")] = None,
    out: Annotated[Path | None, typer.Option(help="A folder for the result, each program's score and each assignment's.")] = None,
    importance: Annotated[int, typer.Option(min=0, help="Repeats of permutation importance: which primitives matter; 0: none.")] = 0,
    as_json: JsonFlag = False,
) -> None:
    """Say how well a saved model ranks a dataset's measured programs."""
    from tcl.programs.dataset import Dataset
    from tcl.training.runs import evaluate

    result = evaluate(model, Dataset.open(dataset), split, platform, operator, out, importance, progress())
    if as_json:
        emit(result)
        return
    for name, row in {"all": result, **result["by_platform"], **result["by_operator"]}.items():
        say(f"{name}: top-1 {row['top1']:.4f}, top-5 {row['top5']:.4f}, pairwise {row['pairwise']:.4f}, Spearman {row['spearman']:.4f}")
    say_importance(result)
    if out is not None:
        say(f"written to {out}")


def say_importance(result: dict[str, Any]) -> None:
    """What the ranking loses without each primitive's numbers, the most important first; nothing where it was not measured."""
    for row in (r for r in result.get("importance") or [] if r["changed"]):
        spread = "" if row["pairwise_drop_sd"] is None else f" ± {row['pairwise_drop_sd']:.4f}"
        say(f"without {row['primitive']}: pairwise {-row['pairwise_drop']:+.4f}{spread}, mean top-1 {-row['top1_drop']:+.4f}")
