"""The map of programs and what surrounds it: one frame a scope and platform, figures made from that frame."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from tcl.errors import UserError
from tcl.features.map import EVERYTHING, Map, load_map, scope_programs, scope_tasks, whole
from tcl.programs.dataset import Dataset
from tcl.programs.selection import load_selection
from tcl.views import palette

COLORS = {
    "latency": "latency", "label": "label (best / this)", "task": "task", "operator": "operator", "platforms": "measured on",
    "failure": "failure",
}  # fmt: skip
"""What a map can be coloured by, beside the parameters of primitives (`parameters`)."""
SHOWN_CATEGORIES = 9


def explore_frame(dataset: Dataset, scope: str, platform: str | None, stored: Map | None, selection: str | None = None) -> pd.DataFrame:
    """One row a program of the scope, in the dataset's order.

    Columns: program, task (int64), x, y (float32, NaN where the map does not hold it), sampled (bool: measured on `platform`, or
    picked by the named selection), latency_s (median of the repeats of the best measurement on `platform`, NaN where there is
    none), label, error, measurements, platforms (names, joined by " + "), task_name, operator.
    """
    frame = scope_programs(dataset, scope).reset_index(drop=True)
    tasks = scope_tasks(dataset, scope)
    if stored is not None:
        frame = frame.merge(stored.coordinates, on="program", how="left")
    else:
        frame["x"] = frame["y"] = np.float32(np.nan)
    labels = dataset.labels(tasks=tasks)
    if len(labels) and scope != whole(scope):
        labels = labels[labels["program"].isin(frame["program"])]
    here = labels[labels["platform"].astype(str) == platform].drop(columns=["task", "platform"])
    frame = frame.merge(here, on="program", how="left")
    frame["measurements"] = frame["measurements"].fillna(0).astype(np.int32)
    frame["error"] = frame["error"].fillna("").astype("category")
    frame["platforms"] = _platforms(labels, frame["program"])
    known = dataset.tasks().set_index("task")
    frame["task_name"] = frame["task"].map(known["name"]).astype("category")
    frame["operator"] = frame["task"].map(known["operator"]).astype("category")
    if selection is None:
        frame["sampled"] = frame["measurements"] > 0
    else:
        frame["sampled"] = frame["program"].isin(load_selection(dataset, selection)[0]["program"])
    return frame


def parameters(dataset: Dataset, programs: np.ndarray) -> dict[str, str]:
    """What the primitives of `programs` (int64 (n,)) decide differently: name for people -> the feature that holds it."""
    from tcl.features.flat import flat_features

    return differing(flat_features(dataset, programs, tasks=False))


def differing(flat: np.ndarray) -> dict[str, str]:
    """`parameters` of flat features (n, F) that are at hand."""
    from tcl.features.flat import FLAT_FEATURES

    if not len(flat):
        return {}
    differs = flat.max(axis=0) != flat.min(axis=0)
    return {name: f for f, d in zip(FLAT_FEATURES, differs, strict=True) if d and (name := parameter_name(f))}


def parameter(dataset: Dataset, programs: np.ndarray, feature: str) -> pd.Series:
    """The values of one of `parameters`, float32 (n,): tile sizes and depths as they are (features hold their logarithms), counts."""
    from tcl.features.flat import FLAT_FEATURES, flat_features

    return pd.Series(parameter_values(flat_features(dataset, programs, tasks=False)[:, FLAT_FEATURES.index(feature)], feature))


def parameter_values(values: np.ndarray, feature: str) -> np.ndarray:
    """A flat feature's column as people know it: features hold the logarithms of sizes and depths."""
    return values if feature.startswith("count_") else np.exp2(values) - feature.startswith("value_")


def parameter_name(feature: str) -> str:
    """Of a flat feature, for people; "" for one that says nothing to them."""
    first, _, rest = feature.partition("_")
    words = rest.replace("_", " ").replace("factor", "factor ")
    if first.startswith("split") and first[5:].isdigit():
        return "" if rest in ("role", "align") else f"split {int(first[5:]) + 1}: {words}"
    if first in ("spatial", "reduction"):
        return f"{first} tiles: {words}"
    if first == "value":
        return f"{words[:-2]} (largest)" if rest.endswith("_1") else ""
    if first == "count":
        return f"number of {words}"
    return f"{words}: {first}" if first == "extent" else ""


