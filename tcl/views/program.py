"""One program: what it is, what its schedule does, how fast it is where."""

from __future__ import annotations

from typing import Any

import pandas as pd

from tcl.errors import UserError
from tcl.programs.dataset import Dataset
from tcl.programs.types import format_id
from tcl.views import palette
from tcl.views.schedule import steps_of


def program_details(dataset: Dataset, program: int) -> dict[str, Any]:
    """Plain data about a program: id, task (hex), task_name, operator, format, extents, flops, schedule (text), steps (sentences),
    measurements (one a platform that has any: platform, latency_s, low_s, high_s, repeats, error, gflops, label, text).

    Raises UserError for a program that the dataset does not hold.
    """
    where = dataset.table("programs", ["program", "task"])
    found = (where["program"].to_numpy() == program).nonzero()[0]
    if not len(found):
        raise UserError(f"{dataset.path} holds no program {format_id(program)}.", hint="Ids are shown by the Explore page's table.")
    identity = where["task"][int(found[0])].as_py()
    programs = dataset.programs(["program", "schedule"], tasks=[identity]).set_index("program")
    schedule = str(programs.loc[program, "schedule"])
    task = next(t for t in dataset.task_list() if t.id == identity)
    records = dataset.measurements(tasks=[task.id])
    best = records.groupby(records["platform"].astype(str))["latency_s"].min()
    steps = steps_of(schedule, task.format, task.operator, task.extents)
    return {
        "id": format_id(program), "task": format_id(task.id), "task_name": task.name, "operator": task.operator, "format": task.format,
        "extents": list(task.extents), "flops": task.flops, "schedule": schedule, "steps": [s.text for s in steps],
        "measurements": [_outcome(name, part, float(best[name]), task.flops) for name, part in
                         records[records["program"] == program].groupby(records["platform"].astype(str))],
    }  # fmt: skip


def latency_rows(details: list[dict[str, Any]]) -> pd.DataFrame:
    """Several programs' latencies for `tcl.views.explore.platform_figure`: name, platform, latency_s, low_s, high_s."""
    rows = [
        {"name": d["id"], **{k: m[k] for k in ("platform", "latency_s", "low_s", "high_s")}}
        for d in details
        for m in d["measurements"]
        if m["latency_s"] is not None
    ]
    return pd.DataFrame(rows, columns=["name", "platform", "latency_s", "low_s", "high_s"])


def _outcome(platform: str, records: pd.DataFrame, best_s: float, flops: float) -> dict[str, Any]:
    """The best success on a platform; a failure only where there is none."""
    ok = records[records["latency_s"].notna()]
    if ok.empty:
        last = records.iloc[-1]
        return {
            "platform": platform, "latency_s": None, "low_s": None, "high_s": None, "repeats": 0, "error": str(last["error"]),
            "gflops": None, "label": 0.0, "text": f"failed: {str(last['error']).replace('_', ' ')} ({last['detail']})",
        }  # fmt: skip
    row = ok.loc[ok["latency_s"].idxmin()]
    latency, costs = float(row["latency_s"]), [float(c) for c in row["costs_s"]]
    label = best_s / latency
    times = f", {latency / best_s:.2f} x the task's best" if label < 1 else ", the task's best"
    return {
        "platform": platform, "latency_s": latency, "low_s": min(costs), "high_s": max(costs), "repeats": len(costs), "error": "",
        "gflops": flops / latency / 1e9 if flops else None, "label": label, "text": palette.latency_text(latency) + times,
    }  # fmt: skip
