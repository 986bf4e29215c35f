"""What trainings left behind, drawn: curves, ranks, errors, primitives. From plain tables (`tcl.training.outcome`) and the
events of `tcl train`, so that no model is needed, and a live training looks like a finished one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from tcl.views import palette
from tcl.views.explore import plain

METRICS = {
    "top1": "top-1", "top5": "top-5", "top1_mean": "top-1, mean", "top5_mean": "top-5, mean", "pairwise": "pairwise accuracy",
    "spearman": "Spearman's rho",
}  # fmt: skip
"""Metric -> its name for people. All are better the higher."""


def curves(epochs: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """One row an epoch, in order, from "epoch" events or a history.json; of one told twice (a resumed training) the later counts.

    epoch (from 1), seconds (at work since the first epoch began: training and validation), loss, and valid_ with each of `METRICS`; NaN
    where there is no value.
    """
    last = {int(e["epoch"]): e for e in epochs if e.get("epoch") is not None}
    rows = [last[e] for e in sorted(last)]
    columns = ("loss", *(f"valid_{m}" for m in METRICS))
    frame = pd.DataFrame({c: pd.to_numeric(pd.Series([r.get(c) for r in rows], dtype=object)).astype(float) for c in columns})
    frame.insert(0, "epoch", [int(r["epoch"]) for r in rows])
    frame.insert(1, "seconds", np.cumsum([float(r.get("train_s") or 0) + float(r.get("valid_s") or 0) for r in rows]))
    return frame


def minus(frame: pd.DataFrame, baseline: pd.DataFrame, column: str) -> pd.DataFrame:
    """`curves` of a run less those of the baseline at the same epoch: epoch, seconds and `column`; epochs that both have."""
    both = frame.merge(baseline[["epoch", column]], on="epoch", suffixes=("", "_baseline"))
    both[column] = both[column] - both[f"{column}_baseline"]
    return both[["epoch", "seconds", column]]


def curves_figure(
    runs: Mapping[str, pd.DataFrame],
    column: str,
    colors: Mapping[str, str],
    *,
    against: str = "epoch",
    baseline: str | None = None,
    difference: bool = False,
    levels: Mapping[str, float] | None = None,
) -> go.Figure:
    """One line a run of `curves` against "epoch" or "seconds".

    colors: run -> its colour, the same in every figure. baseline: the run drawn as a dashed line (a line at 0 with `difference`, which
    takes its values from all others). levels: run -> a value without a history, drawn as a dotted line across (trees have no epochs).
    """
    figure = go.Figure()
    unit = "" if against == "epoch" else " s"
    relative = difference and baseline in runs
    for name, frame in runs.items():
        if relative and name == baseline:
            continue
        shown = minus(frame, runs[baseline], column) if relative and baseline else frame
        rows = shown[shown[column].notna()]
        figure.add_scatter(
            x=rows[against], y=rows[column], name=name, mode="lines+markers" if len(rows) < 60 else "lines", showlegend=True,
            line={"color": colors.get(name), "width": 2, "dash": "dash" if name == baseline else "solid"}, marker={"size": 5},
            hovertemplate=f"{against} %{{x:.4~g}}{unit}: %{{y:{'+' if difference else ''}.4f}}<extra>{name}</extra>",
        )  # fmt: skip
    for name, level in (levels or {}).items():
        if level is not None and np.isfinite(level) and not difference:
            longest = max([1.0, *(float(f[against].max()) for f in runs.values() if len(f))])
            figure.add_scatter(
                x=[0 if against == "seconds" else 1, longest], y=[level, level], name=f"{name} (no epochs)", mode="lines",
                line={"color": colors.get(name), "width": 2, "dash": "dot"}, hovertemplate=f"%{{y:.4f}}<extra>{name}</extra>",
            )  # fmt: skip
    what = "training loss" if column == "loss" else METRICS.get(column.removeprefix("valid_"), column) + ", validation"
    plain(figure, "epoch" if against == "epoch" else "seconds at work", "difference" if difference else what)
    if difference:
        figure.add_hline(y=0, line={"width": 1.5, "dash": "dash", "color": colors.get(baseline or "", palette.OTHERS)})
    figure.update_layout(
        showlegend=len(figure.data) > 1, legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}, margin={"t": 30}
    )
    if against == "epoch":
        whole = max((len(f) for f in runs.values()), default=0)
        figure.update_xaxes(dtick=1 if whole <= 12 else None, tickformat="d")
    return figure


def ranks(programs: pd.DataFrame) -> pd.DataFrame:
    """Rows of predictions.parquet of one assignment with measured and predicted (1: the fastest; failures share the last measured rank,
    equal values their mean rank)."""
    latency = programs["latency_s"].fillna(np.inf)
    return programs.assign(
        measured=latency.rank(method="average"), predicted=programs["prediction"].rank(ascending=False, method="average")
    )


def rank_figure(programs: pd.DataFrame) -> go.Figure:
    """Predicted against measured rank of one assignment's programs; on the line the model is right. `customdata` is the row number.

    The program that the model ranks first and the fastest one are ringed; failures are crosses.
    """
    frame = ranks(programs).reset_index(drop=True)
    figure = go.Figure()
    n = max(len(frame), 1)
    figure.add_scatter(
        x=[1, n], y=[1, n], mode="lines", line={"color": palette.OTHERS, "dash": "dot", "width": 1}, hoverinfo="skip", showlegend=False
    )
    fine = frame["latency_s"].notna()
    text = [palette.latency_text(v) for v in frame["latency_s"]]
    for rows, symbol, width, name, color in (
        (np.flatnonzero(fine), "circle", 0.0, "measured", palette.CATEGORIES[0]),
        (np.flatnonzero(~fine), "x-thin", 1.5, "failed", palette.FAILED),
    ):
        if len(rows):
            figure.add_scatter(
                x=frame["measured"].iloc[rows], y=frame["predicted"].iloc[rows], mode="markers", name=f"{name} ({len(rows)})",
                customdata=rows, text=[text[i] for i in rows],
                marker={"size": 7, "color": color, "opacity": 0.75, "symbol": symbol, "line": {"width": width, "color": color}},
                hovertemplate="measured rank %{x:.4~g} (%{text}), predicted rank %{y:.4~g}<extra></extra>",
            )  # fmt: skip
    if fine.any():
        marked = {"the model's choice": int(frame["predicted"].idxmin()), "the fastest": int(frame["measured"].idxmin())}
        for i, (name, row) in enumerate(marked.items()):
            figure.add_scatter(
                x=[frame["measured"].iloc[row]], y=[frame["predicted"].iloc[row]], mode="markers", name=name, customdata=[row],
                text=[text[row]],
                marker={"size": 13 + 4 * i, "symbol": "circle-open", "line": {"width": 2}, "color": palette.CATEGORIES[(5, 2)[i]]},
                hovertemplate=f"{name}: measured rank %{{x:.4~g}} (%{{text}}), predicted rank %{{y:.4~g}}<extra></extra>",
            )  # fmt: skip
    plain(figure, "measured rank (1 is the fastest)", "predicted rank")
    figure.update_layout(legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}, margin={"t": 30})
    span = [0.5 - 0.03 * n, n + 0.5 + 0.03 * n]
    return figure.update_xaxes(range=span).update_yaxes(range=span)


def by_operator(tables: Mapping[str, pd.DataFrame], metric: str) -> pd.DataFrame:
    """Mean over assignments of `metric` ("top1", "top5", "pairwise", "spearman"), one row an operator, one column a run, and
    `assignments` (the most of any run). The operator that the first run ranks worst comes first."""
    columns = {name: table.groupby("operator")[metric].mean() for name, table in tables.items()}
    frame = pd.DataFrame(columns)
    counts = [table[table["best_s"].notna()].groupby("operator").size() for table in tables.values()]
    frame["assignments"] = pd.concat(counts, axis=1).max(axis=1).reindex(frame.index).fillna(0).astype(int) if counts else 0
    return frame.sort_values(next(iter(columns))) if columns else frame


def operator_figure(frame: pd.DataFrame, metric: str, colors: Mapping[str, str]) -> go.Figure:
    """`by_operator` as bars: operators downwards, the worst on top, one bar a run."""
    figure = go.Figure()
    labels = [f"{operator} ({n})" for operator, n in zip(frame.index, frame["assignments"], strict=True)]
    for name in [c for c in frame.columns if c != "assignments"]:
        figure.add_bar(
            y=labels, x=frame[name], name=str(name), orientation="h", marker_color=colors.get(str(name)),
            hovertemplate=f"%{{y}}: %{{x:.3f}}<extra>{name}</extra>",
        )  # fmt: skip
    plain(figure, f"{METRICS[metric]}, mean over test assignments (their number beside the operator)", "")
    figure.update_yaxes(autorange="reversed")
    figure.update_xaxes(range=[min(0.0, float(np.nanmin(frame.drop(columns="assignments").to_numpy(), initial=0.0))), 1.0])
    return _bars(figure)


def importance_figure(tables: Mapping[str, pd.DataFrame], metric: str, colors: Mapping[str, str]) -> go.Figure:
    """What a ranking loses when a primitive's numbers are swapped: bars with the spread (± one standard deviation over the repeats).

    tables: run -> rows of `tcl.training.importance` (primitive, pairwise_drop, pairwise_drop_sd, top1_drop, …). metric: "pairwise" or
    "top1". Primitives whose numbers never differ within an assignment are left out: no swap changes them.
    """
    shown = {name: table[table["changed"] > 0] for name, table in tables.items() if len(table)}
    order = pd.concat(shown.values()).groupby("primitive")["pairwise_drop"].max().sort_values(ascending=False).index if shown else []
    figure = go.Figure()
    for name, table in shown.items():
        rows = table.set_index("primitive").reindex(order)
        figure.add_bar(
            y=[p.replace("_", " ") for p in order], x=rows[f"{metric}_drop"], name=name, orientation="h", marker_color=colors.get(name),
            error_x={"type": "data", "array": rows[f"{metric}_drop_sd"].astype(float), "thickness": 1.2, "width": 3},
            hovertemplate=f"%{{y}}: %{{x:+.4f}}<extra>{name}</extra>",
        )  # fmt: skip
    what = "pairwise accuracy" if metric == "pairwise" else "mean top-1"
    plain(figure, f"{what} lost without the primitive's numbers (± sd over repeats)", "")
    figure.update_yaxes(autorange="reversed")
    figure.update_xaxes(zeroline=True, zerolinecolor=palette.OTHERS)
    return _bars(figure)


def _bars(figure: go.Figure) -> go.Figure:
    several = len(figure.data) > 1
    return figure.update_layout(
        barmode="group", bargap=0.3, showlegend=several, legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0},
        margin={"t": 30 if several else 8},
    )  # fmt: skip


def bars_height(lines: int, runs: int) -> int:
    """Pixels of a chart of `lines` groups of `runs` bars."""
    return int(90 + lines * (14 + 13 * max(runs, 1)))