def map_figure(frame: pd.DataFrame, color: str, values: pd.Series | None = None, title: str = "") -> go.Figure:
    """The map: programs that were not sampled in grey below, the sampled ones coloured, failures as crosses.

    Args:
        frame: `explore_frame`'s, with coordinates. A point's `customdata` is its row in it.
        color: a key of `COLORS`, or the name of `values`.
        values: float (n,), the numbers of a primitive's parameter, aligned with `frame`.
    """
    figure = go.Figure()
    placed = frame["x"].notna().to_numpy()
    sampled = frame["sampled"].to_numpy() & placed
    rest = placed & ~sampled
    size = point_size(int(placed.sum()))
    points(figure, frame, np.flatnonzero(rest), f"not sampled ({rest.sum():,})", size * 0.85, palette.GREY)
    if color in ("task", "operator", "platforms", "failure"):
        column = {"task": "task_name", "operator": "operator", "platforms": "platforms", "failure": "error"}[color]
        _categories(figure, frame, sampled, column, size)
    else:
        failed = sampled & frame["latency_s"].isna().to_numpy() & (frame["measurements"].to_numpy() > 0)
        numbers = {"latency": frame["latency_s"], "label": frame["label"]}.get(color, values)
        if numbers is None:
            raise UserError(f"The map cannot be coloured by {color!r}.", hint=f"Choose one of: {', '.join(COLORS)}.")
        if color in ("latency", "label"):
            points(figure, frame, np.flatnonzero(failed), f"failed ({failed.sum():,})", size, palette.FAILED, symbol="x-thin")
            sampled = sampled & ~failed
        _numbers(figure, frame, np.flatnonzero(sampled), numbers.to_numpy(dtype=np.float64), color, size)
    return map_layout(figure, title)


def map_layout(figure: go.Figure, title: str = "", right: int = 84) -> go.Figure:
    """The house style of maps: no axes, equal scales, the legend below, `right` pixels for a colour bar."""
    figure.update_layout(
        template="none", dragmode="select", clickmode="event", uirevision="map", title=title or None,
        paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)",
        margin={"l": 4, "r": right, "t": 34 if title else 8, "b": 4}, hovermode="closest",
        legend={"orientation": "h", "y": 0, "yanchor": "top", "x": 0, "itemsizing": "constant", "tracegroupgap": 0},
    )  # fmt: skip
    blank = {"showgrid": False, "zeroline": False, "showticklabels": False, "ticks": "", "title": None}
    figure.update_xaxes(**blank)
    figure.update_yaxes(**blank, scaleanchor="x", scaleratio=1)
    return figure


def map_picture(dataset: Dataset, scope: str = EVERYTHING, platform: str | None = None, color: str = "latency") -> go.Figure:
    """The stored map as one figure, for notebooks and `tcl map --html`. Raises UserError where no map is stored."""
    stored = load_map(dataset, scope)
    if stored is None:
        raise UserError(f"There is no map of {scope!r} yet.", hint=f"Make it: tcl map {dataset.path} --scope {scope}")
    known = list(dataset.platforms())
    if platform is not None and platform not in known:
        raise UserError(f"{dataset.path} has no platform {platform!r}.", hint=f"It has: {', '.join(known)}.")
    platform = platform or (known[0] if known else None)
    frame = explore_frame(dataset, scope, platform, stored)
    values = None
    if color not in COLORS:
        programs = frame["program"].to_numpy()
        known_parameters = parameters(dataset, programs)
        if color not in known_parameters:
            raise UserError(f"There is nothing called {color!r} to colour by.", hint=f"Choose: {', '.join([*COLORS, *known_parameters])}.")
        values = parameter(dataset, programs, known_parameters[color])
    return map_figure(frame, color, values, title=f"{stored.about['n']:,} of {stored.about['of']:,} programs, {platform}, by {color}")


