"""What a tuning run's events (see `tcl.tuning.tune`) look like: one frame, a few figures. Live, replayed or finished, they are the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from tcl.views import palette
from tcl.views.explore import plain

COLUMNS = ("t", "trial", "batch", "task", "latency_s", "error", "best_s", "predicted", "program")
REFERENCES = {"untuned_latency_s": "Untuned", "pytorch_latency_s": "PyTorch", "torch_compile_latency_s": "torch.compile",
              "onnxruntime_latency_s": "ONNX Runtime"}  # fmt: skip
"""What a tuned result is held against: key of the result -> its name."""
GAP_S = 0.1
"""A batch is told at once: between two there is more than this."""
NEAR = 1.5
"""Lines of a figure so near each other (as a ratio) that their words would overlap."""


def measured(events: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """One row a "measured" event: t (seconds at work), trial, batch (both from 1), task, latency_s (NaN for a failure), error, best_s,
    predicted, program."""
    rows = [{c: event.get(c) for c in COLUMNS} for event in events if event.get("kind") == "measured"]
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    for column in ("t", "trial", "latency_s", "best_s", "predicted"):
        frame[column] = pd.to_numeric(frame[column]).astype(float)
    frame["error"] = frame["error"].fillna("").astype(str)
    if frame["batch"].isna().any():  # of a recording that does not number them
        frame["batch"] = ((frame["t"].diff() > GAP_S) | (frame["task"] != frame["task"].shift())).cumsum().clip(lower=1)
    frame["batch"] = pd.to_numeric(frame["batch"]).astype(int)
    frame["trial"] = np.arange(1, len(frame) + 1)  # of one folder tuned twice, trial numbers go on: the chart begins at 1
    return frame


def tasks(events: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """One row a task, as last told by a "task" event: task, name, operator, weight, trials, best_s (of the end where it was measured
    once more then), flops, bytes, gflops (10^9 FLOP/s), share of the weighted sum; the largest share first."""
    last: dict[Any, Mapping[str, Any]] = {}
    final: dict[Any, float] = {}
    for event in events:
        if event.get("kind") == "task":
            last[event.get("task")] = event
        elif event.get("kind") == "best":
            final[event["task"]] = event["latency_s"]
    columns = ["task", "name", "operator", "weight", "trials", "best_s", "flops", "bytes"]
    rows = [{c: e.get(c) for c in columns} | ({"best_s": final[task]} if task in final else {}) for task, e in last.items()]
    frame = pd.DataFrame(rows, columns=columns)
    for column in ("weight", "trials", "best_s", "flops", "bytes"):
        frame[column] = pd.to_numeric(frame[column]).astype(float)
    frame["gflops"] = frame["flops"].where(frame["flops"] > 0) / frame["best_s"] / 1e9
    whole = (frame["weight"] * frame["best_s"]).sum()
    frame["share"] = frame["weight"] * frame["best_s"] / whole if whole else np.nan
    return frame.sort_values("share", ascending=False, ignore_index=True)


def last(events: Sequence[Mapping[str, Any]], kind: str) -> Mapping[str, Any]:
    """The latest event of a kind; empty where there is none."""
    return next((e for e in reversed(events) if e.get("kind") == kind), {})


def weights_of(tasks: pd.DataFrame) -> dict[Any, float] | None:
    """Task -> how often the network holds it, of `tasks`; None for a single operator."""
    return dict(zip(tasks["task"], tasks["weight"].fillna(1.0), strict=True)) if len(tasks) > 1 else None


def best_so_far(frame: pd.DataFrame, weights: Mapping[Any, float] | None = None) -> pd.Series:
    """Seconds after each row of `measured`: of one task its best latency, of several the weighted sum once each has one."""
    if frame["task"].nunique() <= 1:
        return frame["latency_s"].cummin().ffill()
    wide = frame.pivot_table(index=frame.index, columns="task", values="latency_s", aggfunc="min").reindex(frame.index)
    wide = wide.cummin().ffill()
    weight = pd.Series({task: float((weights or {}).get(task, 1.0)) for task in wide.columns})
    total = (wide * weight).sum(axis=1, skipna=False)
    return total if len(wide.columns) >= len(weights or {}) else total * np.nan


def best_figure(
    frame: pd.DataFrame, against: str = "trials", references: Mapping[str, float] | None = None, weights: Mapping[Any, float] | None = None
) -> go.Figure:
    """Best latency so far against trials or seconds, every measurement as a dot, failures at the top edge.

    Args:
        frame: `measured`'s.
        against: "trials" or "seconds".
        references: name -> seconds, drawn as lines (the untuned program, PyTorch).
    """
    figure = go.Figure()
    x = frame["trial"] if against == "trials" else frame["t"]
    one = frame["task"].nunique() <= 1
    best = best_so_far(frame, weights)
    known = [*frame["latency_s"].dropna(), *best.dropna()] if one else list(best.dropna())
    references = {k: v for k, v in (references or {}).items() if v}
    factor, unit = palette.unit_of(np.array([best.dropna().iloc[-1] if best.notna().any() else (known or [1e-3])[-1]]))
    if one:
        ok = frame["latency_s"].notna()
        figure.add_scatter(
            x=x[ok],
            y=frame["latency_s"][ok] * factor,
            mode="markers",
            name="measured",
            marker={"size": 5, "color": palette.CATEGORIES[4], "opacity": 0.55},
            hovertemplate=f"%{{y:.4g}} {unit}<extra></extra>",
        )
    failed = frame["error"] != ""
    if failed.any():
        top = (max(known) if known else 1e-3) * factor
        figure.add_scatter(
            x=x[failed],
            y=np.full(failed.sum(), top),
            mode="markers",
            name="failed",
            text=frame["error"][failed],
            marker={"symbol": "x-thin", "size": 7, "line": {"width": 1.5, "color": palette.FAILED}},
            hovertemplate="%{text}<extra></extra>",
        )
    figure.add_scatter(
        x=x,
        y=best * factor,
        mode="lines",
        name="best" if one else "network, sum of bests",
        line={"shape": "hv", "width": 2.5, "color": palette.CATEGORIES[0]},
        hovertemplate=f"best %{{y:.4g}} {unit}<extra></extra>",
    )
    reference_lines(figure, references, factor)
    plain(figure, "programs measured" if against == "trials" else "seconds at work", "latency (log)")
    figure.update_layout(legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}, margin={"t": 30})
    figure.update_yaxes(type="log")
    shown = [*known, *references.values()]
    if shown:
        places, texts = palette.log_ticks(min(shown), max(shown))
        figure.update_yaxes(tickvals=[10**p * factor for p in places], ticktext=texts)
    figure.update_xaxes(rangemode="tozero")
    return figure


def reference_lines(figure: go.Figure, references: Mapping[str, float], factor: float) -> None:
    """Dotted lines across a figure with a logarithmic latency axis; references: name -> seconds, factor: seconds -> the axis' unit."""
    place, before = 1.0, 0.0
    for i, (name, latency) in enumerate(sorted(references.items(), key=lambda r: r[1])):
        color = palette.CATEGORIES[[1, 2, 3, 5][i % 4]]
        place = place - 0.25 if latency < NEAR * before and place > 0.5 else 1.0  # words beside those of the line just below
        before = latency
        figure.add_hline(y=latency * factor, line={"dash": "dot", "width": 1.5, "color": color})
        # An annotation's place on a log axis is the logarithm, a line's is the value itself.
        figure.add_annotation(
            x=place, xref="paper", xanchor="right", y=np.log10(latency * factor), yanchor="bottom",
            text=f"{name} {palette.latency_text(latency)}", showarrow=False, font={"color": color},
        )  # fmt: skip


