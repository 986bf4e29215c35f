"""`tcl train`."""

from __future__ import annotations


def run() -> None:
    """train"""
