"""Where things live: the workspace (jobs, datasets, models of this user) and the assets shipped with the project."""

from __future__ import annotations

import os
from pathlib import Path

from tcl.errors import UserError

ASSETS = Path(__file__).resolve().parent.parent / "assets"
BUILT_IN = ASSETS / "builtin"
"""The dataset that ships with the project; its card is the README.md in it."""


def workspace() -> Path:
    """The folder that holds what a person makes: `$TCL_WORKSPACE`, or `workspace` in the current folder. Created on demand."""
    path = Path(os.environ.get("TCL_WORKSPACE", "workspace")).expanduser().resolve()
    path.mkdir(parents=True, exist_ok=True)
    return path


def inside(root: Path, name: str) -> Path:
    """The path of `name` under `root`; a `UserError` where it would lead out of it."""
    path = (root / name).resolve()
    if not path.is_relative_to(root.resolve()):
        raise UserError(f"{name!r} leads out of the folder {root}.", hint="Give a name without '..' or a leading '/'.")
    return path
