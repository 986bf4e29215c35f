"""What `tcl bench tuning` found: methods beside each other and beside what production uses, operator by operator. From its JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from tcl.bench import tuning
from tcl.bench.tuning import BASELINE
from tcl.views import palette
from tcl.views.benchmarks import in_words
from tcl.views.explore import plain

PRODUCTION = {"pytorch_ms": "PyTorch", "torch_compile_ms": "torch.compile", "onnxruntime_ms": "ONNX Runtime"}
METHODS = {"random/random": "random", "tvm/xgb": "TVM, xgb", "decisions/xgb": "ours, xgb", "decisions/mlp": "ours, mlp",
           "decisions/kb": "ours, kb"}  # fmt: skip


def label(method: str) -> str:
    return METHODS.get(method, method)


def latencies(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """ms: a row an operator or network, a column a method (median over seeds; NaN where no seed found one) and each of `PRODUCTION`;
    "fastest" names the column with the smallest."""
    frame = pd.DataFrame(list(rows))
    if frame.empty:
        return frame
    subjects = list(dict.fromkeys(frame["subject"]))
    wide = frame.astype({"best_ms": float}).pivot_table(index="subject", columns="method", values="best_ms", aggfunc="median")
    wide = wide.reindex(index=subjects, columns=list(dict.fromkeys(frame["method"]))).rename(columns=label)
    for key, name in PRODUCTION.items():
        if key in frame and frame[key].notna().any():
            wide[name] = frame.astype({key: float}).groupby("subject")[key].first()
    wide.insert(0, "fastest", wide.fillna(np.inf).idxmin(axis=1).where(wide.notna().any(axis=1), ""))
    return wide.rename_axis(columns=None)


def ratios(rows: Sequence[Mapping[str, Any]], method: str, to: str = BASELINE) -> pd.Series:
    """`tcl.bench.tuning.ratios` of each subject: the median over the seeds that both have."""
    found = tuning.ratios(rows, method, to)
    return pd.Series(found).groupby(level=0, sort=False).median() if found else pd.Series(dtype=float)


def times_sooner(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """How many times sooner than at the end of the baseline's search each method was at its last latency (the baseline itself may be
    there before its end too): a row a subject, a column a method, median over seeds; a run that never got there counts as 0."""
    frame = pd.DataFrame([r for r in rows if "times_faster" in r])
    if frame.empty:
        return frame
    frame["times_faster"] = frame["times_faster"].astype(float).fillna(0.0)
    wide = frame.pivot_table(index="subject", columns="method", values="times_faster", aggfunc="median")
    wide = wide.reindex(index=list(dict.fromkeys(frame["subject"])), columns=list(dict.fromkeys(frame["method"])))
    return wide.rename(columns=label).rename_axis(columns=None)


def curves_figure(rows: Sequence[Mapping[str, Any]], subject: str) -> go.Figure:
    """Best latency against seconds of search: a colour a method, a line a seed; what production takes as dashed lines."""
    figure = go.Figure()
    mine = [r for r in rows if r["subject"] == subject and r.get("curve")]
    colors = palette.colors_of(dict.fromkeys(r["method"] for r in mine))
    for row in mine:
        seconds, best = np.array(row["curve"], dtype=float).T
        end = max(float(row.get("search_s") or 0.0), seconds[-1])
        figure.add_scatter(
            x=[*seconds, end], y=[*best * 1e3, best[-1] * 1e3], mode="lines", name=label(row["method"]), legendgroup=row["method"],
            showlegend=row is next(r for r in mine if r["method"] == row["method"]),
            line={"shape": "hv", "width": 1.8, "color": colors[row["method"]]},
            hovertemplate=f"seed {row['seed']}, %{{x:.3g}} s: %{{y:.4g}} ms<extra>{label(row['method'])}</extra>",
        )  # fmt: skip
    ends = [x for line in figure.data for x in (min(line.x), max(line.x))]
    for dash, (key, name) in zip(("dash", "dot", "dashdot"), PRODUCTION.items(), strict=True):
        if value := next((r[key] for r in mine if r.get(key)), None):
            line = {"dash": dash, "width": 1.4, "color": palette.OTHERS}
            figure.add_scatter(x=[min(ends), max(ends)], y=[value, value], mode="lines", name=f"{name} {value:.3g} ms", line=line)
    plain(figure, "seconds of search", "best latency, ms")
    figure.update_xaxes(type="log")
    figure.update_yaxes(type="log")
    return figure.update_layout(legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0}, margin={"t": 30})


def _sooner(times: pd.Series) -> str:
    """In words: how many times sooner a method was at the baseline's last latency, subject by subject (0: never)."""
    never = int((times == 0).sum())
    if times.median() == 0:
        return f"at TVM's last latency on {len(times) - never} of {len(times)} only"
    text = f"at TVM's last latency {times.median():.1f} times sooner in the median one"
    return text + (f", never on {never}" if never else "")


def verdict(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Wins and losses as sentences in Markdown: each of our methods against the baseline; then the one with the knowledge base (the last
    one where there is none) against each of `PRODUCTION`."""
    table, sooner = latencies(rows), times_sooner(rows)
    ours = [m for m in dict.fromkeys(str(r["method"]) for r in rows) if m.startswith("decisions/")]
    said = []
    for method in ours:
        name, ratio = label(method), ratios(rows, method)
        if ratio.empty:
            continue
        text = (
            f"**{name}** against {label(BASELINE)} at equal trials: faster on {int((ratio < 0.97).sum())}, slower on "
            f"{int((ratio > 1.03).sum())} of {len(ratio)} (by more than 3 %), latency {ratio.median():.2f} times as long in the median one"
        )
        if name in sooner:
            text += f"; {_sooner(sooner[name].dropna())}"
        said.append(text + ".")
    chosen = label("decisions/kb" if "decisions/kb" in ours else ours[-1]) if ours else ""
    for rival in PRODUCTION.values():
        if rival not in table or chosen not in table:
            continue
        beside = (table[chosen] / table[rival]).dropna()
        worse = beside[beside > 1].sort_values(ascending=False)
        text = f"{chosen} against **{rival}**: faster on {int((beside < 1).sum())} of {len(beside)}"
        if len(worse):
            text += "; **slower** on " + in_words([f"`{subject}` ({times:.2f} times as long)" for subject, times in worse.items()])
        said.append(text + ".")
    return said
