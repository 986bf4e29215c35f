"""What a sampler picked, on the map and in words; and what its picks are worth, as learning curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from tcl.programs.types import format_id
from tcl.views import palette
from tcl.views.benchmarks import in_words
from tcl.views.explore import map_layout, plain, point_size, points

COLORS = {
    "score": "combined score", "representativeness": "representativeness", "diversity": "diversity", "uncertainty": "uncertainty",
    "round": "round",
}  # fmt: skip
"""What picked programs are coloured by."""
SHOWN = 40_000
"""At most so many programs are drawn: all picked ones, and of the rest as many as there is room for."""
METRICS = {"top1_mean": "top-1", "top5_mean": "top-5", "pairwise": "pairwise accuracy"}
"""Learning curves: means over networks or operators, then over platforms and seeds."""
APART = 0.008
"""Decades between two samplers' points of one share, on the curves' logarithmic axis."""
HOW = {
    "random": "drawn by chance: this sampler looks at nothing",
    "kmeans": "the program nearest the centre of its cluster",
    "kcenter": "the program farthest from all that were picked before it",
    "uncertainty": "one of the programs that the models disagree about most",
    "cdmpp": "the program nearest the centre of its cluster over all tasks",
    "balto": "far from what was picked before it, and predicted to be fast",
    "alt": "either uncertain or predicted to be fast, in turn",
    "typiclust": "the most typical program of its cluster",
    "probcover": "the program with most others within a fixed radius that no picked one covers",
}
"""Why a sampler picks, in a few words; RDU says it by its scores."""
BLIND = ("uncertainty", "alt")
"""Samplers that choose by chance until a model has judged the pool."""
COLD = "drawn by chance, because no model has judged the programs yet"
NEAR = 0.5
"""A program is close to another within this share of its task's spread (mean distance to the centre)."""


def place(programs: pd.DataFrame, coordinates: pd.DataFrame) -> pd.DataFrame:
    """A sampled pool (program, task, scores, order, round) with x and y (NaN where the map does not hold a program)."""
    return programs.merge(coordinates[["program", "x", "y"]], on="program", how="left")


def kept(pool: pd.DataFrame, selection: pd.DataFrame) -> pd.DataFrame:
    """A stored selection as if it had just been picked from `pool` (program, task): scores of picked programs only."""
    columns = [c for c in ("representativeness", "diversity", "uncertainty", "score", "order", "round") if c in selection]
    frame = pool[["program", "task"]].merge(selection[["program", *columns]], on="program", how="left")
    for name in ("representativeness", "diversity", "uncertainty", "score"):
        frame[name] = frame[name].astype(np.float32) if name in frame else np.float32(np.nan)
    frame["round"] = frame["round"].fillna(-1).astype(np.int64)
    order = frame["order"] if "order" in frame else pd.Series(np.where(frame["round"] >= 0, np.arange(len(frame)), np.nan))
    frame["order"] = order.fillna(-1).astype(np.int64)
    return frame


