"""One selection everywhere: each view of the programs sets a condition, and what meets all of them is selected in every view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from tcl.features.flat import FLAT_FEATURES
from tcl.programs.dataset import Dataset
from tcl.views import palette
from tcl.views.explain import effects, strongest
from tcl.views.explain import moments as moments_of
from tcl.views.explore import differing, map_layout, parameter_name, parameter_values, plain, point_size, points, within

LATENCY = "latency"
"""The axis of the parallel coordinates that is no parameter: log10 of seconds."""
AXES = 6
LINES = 1_000
"""Programs that the parallel coordinates draw unless all are asked for: more lines are one grey."""
NEIGHBOURS = 25


@dataclass(frozen=True)
class Conditions:
    """What each view asks for; all must hold. Empty ones ask for nothing.

    outlines   on the map (`tcl.views.explore.within`)
    latency_s  (from, to) seconds, from the histogram
    axes       feature of a program, or `LATENCY`, -> ranges in the feature's units, from the parallel coordinates
    pair       outlines on the view of two platforms (`pair_places`)
    programs   sets of ids (int64 arrays): neighbours, a saved selection, ticked rows; a program must be in each
    matches    bool (n,) of a search, or None
    """

    outlines: Sequence[Mapping[str, Any]] = ()
    latency_s: tuple[float, float] | None = None
    axes: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    pair: Sequence[Mapping[str, Any]] = ()
    programs: Sequence[np.ndarray] = ()
    matches: np.ndarray | None = None


def selected(frame: pd.DataFrame, asked: Conditions, flat: np.ndarray | None = None, places: np.ndarray | None = None) -> np.ndarray | None:
    """Rows of an `explore_frame` that meet all conditions: bool (n,); None where nothing is asked.

    flat: the flat features (n, F), needed for `axes`; places: `pair_places`, needed for `pair`.
    """
    masks = []
    if asked.outlines:
        masks.append(within(list(asked.outlines), frame["x"].to_numpy(), frame["y"].to_numpy()))
    latency = frame["latency_s"].to_numpy()
    if asked.latency_s is not None:
        low, high = asked.latency_s
        masks.append((latency >= low) & (latency <= high))
    for name, ranges in asked.axes.items():
        if name == LATENCY:
            with np.errstate(divide="ignore"):
                values = np.log10(latency)
        elif flat is not None and name in FLAT_FEATURES:
            values = flat[:, FLAT_FEATURES.index(name)]
        else:
            continue
        masks.append(np.any([(values >= low - 1e-6) & (values <= high + 1e-6) for low, high in ranges], axis=0))
    if asked.pair and places is not None:
        masks.append(within(list(asked.pair), places[:, 0], places[:, 1]))
    masks += [np.isin(frame["program"].to_numpy(), ids) for ids in asked.programs]
    if asked.matches is not None:
        masks.append(asked.matches)
    return np.logical_and.reduce(masks) if masks else None


# -- parallel coordinates --------------------------------------------------------------------------------------------------


def telling(flat: np.ndarray, frame: pd.DataFrame, most: int = AXES) -> list[str]:
    """Features to draw axes of, the most telling first: those that set the fastest quarter of the measured programs apart from the
    rest; where nothing was measured, those that differ at all."""
    known = list(differing(flat).values())
    measured = np.flatnonzero(frame["latency_s"].notna().to_numpy())
    if len(measured) < 8:
        return known[:most]
    part = flat[measured]
    label = frame["label"].to_numpy(float)[measured]
    effect = effects(part, moments_of(part, frame["task"].to_numpy()[measured]), label >= np.quantile(label, 0.75))
    found = [f for f in strongest(effect, most, least=0.0) if f in known]
    return (found + [f for f in known if f not in found])[:most]


def drawn_rows(n: int, chosen: np.ndarray | None, most: int | None = LINES, seed: int = 0) -> np.ndarray:
    """Which of n rows are drawn, int (k,): all, or `most` at random, the chosen (bool (n,)) first."""
    if most is None or n <= most:
        return np.arange(n)
    order = np.random.default_rng(seed).permutation(n)
    if chosen is not None:
        order = order[np.argsort(~chosen[order], kind="stable")]
    return np.sort(order[:most])


def parallel_figure(frame: pd.DataFrame, flat: np.ndarray, features: Sequence[str], rows: np.ndarray) -> go.Figure:
    """One line a program (of `rows`, int (k,)), one axis a feature and one for the latency; coloured by label.

    A line's `customdata` is its row in the frame. Failed and unmeasured programs have no place on the latency axis: they are drawn at
    its slow end, which says so.
    """
    dimensions = []
    for feature in features:
        values = flat[rows, FLAT_FEATURES.index(feature)]
        known = np.unique(flat[:, FLAT_FEATURES.index(feature)])
        ticks = _ticks(known)
        texts = [f"{v:,.0f}" if v >= 100 else f"{v:.3g}" for v in parameter_values(ticks, feature)]
        axis = _axis(feature, parameter_name(feature) or feature, values, ticks, texts)
        dimensions.append(axis | {"range": [float(known[0]), float(known[-1])]} if len(known) > 1 else axis)
    latency = frame["latency_s"].to_numpy(float)
    if np.isfinite(latency).any():
        low, high = float(np.nanmin(latency)), float(np.nanmax(latency))
        places, texts = palette.log_ticks(low, high)
        end = np.log10(high) + 0.08 * max(np.log10(high / low), 0.1)
        values = np.where(np.isfinite(latency), np.log10(np.where(np.isfinite(latency), latency, 1.0)), end)[rows].astype(np.float32)
        missing = not np.isfinite(latency).all()
        axis = _axis(LATENCY, "latency", values, [*places, end] if missing else places, [*texts, "none"] if missing else texts)
        dimensions.append({**axis, "range": [np.log10(low), end]})
    label = frame["label"].fillna(0.0).to_numpy(np.float32)[rows]
    trace = go.Parcoords(
        dimensions=dimensions, customdata=rows.astype(np.int32), labelside="top", rangefont={"color": "rgba(0,0,0,0)"},
        line={"color": label, "colorscale": palette.SEQUENTIAL, "cmin": 0, "cmax": 1}, unselected={"line": {"opacity": 0.25}},
    )  # fmt: skip
    return go.Figure(trace, {
        "template": "none", "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)", "uirevision": "same",
        "margin": {"l": 48, "r": 56, "t": 52, "b": 16},
    })  # fmt: skip


def _ticks(known: np.ndarray) -> np.ndarray:
    """Where an axis of these values (sorted) has ticks: at each of a few, else at whole numbers (features are logarithms), about six."""
    if len(known) <= 7:
        return known.astype(np.float64)
    low, high = float(known[0]), float(known[-1])
    step = max(1, round((high - low) / 6))
    return np.arange(np.ceil(low), high + 1e-6, step) if high - low >= 2 else np.linspace(low, high, 4)


def _axis(name: str, label: str, values: np.ndarray, ticks: Sequence[float] | np.ndarray, texts: Sequence[str]) -> dict[str, Any]:
    words = label.split(" ")
    half = (len(words) + 1) // 2  # long names on two lines: axes stand close
    label = "<br>".join([" ".join(words[:half]), " ".join(words[half:])]) if len(label) > 12 else label
    return {
        "name": name,
        "label": label,
        "values": np.asarray(values, np.float32),
        "tickvals": list(map(float, ticks)),
        "ticktext": list(texts),
    }


# -- two platforms ---------------------------------------------------------------------------------------------------------


def platform_columns(dataset: Dataset, programs: np.ndarray, tasks: Sequence[int] | None = None) -> dict[str, np.ndarray]:
    """platform -> how often each of `programs` (int64 (n,)) takes the time of its task's best there: float32 (n,), NaN where it was
    not measured or failed. The best of a task on a platform has 1."""
    labels = dataset.labels(tasks=tasks)
    labels = labels[labels["latency_s"].notna()]
    place = pd.Index(programs)
    found = {}
    for name in dataset.platforms():
        part = labels[labels["platform"].astype(str) == name]
        rows = place.get_indexer(part["program"])
        column = np.full(len(programs), np.nan, dtype=np.float32)
        column[rows[rows >= 0]] = (1.0 / part["label"].to_numpy(float))[rows >= 0]
        found[name] = column
    return found


def pair_places(columns: Mapping[str, np.ndarray], x: str, y: str) -> np.ndarray:
    """float32 (n, 2): log10 of `platform_columns` on two platforms; NaN where either is missing."""
    both = np.stack([columns[x], columns[y]], axis=1)
    both[~np.isfinite(both).all(axis=1)] = np.nan
    return np.log10(both)


def pair_figure(places: np.ndarray, x: str, y: str) -> go.Figure:
    """Each program's slowdown on one platform against that on another, both log; on the line it is as good on both.

    A point's `customdata` is its row.
    """
    figure = go.Figure()
    rows = np.flatnonzero(np.isfinite(places).all(axis=1))
    frame = pd.DataFrame({"x": places[:, 0], "y": places[:, 1]})
    top = float(max(np.nanmax(places), 0.05)) if len(rows) else 1.0
    points(figure, frame, rows, "programs", point_size(len(rows)), palette.CATEGORIES[0], opacity=0.7)
    figure.add_scatter(x=[0, top], y=[0, top], mode="lines", line={"color": palette.OTHERS, "width": 1, "dash": "dot"}, hoverinfo="skip")
    map_layout(figure, right=8)
    plain(figure, f"times the task's best, {x}", f"times the task's best, {y}")
    steps = (1, 2, 5, 10, 20, 50, 100) if top < 2 else (1, 10, 100, 1000, 10_000, 100_000, 1_000_000)
    ticks = [t for t in steps if np.log10(t) <= top + 0.05]
    axis = {"showticklabels": True, "tickvals": np.log10(ticks), "ticktext": [f"{t:,}" for t in ticks], "showgrid": True, "tickangle": 0}
    figure.update_xaxes(**axis)
    figure.update_yaxes(**axis, scaleanchor=None)
    figure.update_layout(showlegend=False, uirevision=f"{x}|{y}", dragmode="select")
    return figure


# -- neighbours ------------------------------------------------------------------------------------------------------------


def neighbours(space: np.ndarray, row: int, k: int = NEIGHBOURS) -> np.ndarray:
    """The rows of the k programs nearest to one, itself first: int (k,). `space`: float32 (n, p), see `tcl.sampling.embedding.embed`.

    Exact: of one program it is a single pass over the space (see `tcl bench app`), while an approximate index would first take longer
    to build than all the questions that a person asks.
    """
    distance = ((space - space[row]) ** 2).sum(axis=1)
    distance[row] = -1.0
    nearest = np.argpartition(distance, min(k, len(distance)) - 1)[:k]
    return nearest[np.argsort(distance[nearest], kind="stable")]
