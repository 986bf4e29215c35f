"""Several tuning runs beside each other: best latencies against trials or seconds, and against a pinned one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from tcl.views import palette, tuning
from tcl.views.explore import plain

AGAINST = {"trials": "programs measured", "seconds": "seconds of search"}


def curve(events: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """One row a trial: trials (from 1), seconds (at work since the search began), best_s: of an operator its best latency so far, of
    a network the weighted sum over its tasks; NaN before there is one."""
    frame = tuning.measured(events)
    began = next((e["t"] for e in events if e.get("kind") == "phase" and e.get("name") == "search"), 0.0)
    best = tuning.best_so_far(frame, tuning.weights_of(tuning.tasks(events)))
    return pd.DataFrame({"trials": frame["trial"], "seconds": frame["t"] - began, "best_s": best.astype(float)})


def ratio(run: pd.DataFrame, baseline: pd.DataFrame, against: str = "trials") -> pd.DataFrame:
    """How many times faster than the baseline's best of that moment a run's best is: columns `against` and ratio, one row a `curve`
    row at which both have a best and the baseline's curve has begun and not ended."""
    known = baseline[baseline["best_s"].notna()]
    rows = run[run["best_s"].notna()]
    if known.empty or rows.empty:
        return pd.DataFrame({against: [], "ratio": []}, dtype=float)
    x = rows[against].to_numpy(dtype=float)
    place = np.searchsorted(known[against].to_numpy(dtype=float), x, side="right") - 1
    both = (place >= 0) & (x <= float(baseline[against].max()))
    value = known["best_s"].to_numpy()[np.maximum(place, 0)] / rows["best_s"].to_numpy()
    return pd.DataFrame({against: x[both], "ratio": value[both]})


def reached(run: pd.DataFrame, latency_s: float | None) -> tuple[float, float] | None:
    """(trials, seconds) after which a run's best was at most `latency_s`; None where it never was."""
    if latency_s is None or not np.isfinite(latency_s):
        return None
    there = run[run["best_s"] <= latency_s]
    return None if there.empty else (float(there["trials"].iloc[0]), float(there["seconds"].iloc[0]))


def final(run: pd.DataFrame) -> float | None:
    """The last best of a curve, seconds; None where there is none."""
    known = run["best_s"].dropna()
    return float(known.iloc[-1]) if len(known) else None


def comparison(
    curves: Mapping[str, pd.DataFrame], baseline: str | None = None, finals: Mapping[str, float | None] | None = None
) -> pd.DataFrame:
    """One row a run: run, trials, seconds (of search), best_s (last of its curve), final_s (of `finals`: measured again at the end).

    With a baseline also ratio (its latency / this one: above 1 is faster; final ones where both have one), reach_trials and
    reach_seconds (until this run's curve was as low as the baseline's at its end), times (seconds until the baseline's curve was there /
    reach_seconds).
    """
    finals = finals or {}
    pinned = curves.get(baseline or "")
    goal = final(pinned) if pinned is not None else None
    own = reached(pinned, goal) if pinned is not None else None
    rows = []
    for name, run in curves.items():
        best, end = final(run), finals.get(name)
        row: dict[str, Any] = {
            "run": name, "trials": len(run), "seconds": float(run["seconds"].max()) if len(run) else np.nan,
            "best_s": best, "final_s": end,
        }  # fmt: skip
        if pinned is not None:
            there, base_end = reached(run, goal), finals.get(baseline or "")
            above, below = (base_end, end) if base_end and end else (goal, best)
            row |= {
                "ratio": above / below if above and below else np.nan,
                "reach_trials": there[0] if there else np.nan,
                "reach_seconds": there[1] if there else np.nan,
                "times": own[1] / there[1] if own and there and there[1] > 0 else np.nan,
            }
        rows.append(row)
    more = ["ratio", "reach_trials", "reach_seconds", "times"] if pinned is not None else []
    return pd.DataFrame(rows, columns=["run", "trials", "seconds", "best_s", "final_s", *more])


def curves_figure(
    curves: Mapping[str, pd.DataFrame],
    colors: Mapping[str, str],
    *,
    against: str = "trials",
    baseline: str | None = None,
    relative: bool = False,
    references: Mapping[str, float | None] | None = None,
) -> go.Figure:
    """One line a run of `curve`, the baseline dashed.

    Args:
        colors: run -> its colour, the same in every figure.
        against: "trials" or "seconds".
        relative: draw how many times faster than the baseline each is (`ratio`), the baseline a line at 1.
        references: name -> seconds, drawn as dotted lines across where latencies are drawn.
    """
    figure = go.Figure()
    unit = "" if against == "trials" else " s"
    pinned = curves.get(baseline or "")
    if relative and pinned is not None:
        for name, run in curves.items():
            if name != baseline:
                rows = ratio(run, pinned, against)
                figure.add_scatter(
                    x=rows[against], y=rows["ratio"], name=name, mode="lines", showlegend=True,
                    line={"shape": "hv", "width": 2, "color": colors.get(name)},
                    hovertemplate=f"after %{{x:.4~g}}{unit}: %{{y:.3f}} × as fast<extra>{name}</extra>",
                )  # fmt: skip
        plain(figure, AGAINST[against], "times as fast as the baseline (log)")
        figure.add_hline(y=1, line={"width": 1.5, "dash": "dash", "color": colors.get(baseline or "", palette.OTHERS)})
        ratios = [1.0, *(v for trace in figure.data for v in trace.y)]
        steps = (1, 2, 5) if max(ratios) > 6 * min(ratios) else (1, 1.1, 1.2, 1.35, 1.5, 1.75, 2, 2.5, 3, 4, 5, 6, 7, 8, 9)
        ticks = [m * 10.0**e for e in range(-4, 5) for m in steps if min(ratios) <= m * 10.0**e <= max(ratios)]
        figure.update_yaxes(type="log", tickvals=ticks, ticktext=[f"{t:g}" for t in ticks])
        return _house(figure)
    lasts = [v for run in curves.values() if (v := final(run)) is not None]
    references = {k: v for k, v in (references or {}).items() if v}
    factor, unit_s = palette.unit_of(np.array(lasts or [1e-3]))
    for name, run in curves.items():
        figure.add_scatter(
            x=run[against], y=run["best_s"] * factor, name=name, mode="lines", showlegend=True,
            line={"shape": "hv", "width": 2.5, "color": colors.get(name), "dash": "dash" if name == baseline else "solid"},
            hovertemplate=f"after %{{x:.4~g}}{unit}: %{{y:.4g}} {unit_s}<extra>{name}</extra>",
        )  # fmt: skip
    plain(figure, AGAINST[against], "best latency (log)")
    tuning.reference_lines(figure, references, factor)
    figure.update_yaxes(type="log")
    shown = [v for run in curves.values() for v in (run["best_s"].max(), run["best_s"].min()) if np.isfinite(v)]
    shown += list(references.values())
    if shown:
        places, texts = palette.log_ticks(min(shown), max(shown))
        figure.update_yaxes(tickvals=[10**p * factor for p in places], ticktext=texts)
    return _house(figure)


def _house(figure: go.Figure) -> go.Figure:
    figure.update_xaxes(rangemode="tozero")
    return figure.update_layout(
        showlegend=len(figure.data) > 0, legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}, margin={"t": 30}
    )
