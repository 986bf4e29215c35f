"""Whether a tuner's cost model learns: its scores against what was measured then, batch after batch."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from tcl.views import palette
from tcl.views.explore import plain

PAIRS = 20
"""Pairs of programs that a rank correlation needs at least: small batches (of a network) are put together until they have as many."""


def learning(frame: pd.DataFrame) -> pd.DataFrame:
    """How well the scores ranked the programs of a batch, one row a batch or a few of them.

    frame: `tcl.views.tuning.measured`. Columns: batch (the last), trial (the last), programs, pairs, tau: Kendall's rank correlation of
    score and speed over all pairs of a batch, whose programs are of one task and were scored by the same model: 1 all in the right
    order, 0 chance, -1 all reversed. Only programs that the model chose and that ran count.
    """
    both = frame[frame["predicted"].notna() & frame["latency_s"].notna()]
    rows = []
    agree = pairs = programs = 0
    for number, group in both.groupby(["batch", "task"], sort=False, dropna=False):
        signs = _signs(group["predicted"].to_numpy(dtype=float)) * _signs(-group["latency_s"].to_numpy(dtype=float))
        agree, pairs, programs = agree + int(signs.sum()), pairs + signs.size, programs + len(group)
        if pairs >= PAIRS:
            rows.append((int(number[0]), int(group["trial"].max()), programs, pairs, agree / pairs))
            agree = pairs = programs = 0
    return pd.DataFrame(rows, columns=["batch", "trial", "programs", "pairs", "tau"])


def _signs(values: np.ndarray) -> np.ndarray:
    """The sign of the difference of each pair (i < j)."""
    i, j = np.triu_indices(len(values), k=1)
    return np.sign(values[j] - values[i])


def learning_figure(runs: Mapping[str, pd.DataFrame], colors: Mapping[str, str]) -> go.Figure:
    """`learning` of each run against programs measured; dotted at 0, which is chance."""
    figure = go.Figure()
    for name, rows in runs.items():
        if len(rows):
            figure.add_scatter(
                x=rows["trial"], y=rows["tau"], name=name, mode="lines+markers", showlegend=len(runs) > 1, marker={"size": 7},
                line={"width": 2, "color": colors.get(name)}, customdata=rows[["programs", "pairs"]].to_numpy(),
                hovertemplate=f"after %{{x}}: %{{y:.2f}} (%{{customdata[0]}} programs, %{{customdata[1]}} pairs)<extra>{name}</extra>",
            )  # fmt: skip
    plain(figure, "programs measured", "rank correlation of a batch")
    figure.add_hline(y=0, line={"width": 1.5, "dash": "dot", "color": palette.OTHERS})
    figure.update_yaxes(range=[-1.05, 1.05]).update_xaxes(rangemode="tozero")
    return figure.update_layout(legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}, margin={"t": 30})


def chosen_against_random(frame: pd.DataFrame) -> dict[str, float]:
    """Median latencies, seconds, of the programs that the model chose ("chosen") and of those drawn at random ("random"), all of one
    task; empty where there are not both, or several tasks."""
    fine = frame[frame["latency_s"].notna()]
    chosen = fine["predicted"].notna()
    if fine["task"].nunique() != 1 or chosen.all() or not chosen.any():
        return {}
    return {"chosen": float(fine.loc[chosen, "latency_s"].median()), "random": float(fine.loc[~chosen, "latency_s"].median())}