def within(shapes: Sequence[dict[str, Any]], x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Which points (n,) lie inside any of the outlines ({"box": [x0, x1, y0, y1]} or {"lasso": [[x, y], …]}): bool (n,)."""
    chosen = np.zeros(len(x), dtype=bool)
    for shape in shapes:
        if "box" in shape:
            x0, x1, y0, y1 = map(float, shape["box"])
            chosen |= (x >= min(x0, x1)) & (x <= max(x0, x1)) & (y >= min(y0, y1)) & (y <= max(y0, y1))
        elif "lasso" in shape:
            chosen |= _in_polygon(np.asarray(shape["lasso"], dtype=np.float64).reshape(-1, 2), x, y)
    return chosen


def latency_histogram(frame: pd.DataFrame, chosen: pd.DataFrame | None = None) -> go.Figure:
    """Latencies of all sampled programs in grey, of the chosen ones in colour, on a log axis."""
    figure = go.Figure()
    everything = np.log10(frame["latency_s"].dropna().to_numpy())
    if len(everything):
        low, high = float(everything.min()), float(everything.max())
        edges = np.linspace(low, high + 1e-9, 41) if high > low else np.array([low - 0.05, low + 0.05])
        centres = (edges[:-1] + edges[1:]) / 2
        spans = [f"{palette.latency_text(10**a)} to {palette.latency_text(10**b)}" for a, b in itertools.pairwise(edges)]
        hover = "%{y:,} programs, %{customdata}<extra></extra>"
        counts = np.histogram(everything, edges)[0]
        figure.add_bar(x=centres, y=counts, customdata=spans, hovertemplate=hover, marker_color=palette.GREY, name="all")
        if chosen is not None:
            part = np.histogram(np.log10(chosen["latency_s"].dropna().to_numpy()), edges)[0]
            figure.add_bar(x=centres, y=part, customdata=spans, hovertemplate=hover, marker_color=palette.CATEGORIES[0], name="selected")
        places, texts = palette.log_ticks(10**low, 10**high)
        axis = {"tickvals": places, "ticktext": texts}
    else:
        axis = {}
    figure.update_layout(barmode="overlay", bargap=0.05, showlegend=False, xaxis=axis)
    return plain(figure, x="latency (log)", y="programs")


def platform_figure(rows: pd.DataFrame) -> go.Figure:
    """Latencies of a few programs on every platform: `rows` has name, platform, latency_s, low_s, high_s (of the repeats)."""
    figure = go.Figure()
    factor, unit = palette.unit_of(rows["latency_s"].to_numpy(dtype=float)) if len(rows) else (1e3, "ms")
    for i, (name, part) in enumerate(rows.groupby("name", sort=False)):
        spread = {"array": (part["high_s"] - part["latency_s"]) * factor, "arrayminus": (part["latency_s"] - part["low_s"]) * factor}
        figure.add_bar(
            y=part["platform"], x=part["latency_s"] * factor, orientation="h", name=str(name), marker_color=palette.CATEGORIES[i],
            error_x={"type": "data", "symmetric": False, "thickness": 1, **spread},
            hovertemplate=f"%{{y}}: %{{x:.4g}} {unit}<extra>{name}</extra>",
        )  # fmt: skip
    plain(figure, x=f"latency, {unit}", y="")
    figure.update_layout(barmode="group", bargap=0.3, legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0})
    return figure


def plain(figure: go.Figure, x: str, y: str) -> go.Figure:
    """The house style of small charts: no box, faint grid, room for the labels only."""
    axis = {"gridcolor": palette.GRID, "zeroline": False, "automargin": True}
    named = {side: {**axis, "title": {"text": text, "standoff": 6} if text else None} for side, text in (("xaxis", x), ("yaxis", y))}
    axes = {name: named[name[:5]] for name in (*named, *figure.layout) if name[:5] in named}
    figure.update_layout(  # in one call: each costs milliseconds, and live charts and selections wait for it
        template="none", paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)", margin={"l": 8, "r": 12, "t": 12, "b": 8},
        uirevision="same", hovermode="closest", **axes,
    )  # fmt: skip
    return figure


def point_size(n: int) -> float:
    """Pixels of a point on a map of `n`."""
    return float(np.clip(260 / np.sqrt(max(n, 1)), 2.2, 8))


def points(figure: go.Figure, frame: pd.DataFrame, rows: np.ndarray, name: str, size: float, color: Any, **marker: Any) -> None:
    """Add the programs at `rows` (int (k,)) of a frame with x and y to a map; a point's `customdata` is its row."""
    if not len(rows):
        return
    line = {"width": 1.5, "color": color} if str(marker.get("symbol", "")).endswith("thin") else {"width": 0}
    figure.add_scattergl(
        x=frame["x"].to_numpy(dtype=np.float32)[rows], y=frame["y"].to_numpy(dtype=np.float32)[rows], mode="markers", name=name,
        marker={"size": size, "color": color, "line": line, **marker}, customdata=rows.astype(np.int32), hoverinfo="name",
        selected={"marker": {"opacity": 1}}, unselected={"marker": {"opacity": 0.12}},
    )  # fmt: skip


# -- inner workings --------------------------------------------------------------------------------------------------------


def _categories(figure: go.Figure, frame: pd.DataFrame, sampled: np.ndarray, column: str, size: float) -> None:
    values = frame[column].astype(str)
    counts = values[sampled].value_counts()
    shown = list(counts.index[:SHOWN_CATEGORIES])
    if len(counts) > SHOWN_CATEGORIES:
        others = sampled & ~values.isin(shown).to_numpy()
        points(figure, frame, np.flatnonzero(others), f"{len(counts) - len(shown)} others ({others.sum():,})", size, palette.OTHERS)
    for i, name in enumerate(shown):
        rows = np.flatnonzero(sampled & (values == name).to_numpy())
        text = {"": "succeeded" if column == "error" else "not measured"}.get(name, name)
        points(figure, frame, rows, f"{text} ({len(rows):,})", size, palette.CATEGORIES[i])


def _numbers(figure: go.Figure, frame: pd.DataFrame, rows: np.ndarray, values: np.ndarray, color: str, size: float) -> None:
    rows = rows[np.isfinite(values[rows])]
    if not len(rows):
        return
    # What matters lies on top: the fastest, the best, the largest.
    order = np.argsort(-values[rows] if color == "latency" else values[rows], kind="stable")
    rows = rows[order]
    shown = values[rows]
    logarithmic = color == "latency" or (color != "label" and shown.min() > 0 and shown.max() / max(shown.min(), 1e-12) > 20)
    bar: dict[str, Any] = {"thickness": 10, "outlinewidth": 0, "len": 0.6, "y": 0.98, "yanchor": "top", "x": 1.0, "ticklen": 3}
    if color == "latency":
        places, texts = palette.log_ticks(shown.min(), shown.max())
        bar |= {"tickvals": places, "ticktext": texts, "title": {"text": "latency"}}
    elif logarithmic:
        low, high = int(np.floor(np.log2(shown.min()))), int(np.ceil(np.log2(shown.max())))
        exponents = range(low, high + 1, max(1, (high - low) // 6))
        bar |= {"tickvals": [e * np.log10(2) for e in exponents], "ticktext": [f"{2.0**e:,.4g}" for e in exponents]}
        bar["title"] = {"text": color}
    else:
        bar["title"] = {"text": "label" if color == "label" else color}
    z = (np.log10(shown) if logarithmic else shown).astype(np.float32)
    low, high = (0.0, 1.0) if color == "label" else (float(z.min()), float(np.quantile(z, 0.99)) if color == "latency" else float(z.max()))
    scale = palette.FASTER_IS_BRIGHT if color == "latency" else palette.SEQUENTIAL
    points(figure, frame, rows, f"sampled ({len(rows):,})", size, z, colorscale=scale, cmin=low, cmax=max(high, low + 1e-6), colorbar=bar)
    figure.data[-1].showlegend = False  # its colour bar says it


def _platforms(labels: pd.DataFrame, programs: pd.Series) -> pd.Series:
    """Names of the platforms that each program was measured on, as one category ("a + b")."""
    names = list(labels["platform"].cat.categories) if len(labels) else []
    bits = np.zeros(len(programs), dtype=np.int64)
    place = pd.Index(programs)
    for i, name in enumerate(names):
        bits[place.get_indexer(labels.loc[labels["platform"] == name, "program"])] |= 1 << i
    codes, kinds = pd.factorize(bits)
    text = [" + ".join(n for i, n in enumerate(names) if kind >> i & 1) for kind in kinds]
    return pd.Series(pd.Categorical.from_codes(codes, text), index=programs.index)


def _in_polygon(corners: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Even-odd rule, vectorised over the points that lie in the polygon's box."""
    inside = np.zeros(len(x), dtype=bool)
    if len(corners) < 3:
        return inside
    (x0, y0), (x1, y1) = corners.min(axis=0), corners.max(axis=0)
    near = np.flatnonzero((x >= x0) & (x <= x1) & (y >= y0) & (y <= y1))
    px, py = x[near], y[near]
    odd = np.zeros(len(near), dtype=bool)
    for (ax, ay), (bx, by) in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        crosses = (ay > py) != (by > py)
        if ay != by:
            odd ^= crosses & (px < (bx - ax) * (py - ay) / (by - ay) + ax)
    inside[near] = odd
    return inside
