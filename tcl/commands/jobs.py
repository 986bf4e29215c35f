"""`tcl jobs`."""

from __future__ import annotations

import typer

cli = typer.Typer(no_args_is_help=True)


@cli.callback()
def group() -> None:
    """jobs"""
