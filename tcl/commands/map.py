"""`tcl map`: lay out a dataset's programs on a plane, and draw the picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tcl.commands.common import JsonFlag, emit, progress, say


def run(
    dataset: Annotated[Path, typer.Argument(metavar="DIR", help="The dataset's folder.")],
    scope: Annotated[str, typer.Option(help="'all', 'network:NAME' or 'task:ID'.")] = "all",
    seed: Annotated[int, typer.Option(help="The same seed gives the same map.")] = 0,
    limit: Annotated[int | None, typer.Option(help="Most programs on the map; a larger scope is sampled, and says so.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Make the map anew even where one is stored.")] = False,
    html: Annotated[Path | None, typer.Option(help="Also draw the map into this HTML file.")] = None,
    platform: Annotated[str | None, typer.Option(help="Of the picture: whose latencies colour it; the first by default.")] = None,
    color: Annotated[
        str, typer.Option(help="Of the picture: latency, label, task, operator, platforms, failure, or a primitive's parameter.")
    ] = "latency",
    json: JsonFlag = False,
) -> None:
    """Make the UMAP map of a dataset's programs, and keep it beside the dataset."""
    from tcl.features.map import LIMIT, load_map, make_map
    from tcl.machine import busy
    from tcl.programs.dataset import Dataset

    opened = Dataset.open(dataset)
    made = None if again else load_map(opened, scope)
    if made is None or made.about["dataset_version"] != opened.version:
        with busy():
            made = make_map(opened, scope, seed=seed, limit=limit or LIMIT, progress=progress())
    about = made.about
    if html is not None:
        from tcl.views.explore import map_picture

        map_picture(opened, scope, platform, color).write_html(html, include_plotlyjs=True)
        about = about | {"html": str(html)}
    if json:
        emit(about)
        return
    trust = about["trustworthiness"]
    checked = "" if trust is None else f", trustworthiness {trust:.3f} on {about['trust_points']:,} of them"
    say(f"{about['n']:,} of {about['of']:,} programs on the map{checked}, {about['seconds']:.1f} s.")
