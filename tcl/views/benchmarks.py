"""The table of `tcl bench models` and who wins where, in words and drawn. From its JSON (`summary`: one object a dataset, platform and
model, with the mean of each metric over seeds and its standard deviation `…_sd`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from tcl.views import palette
from tcl.views.explore import plain
from tcl.views.training import METRICS


def benchmark_table(summary: Sequence[Mapping[str, Any]], metric: str) -> pd.DataFrame:
    """`tcl bench models`' summary as text "mean ± sd": one row a model (the best mean over all columns first), one column a platform of
    a dataset. An empty cell was not measured."""
    frame = pd.DataFrame(list(summary))
    if frame.empty or metric not in frame:
        return pd.DataFrame()
    spread = frame.get(f"{metric}_sd", pd.Series(np.nan, index=frame.index))
    frame["text"] = [_figure(m, s) for m, s in zip(frame[metric], spread, strict=True)]
    frame["where"] = [where(r) for r in frame.to_dict("records")]
    wide = frame.pivot(index="model", columns="where", values="text").fillna("")
    best = frame.groupby("model")[metric].mean().sort_values(ascending=False)
    return wide.reindex(best.index)[list(dict.fromkeys(frame["where"]))]


def where(row: Mapping[str, Any]) -> str:
    """ "platform of dataset", for columns and sentences."""
    return f"{row['platform']} of {row['dataset']}"


def winners(summary: Sequence[Mapping[str, Any]], metric: str) -> list[dict[str, Any]]:
    """Who is best where: where, model, value, sd (None for one seed), seeds, and close: models that the spread does not tell from it.

    A model is close when its mean lies no more than the larger of the two standard deviations below the best one.
    """
    found = []
    for place in dict.fromkeys(where(r) for r in summary):
        rows = [r for r in summary if where(r) == place and r.get(metric) is not None]
        rows.sort(key=lambda r: -r[metric])
        if not rows:
            continue
        best, sd = rows[0], f"{metric}_sd"
        close = [str(r["model"]) for r in rows[1:] if best[metric] - r[metric] <= max(best.get(sd) or 0.0, r.get(sd) or 0.0)]
        found.append(
            {
                "where": place,
                "model": str(best["model"]),
                "value": float(best[metric]),
                "sd": best.get(sd),
                "seeds": best.get("seeds", 1),
                "close": close,
            }
        )
    return found


def winner_text(row: Mapping[str, Any], metric: str) -> str:
    """A row of `winners` as one sentence in Markdown."""
    seeds = f"{row['seeds']} seeds" if row["seeds"] > 1 else "one seed: no spread known"
    close = f"; the spread does not tell {in_words(row['close'])} from it" if row["close"] else ""
    return f"{row['where']}: **{row['model']}** is best, {METRICS[metric]} {_figure(row['value'], row['sd'])} ({seeds}){close}."


def benchmark_figure(summary: Sequence[Mapping[str, Any]], metric: str) -> go.Figure:
    """The same as dots with their spread: platforms downwards, one colour a model."""
    frame = pd.DataFrame(list(summary))
    figure = go.Figure()
    places = list(dict.fromkeys(where(r) for r in summary))
    models = list(frame.groupby("model")[metric].mean().sort_values(ascending=False).index) if len(frame) else []
    for i, model in enumerate(models):
        rows = frame[frame["model"] == model]
        shift = (i - (len(models) - 1) / 2) * 0.09
        figure.add_scatter(
            y=[places.index(where(r)) + shift for r in rows.to_dict("records")], x=rows[metric], name=str(model), mode="markers",
            error_x={"type": "data", "array": rows.get(f"{metric}_sd", pd.Series(dtype=float)).astype(float), "thickness": 1.2, "width": 3},
            marker={"size": 9, "color": palette.CATEGORIES[i % len(palette.CATEGORIES)]},
            text=[where(r) for r in rows.to_dict("records")], hovertemplate=f"%{{text}}: %{{x:.4f}}<extra>{model}</extra>",
        )  # fmt: skip
    plain(figure, f"{METRICS[metric]} on the test part (± sd over seeds)", "")
    figure.update_yaxes(tickvals=list(range(len(places))), ticktext=places, range=[len(places) - 0.5, -0.5])
    return figure.update_layout(legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0}, margin={"t": 30})


def _figure(value: Any, sd: Any) -> str:
    if value is None or not np.isfinite(value):
        return "–"
    return f"{value:.3f} ± {sd:.3f}" if sd is not None and np.isfinite(sd) else f"{value:.3f}"


def in_words(names: Sequence[str]) -> str:
    """ "a, b and c" of at least one name."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
