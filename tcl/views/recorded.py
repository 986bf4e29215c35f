"""What a job's events tell, whatever its kind: which view they are for; a collection's progress; steps of anything else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from tcl.views import palette
from tcl.views.explore import plain

TUNE, COLLECT, TRAIN, DISTILL, OTHER = "tune", "collect", "train", "distill", "other"


def kind_of(latest: Mapping[str, Any]) -> str:
    """Which kind of work has told these events (kind -> its latest event): one of the words above."""
    measured = latest.get("measured")
    if measured:
        return COLLECT if "programs" in measured else TUNE
    if "sequence" in latest or "consolidated" in latest:
        return DISTILL
    return TRAIN if "epoch" in latest else OTHER


def collected(events: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """One row a batch that `tcl collect` measured: t (seconds at work), task, platform, programs, total (of the platform so far)."""
    rows = [{k: e.get(k) for k in ("t", "task", "platform", "programs")} for e in events if e.get("kind") == "measured" and "programs" in e]
    frame = pd.DataFrame(rows, columns=["t", "task", "platform", "programs"])
    frame["total"] = frame.groupby("platform", sort=False)["programs"].cumsum()
    return frame


def collected_figure(frame: pd.DataFrame) -> go.Figure:
    """Programs measured against seconds, one line a platform."""
    figure = go.Figure()
    for i, (name, part) in enumerate(frame.groupby("platform", sort=False)):
        figure.add_scatter(
            x=[0, *part["t"]], y=[0, *part["total"]], text=["", *part["task"]], name=str(name), mode="lines+markers", marker={"size": 4},
            line={"shape": "hv", "width": 2, "color": palette.CATEGORIES[i % len(palette.CATEGORIES)]},
            hovertemplate="%{y:,} programs after %{x:.0f} s: %{text}<extra>%{fullData.name}</extra>",
        )  # fmt: skip
    plain(figure, "seconds at work", "programs measured")
    return figure.update_layout(showlegend=True, legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}, margin={"t": 30})


def steps_figure(events: Sequence[Mapping[str, Any]]) -> go.Figure:
    """How far the work was against seconds, in percent."""
    rows = [(e["t"], 100 * e["done"] / e["total"], e.get("message", "")) for e in events if e.get("kind") == "step" and e.get("total")]
    figure = go.Figure()
    if rows:
        t, share, words = zip(*rows, strict=True)
        figure.add_scatter(x=t, y=share, text=words, mode="lines", line={"shape": "hv", "width": 2, "color": palette.CATEGORIES[0]},
                           hovertemplate="%{y:.0f} % after %{x:.1f} s: %{text}<extra></extra>")  # fmt: skip
    plain(figure, "seconds at work", "done, %")
    return figure.update_yaxes(range=[0, 102])
