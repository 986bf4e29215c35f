"""`tcl distill`."""

from __future__ import annotations


def run() -> None:
    """distill"""
