"""`tcl roofline`: how fast this machine is at most, which is what tuned programs are held against."""

from __future__ import annotations

from typing import Annotated

import typer

from tcl.commands.common import JsonFlag, emit
from tcl.errors import UserError


def run(
    threads: Annotated[int | None, typer.Option(min=1, help="Threads that programs run on. Default: all cores.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Measure again, and keep the higher value of each peak.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Measure this machine's peak FLOP/s and bandwidth once, a few seconds; after that tell what was measured."""
    from tcl.tuning.roofline import roofline
    from tcl.tuning.targets import this_machine

    found = roofline(threads or this_machine().cores, again=again)
    if found is None:
        raise UserError("The peaks could not be measured.", hint="Check that PyTorch works: python -c 'import torch'.")
    if as_json:
        emit({**found.told(), "measured_at": found.measured_at})
        return
    print(f"{found.flops / 1e9:,.1f} GFLOP/s and {found.bandwidth / 1e9:,.1f} GB/s on {found.threads} threads of {this_machine().model}")
