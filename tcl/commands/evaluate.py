"""`tcl evaluate`."""

from __future__ import annotations


def run() -> None:
    """evaluate"""
