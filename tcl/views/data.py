"""What a dataset holds, drawn: counts, latency distributions, agreement of platforms. From the tables of `tcl.programs.overview`."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from tcl.views import palette
from tcl.views.explore import plain

NAME = 38
"""Characters of a task's name beside an axis; the whole name is told on hover."""


def counts_figure(matrix: pd.DataFrame) -> go.Figure:
    """Heatmap of measurements (log colour, the counts written in): one row a platform, one column an operator or task."""
    values = matrix.to_numpy(dtype=float)
    figure = go.Figure(
        go.Heatmap(
            z=np.log10(values + 1), x=[str(c) for c in matrix.columns], y=[str(i) for i in matrix.index], text=matrix.to_numpy(),
            texttemplate="%{text:,}" if matrix.shape[1] <= 20 else None, colorscale=palette.SEQUENTIAL, showscale=False,
            hovertemplate="%{y}, %{x}: %{text:,} measurements<extra></extra>",
        )
    )  # fmt: skip
    plain(figure, "", "")
    figure.update_xaxes(tickangle=-35, showticklabels=matrix.shape[1] <= 40, type="category")
    return figure


def distribution_figure(frame: pd.DataFrame, platform: str, most: int = 40) -> go.Figure:
    """Latencies of each task on one platform: the middle half as a bar, the 5 to 95 % range as a line, best as a dot (log axis)."""
    rows = frame[(frame["platform"] == platform) & frame["min_s"].notna()].sort_values("median_s").tail(most)
    figure = go.Figure()
    names = rows["name"].tolist()
    for low, high, width in (("q05_s", "q95_s", 1), ("q25_s", "q75_s", 5)):
        x = np.column_stack([rows[low], rows[high], np.full(len(rows), np.nan)]).ravel()
        y = [n for name in names for n in (name, name, None)]
        figure.add_trace(
            go.Scatter(x=np.log10(x), y=y, mode="lines", line={"width": width, "color": palette.CATEGORIES[0]}, hoverinfo="skip",
                       name=f"{int(low[1:3])} to {high[1:3]} %")
        )  # fmt: skip
    figure.add_trace(
        go.Scatter(
            x=np.log10(rows["min_s"]), y=names, mode="markers", marker={"size": 6, "color": palette.CATEGORIES[1]}, name="best",
            text=[palette.latency_text(v) for v in rows["min_s"]], hovertemplate="%{y}: best %{text}<extra></extra>",
        )
    )  # fmt: skip
    plain(figure, "latency (log)" if len(rows) else "", "")
    if len(rows):
        ticks, words = palette.log_ticks(float(rows["min_s"].min()), float(rows["q95_s"].max()))
        figure.update_xaxes(tickvals=ticks, ticktext=words)
    short = [name if len(name) <= NAME else name[: NAME - 1] + "…" for name in names]
    figure.update_yaxes(type="category", tickvals=names, ticktext=short, tickfont={"size": 11})
    figure.update_layout(showlegend=True, legend={"orientation": "h", "y": 1.04, "yanchor": "bottom"})
    return figure


def agreement_figure(frame: pd.DataFrame, a: str, b: str) -> go.Figure:
    """Histogram over tasks of the rank agreement (Spearman's rho) of two platforms on the programs measured on both."""
    figure = go.Figure(go.Histogram(x=frame["spearman"].dropna(), xbins={"size": 0.05}, marker={"color": palette.CATEGORIES[0]}))
    plain(figure, f"Spearman's rho, {a} against {b}", "tasks")
    return figure.update_xaxes(range=[-1.02, 1.02])
