"""`tcl tune`."""

from __future__ import annotations


def run() -> None:
    """tune"""
