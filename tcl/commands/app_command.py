"""`tcl app_command`."""

from __future__ import annotations


def run() -> None:
    """app_command"""