def predicted_figure(frame: pd.DataFrame) -> go.Figure:
    """The model's score against the measured latency, the newest dark: one sees the model learn."""
    both = frame[frame["predicted"].notna() & frame["latency_s"].notna()]
    factor, unit = palette.unit_of(both["latency_s"].to_numpy())
    figure = go.Figure()
    figure.add_scatter(
        x=both["latency_s"] * factor,
        y=both["predicted"],
        mode="markers",
        showlegend=False,
        hovertemplate=f"%{{x:.4g}} {unit}, score %{{y:.3g}}<extra></extra>",
        marker={
            "size": 6,
            "color": both["trial"],
            "colorscale": palette.FASTER_IS_BRIGHT,
            "opacity": 0.8,
            "colorbar": {"title": {"text": "trial"}, "thickness": 10},
        },
    )
    plain(figure, "measured latency (log)", "predicted score")
    figure.update_xaxes(type="log")
    if len(both):
        places, texts = palette.log_ticks(float(both["latency_s"].min()), float(both["latency_s"].max()))
        figure.update_xaxes(tickvals=[10**p * factor for p in places], ticktext=texts)
    return figure


def failures(frame: pd.DataFrame) -> dict[str, int]:
    """How many failed, by kind, the most frequent first."""
    return {str(k): int(n) for k, n in frame.loc[frame["error"] != "", "error"].value_counts().items()}


def per_minute(frame: pd.DataFrame, window_s: float = 30.0) -> float:
    """Programs measured a minute over the last `window_s` seconds, from the first batch in them on; 0 for a single batch."""
    if len(frame) < 2:
        return 0.0
    recent = frame[frame["t"] >= frame["t"].iloc[-1] - window_s]
    since = float(recent["t"].iloc[0])
    later = int((recent["t"] > since + GAP_S).sum())  # its programs took the time before it was told
    span = float(recent["t"].iloc[-1]) - since
    return 60.0 * later / span if later else 0.0


def held_against(tasks: pd.DataFrame, roofline: Mapping[str, float] | None, of_result: float | None = None) -> pd.DataFrame:
    """`tasks` with the column roofline: the least time (all arithmetic at peak FLOP/s, or all arguments moved once at peak bandwidth,
    whichever is longer) / the best latency; NaN where it is not known.

    roofline: flops and bandwidth, per second. of_result: the share that a result tells of its only task, where events tell no bytes.
    """
    share = pd.Series(np.nan, index=tasks.index)
    if roofline:
        least = np.fmax(tasks["flops"] / roofline["flops"], tasks["bytes"] / roofline["bandwidth"])
        share = (least / tasks["best_s"]).where(tasks["bytes"].notna())
    if len(tasks) == 1 and of_result is not None:
        share = share.fillna(of_result)
    return tasks.assign(roofline=share)
