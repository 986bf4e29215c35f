"""`tcl sample`."""

from __future__ import annotations


def run() -> None:
    """sample"""