def drawn_rows(frame: pd.DataFrame, limit: int = SHOWN) -> tuple[np.ndarray, np.ndarray]:
    """Rows of picked and of other programs to draw (int arrays): those on the map, the others thinned at random beyond `limit`."""
    placed = frame["x"].notna().to_numpy()
    chosen = frame["round"].to_numpy() >= 0
    picked, rest = np.flatnonzero(placed & chosen), np.flatnonzero(placed & ~chosen)
    rng = np.random.default_rng(0)
    if len(picked) > limit:
        picked = np.sort(rng.choice(picked, limit, replace=False))
    room = max(limit - len(picked), limit // 4)
    if len(rest) > room:
        rest = np.sort(rng.choice(rest, room, replace=False))
    return picked, rest


def sample_figure(
    frame: pd.DataFrame, color: str, rounds_shown: int | None = None, everything: bool = False, row: int | None = None
) -> go.Figure:
    """A selection on the map: picked programs coloured, the rest grey.

    Args:
        frame: `place`'s. A point's `customdata` is its row.
        color: a key of `COLORS`.
        rounds_shown: the picks of this round (from 0) in colour, those of earlier rounds smaller, later ones not yet picked.
        everything: colour what was not picked by its score as well.
        row: a program to mark.
    """
    figure = go.Figure()
    picked, rest = drawn_rows(frame)
    size = point_size(len(picked) + len(rest))
    rounds = frame["round"].to_numpy()
    earlier = np.empty(0, np.int64)
    if rounds_shown is not None:
        later, earlier = picked[rounds[picked] > rounds_shown], picked[rounds[picked] < rounds_shown]
        rest, picked = np.concatenate([rest, later]), picked[rounds[picked] == rounds_shown]
    values = None if color == "round" else frame[color].to_numpy(dtype=np.float64)
    known = np.zeros(len(frame), bool) if values is None else np.isfinite(values)
    if everything and values is not None:
        judged = rest[known[rest]]
        _scored(figure, frame, judged, values, color, size, f"not picked ({len(judged):,})", opacity=0.35, bar=not known[picked].any())
        rest = rest[~known[rest]]
    points(figure, frame, rest, f"not picked ({len(rest):,})", size, palette.GREY)
    points(figure, frame, earlier, f"earlier rounds ({len(earlier):,})", size, palette.OTHERS)
    if values is None:
        for number in np.unique(rounds[picked]):
            rows = picked[rounds[picked] == number]
            color_of = palette.CATEGORIES[int(number) % len(palette.CATEGORIES)]
            points(figure, frame, rows, f"round {number + 1} ({len(rows):,})", size * 1.35, color_of)
    else:
        points(
            figure,
            frame,
            picked[~known[picked]],
            f"picked, without this score ({(~known[picked]).sum():,})",
            size * 1.35,
            palette.CATEGORIES[0],
        )
        _scored(figure, frame, picked[known[picked]], values, color, size * 1.35, f"picked ({known[picked].sum():,})")
    if row is not None and np.isfinite(frame["x"].iloc[row]):
        figure.add_scattergl(
            x=frame["x"].iloc[[row]], y=frame["y"].iloc[[row]], mode="markers", name="this one", hoverinfo="name",
            marker={"size": 16, "symbol": "circle-open", "color": palette.FAILED, "line": {"width": 3, "color": palette.FAILED}},
        )  # fmt: skip
    return map_layout(figure, right=12 if values is None else 64)


def _scored(
    figure: go.Figure,
    frame: pd.DataFrame,
    rows: np.ndarray,
    values: np.ndarray,
    color: str,
    size: float,
    name: str,
    bar: bool = True,
    **marker: Any,
) -> None:
    if not len(rows):
        return
    rows = rows[np.argsort(values[rows], kind="stable")]  # the highest on top
    look: dict[str, Any] = {
        "colorscale": palette.SEQUENTIAL,
        "cmin": 0.0,
        "cmax": float(max(1.0, np.nanmax(values))) if color != "score" else float(np.nanmax(values)),
    }
    if bar:
        look["colorbar"] = {"thickness": 10, "outlinewidth": 0, "len": 0.6, "y": 0.98, "yanchor": "top", "x": 1.0, "ticklen": 3}
    points(figure, frame, rows, name, size, values[rows].astype(np.float32), **look, **marker)


@dataclass(frozen=True)
class Why:
    """Why a program was picked or not. scores: one row a score (score, value, rank in its task as text); neighbours: the nearest
    picked programs of its task (program as hex digits, distance as a share of the task's spread, round, latency_s where known)."""

    sentence: str
    scores: pd.DataFrame
    neighbours: pd.DataFrame


def why(frame: pd.DataFrame, space: np.ndarray, row: int, sampler: str, latency_s: np.ndarray | None = None, nearest: int = 5) -> Why:
    """Explain the program at `row` of a sampled pool; space float32 (n, p), of the same rows, is where distances are taken."""
    mine = frame.iloc[row]
    rows = np.flatnonzero(frame["task"].to_numpy() == mine["task"])
    rounds = frame["round"].to_numpy()[rows]
    scores = []
    for column in ("representativeness", "diversity", "uncertainty", "score"):
        values = frame[column].to_numpy()[rows]
        known = np.isfinite(values)
        if known[rows == row].any():
            rank = f"{1 + int((values[known] > mine[column]).sum())} of {known.sum()}"
            only = not (known & (rounds < 0)).any() and (rounds < 0).any()  # a stored selection keeps the scores of its picks
            scores.append({"score": COLORS[column], "value": float(mine[column]), "rank": f"{rank} picked" if only else rank})
    part = space[rows]
    scale = float(np.linalg.norm(part - part.mean(axis=0), axis=1).mean())
    gap = np.linalg.norm(part - space[row], axis=1) / scale if scale > 0 else np.zeros(len(rows))
    others = np.flatnonzero((rounds >= 0) & (rows != row))
    near = others[np.argsort(gap[others], kind="stable")[:nearest]]
    at = rows[near]
    table = pd.DataFrame({
        "program": [format_id(int(i)) for i in frame["program"].to_numpy()[at]], "distance": gap[near],
        "round": rounds[near] + 1, "row": at,
    })  # fmt: skip
    if latency_s is not None:
        table["latency_s"] = latency_s[at]
    sentence = _sentence(mine, sampler, len(rows), int((rounds >= 0).sum()), int(frame["round"].max()), table)
    return Why(sentence, pd.DataFrame(scores, columns=["score", "value", "rank"]), table)


def _sentence(mine: pd.Series, sampler: str, of: int, share: int, rounds: int, near: pd.DataFrame) -> str:
    name = sampler.partition(":")[0]
    is_rdu = name.startswith("rdu")
    closest = f"{near['program'].iloc[0][:6]}… at {near['distance'].iloc[0]:.2f} of the task's spread" if len(near) else ""
    if mine["round"] >= 0:
        when = f" in round {mine['round'] + 1}" if rounds > 0 else ""
        reason = _reasons(mine) if is_rdu else COLD if name in BLIND and np.isnan(mine["score"]) else HOW.get(name, "")
        end = f"; the nearest other pick is {closest}" if closest else "; it is the only pick of its task"
        return f"One of {share} picked of {of} in its task{when}: {reason or 'its scores were not kept'}{end}."
    if not share:
        return f"Not picked, nor any other of the {of} programs of its task: the budget is smaller than the number of tasks."
    if len(near) and near["distance"].iloc[0] < NEAR and name != "random":
        return f"Not picked: a close one was ({closest}), so that measuring this one would teach little new."
    chance = "chance fell on others" if name == "random" else "others of its task scored higher" if is_rdu else "others came first"
    return f"Not picked, one of {of - share} of {of} in its task: {chance}; the nearest pick is {closest}."


def _reasons(mine: pd.Series) -> str:
    words = []
    for column, high, middle, low in (
        ("representativeness", "typical of its surroundings", "neither typical nor odd", "an odd one"),
        ("diversity", "far from all picked before it", "at some distance from those picked before it", "close to one picked before it"),
        ("uncertainty", "for all the models know it may be fast", "the models doubt that it is fast", "the models are sure it is slow"),
    ):
        value = mine[column]
        if np.isfinite(value):
            words.append(f"{high if value >= 2 / 3 else middle if value >= 1 / 3 else low} ({value:.2f})")
    return ", ".join(words)


def coverage_table(found: Mapping[str, Mapping[str, float]]) -> pd.DataFrame:
    """Sampler -> its coverage, for people: one row a sampler. Columns without any value are left out."""
    names = {
        "picked": "picked", "mean_distance": "mean distance to a pick", "clusters": "clusters hit", "assignments": "tasks hit",
        "regret": "regret",
    }  # fmt: skip
    frame = pd.DataFrame(found).T.rename(columns=names)
    return frame[[c for c in names.values() if c in frame and frame[c].notna().any()]]


def curve_rows(result: Mapping[str, Any], ablations: bool = False) -> pd.DataFrame:
    """The rows of a `tcl bench sampling` result, without RDU's ablations unless they are wanted."""
    frame = pd.DataFrame(list(result.get("rows", [])))
    if not ablations and len(frame):
        frame = _rivals(frame)
    return frame


def _rivals(frame: pd.DataFrame) -> pd.DataFrame:
    """Without RDU's ablations, which are no samplers of their own."""
    return frame[~frame["sampler"].str.match(r"rdu-[rdu]$")]


def curves_figure(frame: pd.DataFrame, metric: str) -> go.Figure:
    """Learning curves: score against the share of programs measured, a line a sampler, bars the spread over seeds; the score with all
    data as a dashed line. Of a single share: a row a sampler, the best on top. `frame` is `curve_rows`', `metric` a key of `METRICS`."""
    figure = go.Figure()
    curves = frame[frame["sampler"] != "all"]
    if curves["fraction"].nunique() == 1:
        return _one_share(frame, curves.sort_values(metric), metric)
    order = sorted(curves["sampler"].unique(), key=lambda s: (s != "rdu", s != "random", s))
    for i, name in enumerate(order):
        rows = curves[curves["sampler"] == name].sort_values("fraction")
        strong = name in ("rdu", "random")
        turn, place_of = divmod(i, len(palette.CATEGORIES))
        line = {"width": 3 if strong else 1.5, "color": palette.CATEGORIES[place_of], "dash": "dot" if turn else "solid"}
        beside = 10 ** (APART * (i - (len(order) - 1) / 2))  # else the bars of a share would hide each other
        figure.add_scatter(
            x=rows["fraction"] * 100 * beside, y=rows[metric], customdata=rows["fraction"] * 100,
            name=name, mode="lines+markers", line=line, marker={"size": 7 if strong else 5},
            error_y={"type": "data", "array": rows[f"{metric}_sd"], "thickness": 1, "width": 3},
            hovertemplate=f"{name}, %{{customdata:g}} %: %{{y:.4f}} ± %{{error_y.array:.4f}}<extra></extra>",
        )  # fmt: skip
    full = frame[frame["sampler"] == "all"]
    if len(full):
        value = float(full[metric].iloc[0])
        figure.add_hline(y=value, line={"dash": "dash", "width": 1.5, "color": palette.OTHERS}, annotation_text=f"all data: {value:.3f}",
                         annotation_position="top left")  # fmt: skip
    plain(figure, x="programs measured, %", y=METRICS[metric])
    ticks = sorted(curves["fraction"].unique())
    figure.update_xaxes(type="log", tickvals=[100 * t for t in ticks], ticktext=[f"{100 * t:g}" for t in ticks])
    figure.update_layout(legend={"orientation": "v", "x": 1.01, "y": 1}, margin={"r": 12})
    return figure


def _one_share(frame: pd.DataFrame, rows: pd.DataFrame, metric: str) -> go.Figure:
    """`curves_figure` where no curve can be drawn: the rows, worst first, upwards."""
    ours = rows["sampler"].str.startswith("rdu")
    figure = go.Figure(
        go.Scatter(
            x=rows[metric], y=rows["sampler"], mode="markers",
            marker={"size": 9, "color": np.where(ours, palette.CATEGORIES[1], palette.CATEGORIES[0])},
            error_x={"type": "data", "array": rows[f"{metric}_sd"], "thickness": 1.2, "width": 3, "color": palette.OTHERS},
            hovertemplate="%{y}: %{x:.4f} ± %{error_x.array:.4f}<extra></extra>",
        )
    )  # fmt: skip
    full = frame.loc[frame["sampler"] == "all", metric]
    if len(full):
        line = {"dash": "dash", "width": 1.5, "color": palette.OTHERS}
        figure.add_vline(x=float(full.iloc[0]), line=line, annotation_text=f"all data: {full.iloc[0]:.3f}")
    plain(figure, x=f"{METRICS[metric]} with {100 * rows['fraction'].iloc[0]:g} % of the programs measured (± sd over seeds)", y="")
    figure.update_yaxes(type="category")
    return figure.update_layout(margin={"t": 26})


def shares_table(frame: pd.DataFrame, metric: str) -> pd.DataFrame:
    """A row a sampler, a column a share of the programs, and the mean of the shares at which all of them were measured (the area under
    the learning curve, in steps); best mean first. `frame` is `curve_rows`'."""
    curves = frame[frame["sampler"] != "all"] if len(frame) else frame
    if curves.empty:
        return pd.DataFrame()
    table = curves.pivot(index="sampler", columns="fraction", values=metric)
    common = table.columns[table.notna().all()]
    table.columns = [f"{100 * f:g} %" for f in table.columns]
    if len(common) > 1:
        table["mean of " + in_words([f"{100 * f:g}" for f in common]) + " %"] = table[[f"{100 * f:g} %" for f in common]].mean(axis=1)
    return table.sort_values(table.columns[-1], ascending=False)


def winner(frame: pd.DataFrame, metric: str = "top1_mean", at: float = 0.1) -> str | None:
    """The sampler with the best mean at the fraction nearest `at`; None without rows."""
    here = _at(frame, at)
    return None if here.empty else str(here.sort_values(metric, ascending=False)["sampler"].iloc[0])


def verdict(frame: pd.DataFrame, metric: str = "top1_mean", at: float = 0.1) -> str:
    """Who wins at the fraction nearest `at`, as sentences in Markdown; and who leads over all shares, where several were measured."""
    here = _at(frame, at)
    if here.empty:
        return "No sampler has been measured yet."
    rows = here.set_index("sampler").sort_values(metric, ascending=False)
    best, label = str(rows.index[0]), METRICS[metric]

    def told(name: str) -> str:
        return f"{name} {rows.loc[name, metric]:.3f} ± {rows.loc[name, f'{metric}_sd']:.3f}"

    near = [n for n in rows.index[1:] if rows.loc[best, metric] - rows.loc[n, metric] <= max(rows.loc[[best, n], f"{metric}_sd"])]
    rest = [told(name) for name in dict.fromkeys([*(n for n in ("rdu", "random") if n in rows.index), *rows.index[1:2]]) if name != best]
    share, ahead = 100 * here["fraction"].iloc[0], "is ahead" if near else "wins"
    text = f"At {share:g} % of the programs **{best} {ahead}**: {label} {told(best).removeprefix(best + ' ')}"
    text += f", against {', '.join(rest)}" if rest else ""
    full = frame[frame["sampler"] == "all"]
    text += f"; with all data {full[metric].iloc[0]:.3f}." if len(full) else "."
    if near:
        text += f" The spread over seeds does not tell {in_words(near)} from it."
    if "rdu" in rows.index and best != "rdu":
        text += " **RDU does not win here.**"
    column = metric.removesuffix("_mean")
    for name in dict.fromkeys(n for n in ("rdu", best) if n in rows.index and n != "random"):
        gain, p = rows.loc[name].get(f"{column}_gain"), rows.loc[name].get(f"{column}_p")
        if gain is not None and p is not None and np.isfinite(gain):
            low, high = rows.loc[name, f"{column}_gain_low"], rows.loc[name, f"{column}_gain_high"]
            sure = "better" if low > 0 else "just about better" if p < 0.05 else "not shown to be better"
            text += (
                f" {name} is {sure} than random task by task ({gain:+.4f}, 95 % interval {low:+.4f} to {high:+.4f}, one-sided p = {p:.3f})."
            )
    table = shares_table(_rivals(frame), metric)
    if len(table) > 1 and (mean := str(table.columns[-1])).startswith("mean"):
        means = table[mean]
        first = str(means.index[0])
        rest = [n for n in means.index if n in ("rdu", "random", *means.index[1:2]) and n != first]
        text += f" As the {mean}, {first} leads with {means[first]:.3f}; {in_words([f'{n} {means[n]:.3f}' for n in rest])}."
    return text


def _at(frame: pd.DataFrame, fraction: float) -> pd.DataFrame:
    if frame.empty:
        return frame
    rows: pd.DataFrame = frame[frame["sampler"] != "all"]
    if rows.empty:
        return rows
    fractions: Sequence[float] = rows["fraction"].unique()
    nearest = min(fractions, key=lambda f: abs(np.log(f / fraction)))
    return _rivals(rows[rows["fraction"] == nearest])
