"""Results of `tcl bench` that pages show: one's own, and those that ship with the project."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import streamlit as st

from app.shared import choice, reproduce
from tcl.bench.report import again, number
from tcl.workspace import ASSETS, workspace

MINE = "mine"
"""What the labels of one's own results begin with."""
OF = {"": "with the project", "cpu": "three CPU profiles", "gpu": "three GPUs"}
"""What a shipped file's name ends with -> what it was measured on."""


def bench_results(bench: str) -> dict[str, dict[str, Any]]:
    """Label -> result of `tcl bench BENCH`, the workspace's own first (BENCH.json, BENCH-anything.json)."""
    found = {}
    for folder, shipped in ((workspace() / "bench", False), (ASSETS / "results", True)):
        for path in sorted(folder.glob(f"{bench}*.json")):
            try:
                result = json.loads(path.read_text())
            except (OSError, ValueError):
                continue
            if isinstance(result, dict) and result.get("bench") == bench:
                ending = path.stem.removeprefix(bench).lstrip("-")
                found[OF.get(ending, ending) if shipped else f"{MINE}: {path.name}"] = result
    return found


def choose_result(results: Mapping[str, dict[str, Any]], key: str) -> dict[str, Any]:
    """The one to look at; asks only where there are several."""
    names = list(results)
    return results[names[0] if len(names) == 1 else choice("Measured on", names, names[0], key)]


def reproduce_bench(result: Mapping[str, Any]) -> None:
    """The command that makes a result again; what DIR stands for, where it has one."""
    asked = again(result)
    reproduce("bench", result["bench"], *asked, "--out", f"workspace/bench/{result['bench']}.json")
    if any("DIR" in part for part in asked):
        st.caption(
            "DIR (“roller” in the results): measurement logs of a V100, a K80 and an MI50 that the artifact of *Roller* (OSDI 2022) holds, "
            "imported with `tcl data import LOGS --platforms-map FILE --out DIR`; `tcl data import --help` tells what FILE says."
        )


def show_goals(result: Mapping[str, Any]) -> None:
    """How many goals are met; then a line a goal: whether it is, and by how much. Nothing where there is none."""
    goals = result.get("goals", [])
    if not goals:
        return
    st.markdown(f"**Goals**: {sum(bool(goal['met']) for goal in goals)} of {len(goals)} met")
    lines = []
    for goal in goals:
        badge = ":green-badge[:material/check: met]" if goal["met"] else ":red-badge[:material/close: not met]"
        value = "not measured" if goal["value"] is None else f"**{number(goal['value'])}**"
        sign = "at most" if goal.get("at_most") else "at least"
        lines.append(f"- {badge} {goal['name']}: {value} (goal: {sign} {number(goal['target'])})")
    st.markdown("\n".join(lines))
