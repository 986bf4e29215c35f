"""Figures that only lessons need: a loop nest in a few lines, latency step by step, two people's picks on one map."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from tcl.views import palette
from tcl.views.explore import map_layout, plain, points

_LOOP = re.compile(r"for (?P<names>[\w, ]+) in T\.(?P<kind>\w+)\((?P<extents>[\d, ]+)\)|for (?P<plain>\w+) in range\((?P<extent>\d+)\)")
_REMAP = re.compile(r'(?P<names>v[\w, ]*) = T\.axis\.remap\("\w+", \[(?P<loops>[\w, ]+)\]\)')
_AXIS = re.compile(r"(?P<name>v\w+) = T\.axis\.\w+\(\d+, (?P<value>.+)\)$")


def loop_nest(script: str) -> str:
    """A TVMScript function as its loops and statements only, one loop a line, with the loops' own names in the indices.

    A block's start value (`T.init`) becomes an `if` at the first step of its sums. Lines that are neither loop nor statement (reads,
    writes, buffers, attributes) are left out.
    """
    out: list[str] = []
    indents: list[tuple[int, int]] = []  # (indent in the script, ours) of the open loops
    values: dict[str, str] = {}
    sums: list[str] = []
    init = -1
    for line in script.splitlines():
        text, indent = line.strip(), len(line) - len(line.lstrip())
        while indents and indents[-1][0] >= indent:
            indents.pop()
        depth = indents[-1][1] + 1 if indents else 0
        if found := _LOOP.match(text):
            names = (found["names"] or found["plain"]).split(", ")
            extents = (found["extents"] or found["extent"]).split(", ")
            kind = "range" if found["kind"] in (None, "grid", "serial") else found["kind"]
            for i, (name, extent) in enumerate(zip(names, extents, strict=True)):
                out.append("    " * (depth + i) + f"for {name} in {kind}({extent}):")
            indents.append((indent, depth + len(names) - 1))
        elif found := _REMAP.match(text):
            values |= dict(zip(found["names"].split(", "), found["loops"].split(", "), strict=True))
            kinds = re.search(r'"(\w+)"', text)
            sums = [loop for loop, k in zip(found["loops"].split(", "), kinds[1] if kinds else "", strict=False) if k == "R"]
        elif found := _AXIS.match(text):
            values[found["name"]] = found["value"]
        elif text.startswith("with T.init"):
            init = indent
        elif re.match(r"\w+\[.+\] = ", text):
            shown = re.sub(r"\bv\w*\b", lambda m, known=values: known.get(m[0], m[0]), text).replace("T.float32(0.0)", "0")
            target, _, value = shown.partition(" = ")
            if value.startswith(f"{target} + "):
                shown = f"{target} += {value.removeprefix(f'{target} + ')}"
            if 0 <= init < indent:
                shown, init = f"if {' and '.join(f'{s} == 0' for s in sums) or 'first'}: {shown}", -1
            out.append("    " * depth + shown)
    return "\n".join(out)


def base_of(wrong: Sequence[bool], step: int) -> int:
    """The step that `step` builds on: the last one before it that is no wrong turn."""
    return max((i for i in range(step) if not wrong[i]), default=0)


def steps_figure(rows: pd.DataFrame, shown: int | None = None) -> go.Figure:
    """Latency after each step, top to bottom, on a log axis; wrong turns orange, steps from `shown` on not yet drawn.

    rows: step, name, wrong, latency_s (the fastest repeat), median_s. The number beside a bar is the latency and how many times faster (or
    slower) the step made what it builds on.
    """
    shown = len(rows) if shown is None else shown
    latency, wrong = rows["latency_s"].to_numpy(), rows["wrong"].to_numpy(dtype=bool)
    part = rows.iloc[:shown]
    texts = []
    for i in range(len(part)):
        gain = latency[base_of(wrong, i)] / latency[i] if i else 1.0
        change = f", {gain:.1f} × faster" if gain >= 1.05 else f", {1 / gain:.1f} × slower" if gain <= 0.95 else ", the same"
        texts.append(palette.latency_text(latency[i]) + (change if i else ""))
    labels = [f"{n}. {name}" for n, name in zip(rows["step"], rows["name"], strict=True)]
    low, high = float(rows["latency_s"].min()), float(rows["median_s"].max())
    figure = go.Figure(
        go.Bar(
            y=labels[:shown], x=part["latency_s"], orientation="h", text=texts, textposition="outside", cliponaxis=False,
            marker_color=[palette.CATEGORIES[1] if w else palette.CATEGORIES[0] for w in wrong[:shown]],
            customdata=np.arange(shown), hovertemplate="%{y}: %{text}<extra></extra>",
        )
    )  # fmt: skip
    plain(figure, "latency (log), the fastest repeat", "")
    ticks, words = palette.log_ticks(low, high)
    span = [np.log10(low) - 0.15, np.log10(high) + 0.8]  # room for the numbers beside the bars
    figure.update_xaxes(type="log", range=span, tickvals=[10**t for t in ticks], ticktext=words)
    figure.update_yaxes(type="category", categoryorder="array", categoryarray=labels, showgrid=False, ticksuffix=" ")
    return figure.update_yaxes(range=[len(rows) - 0.5, -0.5])


def picks_figure(frame: pd.DataFrame, picks: Mapping[str, np.ndarray], latencies: bool = False) -> go.Figure:
    """Programs of one task on their map, and whose picks are where. A point's `customdata` is its row.

    Args:
        frame: x, y, latency_s (seconds, NaN for a failure).
        picks: name -> rows (int (k,)); each name is drawn in its own colour and shape, around the point.
        latencies: colour the programs by latency (bright: fast); otherwise all are grey.
    """
    figure = go.Figure()
    rows = np.arange(len(frame))
    if latencies:
        known = rows[frame["latency_s"].notna().to_numpy()]
        z = np.log10(frame["latency_s"].to_numpy(dtype=float))
        ticks, words = palette.log_ticks(10 ** z[known].min(), 10 ** z[known].max())
        bar = {"thickness": 10, "outlinewidth": 0, "len": 0.7, "y": 0.98, "yanchor": "top", "x": 1.0, "tickvals": ticks, "ticktext": words,
               "title": {"text": "latency"}}  # fmt: skip
        order = known[np.argsort(-z[known], kind="stable")]
        look = {"colorscale": palette.FASTER_IS_BRIGHT, "cmin": float(z[known].min()), "cmax": float(np.quantile(z[known], 0.99))}
        points(figure, frame, order, f"programs ({len(frame)})", 8, z[order], colorbar=bar, **look)
    else:
        points(figure, frame, rows, f"programs ({len(frame)})", 8, palette.OTHERS)
    for i, (name, chosen) in enumerate(picks.items()):
        if len(chosen):
            color = palette.CATEGORIES[(1, 0, 2)[i % 3]]
            symbol = ("circle-open", "square-open", "diamond-open")[i % 3]
            figure.add_scattergl(
                x=frame["x"].iloc[chosen], y=frame["y"].iloc[chosen], mode="markers", name=f"{name} ({len(chosen)})", hoverinfo="name",
                customdata=np.asarray(chosen, dtype=np.int32),
                marker={"size": 15 + 4 * i, "symbol": symbol, "color": color, "line": {"width": 2.5, "color": color}},
            )  # fmt: skip
    figure.update_traces(hovertemplate="program number %{customdata}<extra></extra>")
    return map_layout(figure, right=76 if latencies else 12)
