"""What every benchmark shares: a description of the machine, goals, and the result as Markdown for BENCHMARKS.md."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("torch", "apache-tvm", "numpy", "numba", "xgboost", "scikit-learn", "umap-learn", "transformers")


def machine() -> dict[str, Any]:
    """Processor, cores, memory, versions and date: what a figure is worth nothing without."""
    import psutil

    model = platform.processor()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = names[0] if names else model
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return {
        "processor": model,
        "cores": psutil.cpu_count(logical=True),
        "memory_gb": round(psutil.virtual_memory().total / 2**30, 1),
        "python": platform.python_version(),
        "versions": versions,
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
    }


def goal(name: str, target: float, value: float | None, *, at_most: bool = False) -> dict[str, Any]:
    """One goal of a benchmark. `value` None (not measured) is never met."""
    met = value is not None and (value <= target if at_most else value >= target)
    return {"name": name, "target": target, "value": value, "at_most": at_most, "met": bool(met)}


def again(result: Mapping[str, Any]) -> list[str]:
    """The options of `tcl bench` that make this result again, from what its command was asked (`asked`)."""
    words = {k: v if isinstance(v, str) else json.dumps(v, separators=(",", ":")) for k, v in result.get("asked", {}).items()}
    return [part for k, v in words.items() for part in ("--set", f"{k}={v}")]


def markdown(result: dict[str, Any]) -> str:
    """Rows, goals and machine of a benchmark as Markdown tables."""
    parts = [f"### {result['bench']}", ""]
    rows = result.get("rows", [])
    if rows:
        columns = list(dict.fromkeys(key for row in rows for key in row))
        parts += ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
        parts += ["| " + " | ".join(_cell(row.get(c)) for c in columns) + " |" for row in rows]
        parts.append("")
    for g in result.get("goals", []):
        sign = "at most" if g.get("at_most") else "at least"
        parts.append(f"- {'met' if g['met'] else '**not met**'}: {g['name']}: {_cell(g['value'])} (goal: {sign} {_cell(g['target'])})")
    about = result.get("machine", {})
    versions = ", ".join(f"{k} {v}" for k, v in about.get("versions", {}).items())
    parts += ["", f"{about.get('processor')}, {about.get('cores')} cores, Python {about.get('python')}, {versions}; {about.get('date')}"]
    return "\n".join(parts)


def number(value: float) -> str:
    """Four digits, never an exponent where thousands can be read."""
    return f"{value:,.0f}" if 1e3 <= abs(value) < 1e9 else f"{value:.4g}"


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return number(value) if isinstance(value, float) else str(value)
