"""`tcl sample`: pick which programs of a dataset to measure."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tcl.commands.common import JsonFlag, emit, progress, say
from tcl.sampling.registry import DEFAULT


def run(
    data: Annotated[Path, typer.Argument(metavar="DIR", help="The dataset whose programs are the pool.")],
    out: Annotated[Path, typer.Option("--out", help="The plan to write: FILE.csv or FILE.parquet.")],
    sampler: Annotated[str, typer.Option(help="rdu, balto, random, kcenter, …; settings after a colon, as in rdu:r=0.5.")] = DEFAULT,
    budget: Annotated[str, typer.Option(help="A share (0.1 or 10%) or a number of programs.")] = "10%",
    platform: Annotated[str, typer.Option(help="The platform to measure on; models of the others then guide the first round.")] = "",
    rounds: Annotated[int, typer.Option(help="More than 1: replay rounds with the latencies the dataset has of the platform.")] = 1,
    new: Annotated[
        bool, typer.Option("--new", help="Pick only what the platform has not measured; what it has teaches the model.")
    ] = False,
    save_as: Annotated[str, typer.Option(help="Also keep the selection in the dataset under this name.")] = "",
    embedding: Annotated[
        str, typer.Option(help="Where programs are near or far: features, map (their places on it), or the folder of a trained model.")
    ] = "features",
    scores: Annotated[
        Path | None, typer.Option(help="Also write the scores of every program of the pool, picked or not, to this Parquet file.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same selection.")] = 0,
    as_json: JsonFlag = False,
) -> None:
    """Pick the programs that teach a cost model most, and write them as a measurement plan.

    The plan has one row a program, in the order to measure them (an interrupted plan has seen every task): program and task (ids:
    16 hex digits in CSV, int64 in Parquet), order, round, and the scores representativeness, diversity, uncertainty, score.
    `tcl collect --plan FILE` measures the programs of a plan; it needs the columns program and order only.
    """
    from tcl.sampling.plan import Request, sample

    request = Request(data, sampler, budget, platform, rounds, new, seed, embedding)
    result = sample(request, out, save_as=save_as, scores=scores, progress=progress())
    if as_json:
        emit(result)
        return
    share = result["picked"] / result["pool"] if result["pool"] else 0.0
    say(f"{out}: {result['picked']} of {result['pool']} programs ({share:.1%}) of {result['assignments']} tasks, by {sampler}.")
