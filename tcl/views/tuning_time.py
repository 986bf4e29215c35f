"""Where the time of a tuning run went, from what it recorded (`tcl.tuning.events.times`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from tcl.views import palette
from tcl.views.explore import plain

PARTS = {
    "search": "learning the design spaces; drawing, mutating and validating candidates",
    "features": "turning candidates into the numbers that the cost model reads",
    "cost model": "scoring candidates, and learning from what was measured",
    "build": "compiling the proposed programs",
    "run": "running them, the untuned program and the reference included",
    "waiting": "for other work on this machine to end before a batch: nothing is timed beside it",
    "comparing": "timing PyTorch and the others, and the machine's peaks when that was never done; waiting included",
    "checking, exporting": "comparing outputs, the network as a whole, writing libraries; waiting included",
    "else": "starting, loading TVM and the network, writing down what was measured",
}
"""Part -> what is in it; together they are all seconds at work."""
_COLORS = dict(zip(PARTS, [*(palette.CATEGORIES[i] for i in (0, 4, 2, 1, 5)), palette.GREY, *(palette.CATEGORIES[i] for i in (3, 8)),
                           palette.OTHERS], strict=True))  # fmt: skip


def spent(events: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Part -> seconds, as last told ("time" or "result"); empty where nothing was."""
    last = next((e for e in reversed(events) if e.get("kind") in ("time", "result") and e.get("time_s")), None)
    return parts(last["time_s"], float(last["seconds"])) if last else {}


def parts(time_s: Mapping[str, float], seconds: float) -> dict[str, float]:
    """Part -> seconds of `tcl.tuning.events.times` and the whole; what is in no part is "else"."""

    def total(*names: str) -> float:
        return sum(float(time_s.get(name) or 0.0) for name in names)

    found = {
        "search": max(0.0, total("space", "random", "search") - total("features", "model")),
        "features": total("features"),
        "cost model": total("model", "learn"),
        "build": total("build"),
        "run": total("run"),
        "waiting": total("waiting"),
        "comparing": total("compare", "roofline"),
        "checking, exporting": total("check", "network", "export"),
    }
    return found | {"else": max(0.0, seconds - sum(found.values()))}


def time_figure(runs: Mapping[str, Mapping[str, float]], *, share: bool = False) -> go.Figure:
    """One stacked bar a run (`spent`), in seconds, or in per cent of its own whole."""
    figure = go.Figure()
    frame = pd.DataFrame(runs).T.reindex(columns=list(PARTS)).fillna(0.0).astype(float)
    whole = frame.sum(axis=1)
    shown = frame.div(whole.where(whole > 0), axis=0) * 100 if share else frame
    for part, what in PARTS.items():
        if frame[part].sum() > 0:
            figure.add_bar(
                y=list(frame.index), x=shown[part], name=part, orientation="h", marker_color=_COLORS[part],
                customdata=list(zip(frame[part], 100 * frame[part] / whole, strict=True)),
                hovertemplate=f"{part}: %{{customdata[0]:.4~g}} s, %{{customdata[1]:.1f}} %<br>{what}<extra></extra>",
            )  # fmt: skip
    plain(figure, "per cent of the run" if share else "seconds", "")
    figure.update_yaxes(autorange="reversed")
    return figure.update_layout(
        barmode="stack", bargap=0.35, showlegend=True, margin={"t": 30},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "traceorder": "normal"},
    )  # fmt: skip


def time_table(found: Mapping[str, float]) -> pd.DataFrame:
    """Columns part, seconds, share, what; parts that took no time are left out."""
    whole = sum(found.values())
    rows = [{"part": p, "seconds": s, "share": s / whole if whole else 0.0, "what": PARTS[p]} for p, s in found.items() if s > 0]
    return pd.DataFrame(rows, columns=["part", "seconds", "share", "what"])
