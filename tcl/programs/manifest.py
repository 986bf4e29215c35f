"""The manifest of a dataset: read without pandas or Arrow, so that counts are there at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tcl.errors import UserError

MANIFEST = "dataset.json"
FORMAT = 1


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of the dataset at `path`."""
    try:
        manifest = json.loads((path / MANIFEST).read_text())
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(
            f"{path} is not a dataset: it has no {MANIFEST}." if path.exists() else f"There is no folder {path}.",
            hint="Make one with `tcl data import` or `tcl collect`, or name the folder that holds one.",
        ) from None
    except (ValueError, OSError) as error:
        raise UserError(f"{path / MANIFEST} cannot be read: {error}.") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise UserError(f"{path} was written in another format than this version reads (format {FORMAT}).")
    return manifest


def stats(path: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    """Counts from the manifest's running totals: platforms, tasks, programs, measurements, failures, failures_by_kind, by_platform,
    by_operator, description.
    """
    totals = manifest["totals"]
    platforms = totals.get("by_platform", {})
    failures: dict[str, int] = {}
    for counts in platforms.values():
        for kind, n in counts["failures"].items():
            failures[kind] = failures.get(kind, 0) + n
    return {
        "platforms": len(json.loads((path / "platforms.json").read_text())),
        "tasks": totals.get("tasks", 0),
        "programs": totals.get("programs", 0),
        "measurements": sum(c["measurements"] for c in platforms.values()),
        "failures": sum(failures.values()),
        "failures_by_kind": failures,
        "by_platform": platforms,
        "by_operator": totals.get("by_operator", {}),
        "description": manifest.get("description", ""),
    }
