"""A knowledge base's folder, drawn: R[i, j], forgotten slices, agreement and transfer, moved programs, size and data; from plain files.

`tcl distill` writes them (`tcl.continual.sequence`); nothing here needs torch. R[i, j] is the top-1 score on platform j after platform i
was learned. A drop is the best score since a platform was learned minus the score now: positive is forgotten.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from tcl.views import palette
from tcl.views.explore import plain

CARD = "knowledge_base.json"
HURTS, FAR = 0.0, 0.5
"""Mean rank agreement below which a source is taken to hurt (what `tcl distill` leaves out, by the knowledge base's own ranking), and
below which it counts as far: our choice, the least agreement among the built-in platforms being about 0.8."""


@dataclass(frozen=True)
class KnowledgeBaseFiles:
    """What is known of a knowledge base without reading a weight. history: one entry a learned platform (`tcl.continual.sequence`)."""

    path: Path
    platforms: dict[str, dict[str, Any]]
    history: list[dict[str, Any]]
    about: dict[str, Any]

    @property
    def names(self) -> list[str]:
        return [h["platform"] for h in self.history]

    @property
    def summary(self) -> dict[str, Any]:
        """After the last platform; empty for a history without scores."""
        return self.history[-1].get("summary", {}) if self.history else {}

    def task(self, identity: str) -> dict[str, str]:
        """name and operator of a task (16 hex digits)."""
        return self.about.get("tasks", {}).get(identity, {"name": identity, "operator": ""})

    def movement(self, number: int) -> tuple[pd.DataFrame, dict[str, Any]] | None:
        """`tcl.continual.movement` of a platform by number; None where it was not kept."""
        import pyarrow.parquet as pq

        path = self.path / f"movement-{number}.parquet"
        if not path.exists():
            return None
        table = pq.read_table(path)
        return table.to_pandas(), json.loads((table.schema.metadata or {}).get(b"tcl", b"{}"))


def read(folder: Path) -> KnowledgeBaseFiles | None:
    """The knowledge base in a folder; None where there is none (yet), or it is not whole."""
    try:
        card = json.loads((folder / CARD).read_text())
        about = json.loads((folder / "about.json").read_text()) if (folder / "about.json").exists() else {}
        return KnowledgeBaseFiles(folder, dict(card["platforms"]), list(card["history"]), about)
    except (OSError, ValueError, KeyError, TypeError):
        return None


# -- R and its slices ------------------------------------------------------------------------------------------------------


def matrix(names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """R, float (T, T): rows[i] is platform -> scores after the i-th of `names`; NaN where not evaluated."""
    r = np.full((len(names), len(names)), np.nan)
    for i, row in enumerate(rows):
        for j, name in enumerate(names):
            value = (row.get(name) or {}).get("top1")
            r[i, j] = np.nan if value is None else value
    return r


def r_figure(names: Sequence[str], r: np.ndarray) -> go.Figure:
    """Heatmap of R, the first platform learned on top; what was not yet learned is blank."""
    text = [["" if np.isnan(v) else f"{v:.3f}" for v in row] for row in r]
    figure = go.Figure(
        go.Heatmap(
            z=r, x=list(names), y=[f"after {n}" for n in names], text=text, texttemplate="%{text}", colorscale=palette.SEQUENTIAL,
            zmin=0, zmax=1, xgap=2, ygap=2, hoverongaps=False, hovertemplate="%{y}, on %{x}: top-1 %{z:.3f}<extra></extra>",
            colorbar={"thickness": 10, "title": {"text": "top-1"}, "outlinewidth": 0},
        )
    )  # fmt: skip
    plain(figure, "", "")
    figure.update_xaxes(side="top", type="category", showgrid=False)
    figure.update_yaxes(autorange="reversed", type="category", showgrid=False)
    return figure


def drops(history: Sequence[Mapping[str, Any]], by: str) -> pd.DataFrame:
    """One row a (platform, slice) of the platforms before the last: platform, slice, best (top-1 since it was learned), after (which
    platform's learning left it so), last, drop, and by task program_then, program_now: the programs picked; worst first.

    by: "by_operator" or "by_task"."""
    names = [h["platform"] for h in history]
    found = []
    for j, name in enumerate(names[:-1]):
        rows = [h.get("row", {}).get(name) or {} for h in history]
        for slice_, last in (rows[-1].get(by) or {}).items():
            then = [(rows[i].get(by, {}).get(slice_), -i) for i in range(j, len(names) - 1)]
            then = [t for t in then if t[0] is not None]
            if not then or last is None:
                continue
            best, at = max(then)
            row = {"platform": name, "slice": slice_, "best": best, "after": names[-at], "last": last, "drop": best - last}
            if by == "by_task":
                row |= {"program_then": rows[-at].get("picked", {}).get(slice_), "program_now": rows[-1].get("picked", {}).get(slice_)}
            found.append(row)
    columns = ["platform", "slice", "best", "after", "last", "drop", *(["program_then", "program_now"] if by == "by_task" else [])]
    return pd.DataFrame(found, columns=columns).sort_values("drop", ascending=False, kind="stable", ignore_index=True)


def slices_figure(history: Sequence[Mapping[str, Any]]) -> go.Figure:
    """Heatmap platform x operator: top-1 now, coloured by how much was lost since the best (red) or gained since it was learned (blue).
    The last platform has nothing to lose yet."""
    names = [h["platform"] for h in history]
    now = {n: (history[-1].get("row", {}).get(n) or {}).get("by_operator", {}) for n in names}
    at_first = {h["platform"]: (h.get("row", {}).get(h["platform"]) or {}).get("by_operator", {}) for h in history}
    operators = sorted({o for row in now.values() for o in row})
    lost = drops(history, "by_operator").set_index(["platform", "slice"])["drop"].to_dict()
    z, text = np.full((len(names), len(operators)), np.nan), [[""] * len(operators) for _ in names]
    for i, name in enumerate(names):
        for j, operator in enumerate(operators):
            value = now[name].get(operator)
            if value is None:
                continue
            drop = lost.get((name, operator), 0.0)
            gain = value - (at_first[name].get(operator, value) or 0.0)
            z[i, j] = -drop if drop > 0 else gain
            text[i][j] = f"{value:.2f}" + (f"<br>{z[i, j]:+.2f}" if abs(z[i, j]) >= 0.005 else "")
    figure = go.Figure(
        go.Heatmap(
            z=z, x=operators, y=names, text=text, texttemplate="%{text}", zmin=-0.2, zmax=0.2, xgap=2, ygap=2, hoverongaps=False,
            colorscale=[[0, palette.FAILED], [0.5, "#b9bcc0"], [1, palette.CATEGORIES[0]]],
            colorbar={"thickness": 10, "title": {"text": "change"}, "outlinewidth": 0, "tickformat": "+.1f"},
            hovertemplate="%{y}, %{x}: change %{z:+.3f}<extra></extra>",
        )
    )  # fmt: skip
    plain(figure, "", "")
    figure.update_xaxes(side="top", type="category", showgrid=False)
    return figure.update_yaxes(autorange="reversed", type="category", showgrid=False)


# -- learning, live or from the history ------------------------------------------------------------------------------------


def losses(history: Sequence[Mapping[str, Any]], events: Sequence[Mapping[str, Any]] = ()) -> pd.DataFrame:
    """platform, phase ("learn", "scratch" or "consolidate"), epoch, loss: of the history, and of a job's "epoch" events for what it
    does not hold yet."""
    rows = []
    for entry in history:
        for phase, values in (("learn", entry["learned"].get("losses", [])), ("consolidate", entry["consolidated"].get("losses", []))):
            rows += [(entry["platform"], phase, i + 1, v) for i, v in enumerate(values)]
    finished = {h["platform"] for h in history}
    live = {
        (e["platform"], e["phase"], e["epoch"]): e.get("loss") for e in events
        if e.get("kind") == "epoch" and "phase" in e and e["platform"] not in finished
    }  # fmt: skip
    rows += [(*key, loss) for key, loss in live.items()]
    return pd.DataFrame(rows, columns=["platform", "phase", "epoch", "loss"])


def losses_figure(frame: pd.DataFrame) -> go.Figure:
    """Two small charts side by side: the loss of learning and of consolidating against epochs, one line a platform."""
    figure = make_subplots(1, 2, subplot_titles=("learn (active column)", "consolidate (into the knowledge base)"), horizontal_spacing=0.09)
    for i, name in enumerate(dict.fromkeys(frame["platform"])):
        color = palette.CATEGORIES[i % len(palette.CATEGORIES)]
        for column, phase in ((1, "learn"), (2, "consolidate")):
            rows = frame[(frame["platform"] == name) & (frame["phase"] == phase)].sort_values("epoch")
            if len(rows):
                figure.add_scatter(
                    x=rows["epoch"], y=rows["loss"], mode="lines+markers", name=name, legendgroup=name, showlegend=column == 1,
                    line={"color": color, "width": 2}, marker={"size": 4},
                    hovertemplate="epoch %{x}: %{y:.4f}<extra>%{fullData.name}</extra>",
                    row=1, col=column,
                )  # fmt: skip
    plain(figure, "epoch", "loss")
    figure.update_xaxes(title={"text": "epoch"}, rangemode="tozero", dtick=None)
    figure.update_yaxes(title={"text": ""})
    figure.update_layout(showlegend=True, legend={"orientation": "h", "y": -0.32, "yanchor": "top", "x": 0}, margin={"t": 28})
    return figure.update_annotations(font={"size": 12})


# -- agreement and transfer ------------------------------------------------------------------------------------------------


def verdict(agreement: float | None, gained: float | None = None) -> str:
    """In words: what was measured where it was, else what the rank agreement on shared programs lets expect."""
    if gained is not None and not np.isnan(gained):
        return "hurt" if gained < -0.01 else "helped" if gained > 0.01 else "no difference"
    if agreement is None or np.isnan(agreement):
        return "unknown: no shared programs"
    return "would hurt" if agreement < HURTS else "far: may not help" if agreement < FAR else "likely to help"


def pairs(order: Sequence[str], agreement: Sequence[Mapping[str, Any]], history: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """One row a (earlier source, target) of an order: source, target, shared_programs, spearman (of latencies on shared programs), as_is
    (the source's model, untouched, on the target: top-1), scratch and column (top-1 of the target's own programs alone, and with the
    knowledge base), gained (column less scratch, where this was the source that the column started from), verdict."""
    known = {frozenset((a["a"], a["b"])): a for a in agreement}
    entries = {h["platform"]: h["learned"] for h in history}
    rows = []
    for j, target in enumerate(order):
        learned = entries.get(target, {})
        for source in order[:j]:
            found = known.get(frozenset((source, target)), {})
            scratch = (learned.get("scratch") or {}).get("top1")
            column = (learned.get("score") or {}).get("top1")
            used = learned.get("nearest") == source
            gained = column - scratch if used and scratch is not None and column is not None else None
            rows.append(
                {
                    "source": source, "target": target, "shared_programs": found.get("shared_programs"), "spearman": found.get("spearman"),
                    "as_is": (learned.get("transfer") or {}).get(source, {}).get("top1"), "scratch": scratch, "column": column,
                    "gained": gained, "used": used, "verdict": verdict(found.get("spearman"), gained),
                }
            )  # fmt: skip
    columns = ["source", "target", "shared_programs", "spearman", "as_is", "scratch", "column", "gained", "used", "verdict"]
    frame = pd.DataFrame(rows, columns=columns)
    for name in ("shared_programs", "spearman", "as_is", "scratch", "column", "gained"):
        frame[name] = pd.to_numeric(frame[name]).astype(float)
    return frame


def warnings(frame: pd.DataFrame) -> list[str]:
    """Sentences on sources that would hurt, or did, from `pairs`."""
    said = []
    for row in frame.itertuples():
        if row.verdict == "would hurt":
            said.append(f"{row.source} ranks programs against {row.target} (Spearman {row.spearman:.2f}): as a source it would hurt.")
        elif row.verdict == "hurt":
            said.append(f"{row.target} learned from {row.source} lost {-row.gained:.3f} top-1 against learning from scratch.")
    return said


# -- before and after ------------------------------------------------------------------------------------------------------


def movement_figure(frame: pd.DataFrame, marked: int = 20) -> go.Figure:
    """The same programs before and after, on the same axes; coloured by how far they moved, the `marked` that moved most ringed.

    frame: rows of one model of `tcl.continual.movement`, in any order; a point's `customdata` is its row by position."""
    figure = make_subplots(1, 2, subplot_titles=("before", "after"), shared_yaxes=True, horizontal_spacing=0.02)
    far = frame["moved"].to_numpy(dtype=float)
    order = np.argsort(far, kind="stable")
    top = order[::-1][: min(marked, int((far > 1e-6).sum()))]
    high = max(float(np.quantile(far, 0.99)) if len(far) else 0.0, 1e-6)
    for column, end in ((1, "before"), (2, "after")):
        x, y = frame[f"x_{end}"].to_numpy(), frame[f"y_{end}"].to_numpy()
        figure.add_scattergl(
            x=x[order], y=y[order], mode="markers", showlegend=False, customdata=order,
            hovertemplate="moved %{marker.color:.2f}<extra></extra>",
            marker={
                "size": 5, "color": far[order], "colorscale": palette.SEQUENTIAL, "cmin": 0, "cmax": high, "opacity": 0.8,
                "showscale": column == 2, "colorbar": {"thickness": 10, "title": {"text": "moved"}, "outlinewidth": 0},
            },
            row=1, col=column,
        )  # fmt: skip
        figure.add_scattergl(
            x=x[top], y=y[top], mode="markers", name=f"the {len(top)} that moved most", legendgroup="most",
            showlegend=column == 1 and len(top) > 0, customdata=top, hoverinfo="skip",
            marker={"size": 11, "color": "rgba(0,0,0,0)", "line": {"width": 1.6, "color": palette.FAILED}},
            row=1, col=column,
        )  # fmt: skip
    plain(figure, "", "")
    figure.update_xaxes(showticklabels=False, showgrid=False, zeroline=False, matches="x", title=None)
    figure.update_yaxes(showticklabels=False, showgrid=False, zeroline=False, title=None)
    figure.update_layout(
        showlegend=True, legend={"orientation": "h", "y": -0.02, "yanchor": "top", "x": 0}, margin={"t": 26, "b": 8, "l": 8},
        hovermode="closest", clickmode="event",
    )  # fmt: skip
    return figure


# -- size and data ---------------------------------------------------------------------------------------------------------


def growth(history: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """What each method keeps and reads after 1, 2, … platforms: platforms, method, size_mb, programs (measured programs that learning
    the latest platform reads). Ours and fine-tuning read the new platform's only; joint training reads all again, and one model a
    platform keeps as many models. Sizes of the others follow from the network's own: no such model need exist."""
    rows = []
    measured = 0
    for n, entry in enumerate(history, start=1):
        size, new = entry["size_bytes"], entry["data"]["measured"]
        measured += new
        model, head = size.get("model"), size.get("head")
        rows.append((n, "ours (knowledge base and column)", size["knowledge_base"] + size["column"], new))
        if model and head:
            rows.append((n, "joint (multi-task: trunk and a head each)", model + (n - 1) * head, measured))
            rows.append((n, "one model a platform", model * n, new))
            rows.append((n, "fine-tuning", model, new))
    frame = pd.DataFrame(rows, columns=["platforms", "method", "size_mb", "programs"])
    frame["size_mb"] = frame["size_mb"].astype(float) / 1e6
    return frame


def growth_figure(frame: pd.DataFrame) -> go.Figure:
    """Size, and programs read to learn the latest platform, against the number of platforms."""
    titles = ("size, MB", "measured programs read for the latest platform")
    figure = make_subplots(1, 2, subplot_titles=titles, horizontal_spacing=0.09)
    for i, method in enumerate(dict.fromkeys(frame["method"])):
        rows = frame[frame["method"] == method]
        for column, value in ((1, "size_mb"), (2, "programs")):
            figure.add_scatter(
                x=rows["platforms"], y=rows[value], mode="lines+markers", name=method, legendgroup=method, showlegend=column == 1,
                line={"color": palette.CATEGORIES[i], "width": 3 if i == 0 else 1.8, "dash": ("solid", "dash", "dot", "dashdot")[i % 4]},
                hovertemplate="%{x} platforms: %{y:.3~g}<extra>%{fullData.name}</extra>", row=1, col=column,
            )  # fmt: skip
    plain(figure, "platforms", "")
    figure.update_xaxes(title={"text": "platforms"}, dtick=1)
    figure.update_yaxes(title={"text": ""}, rangemode="tozero")
    figure.update_layout(showlegend=True, legend={"orientation": "h", "y": -0.3, "yanchor": "top", "x": 0}, margin={"t": 28})
    return figure.update_annotations(font={"size": 12})


# -- benchmark -------------------------------------------------------------------------------------------------------------


BENCH_COLUMNS = {
    "target_top1": "target's top-1", "target_top5": "top-5", "target_pairwise": "pairs in order", "average": "average top-1",
    "forgetting": "forgetting",
}  # fmt: skip


def bench_table(result: Mapping[str, Any]) -> pd.DataFrame:
    """`tcl bench continual`'s summary for people: one row a method, best on top, "mean ± sd over seeds"; worst slice, size, runs."""
    rows = []
    for line in sorted(result.get("summary", []), key=lambda s: -(s.get("target_top1") or 0)):
        row: dict[str, Any] = {"method": line["method"]}
        for key, title in BENCH_COLUMNS.items():
            row[title] = mean_sd(line.get(key), line.get(f"{key}_sd"))
        rows.append(row | {"worst slice": mean_sd(line.get("worst_slice")), "MB": line.get("size_mb"), "runs": line.get("rows")})
    return pd.DataFrame(rows)


def bench_worst(result: Mapping[str, Any]) -> str:
    """Where each method of `tcl bench continual` that forgot lost most, as a sentence; empty where none forgot."""
    lost = [s for s in result.get("summary", []) if (s.get("worst_slice") or 0) > 0 and s.get("worst_where")]
    told = [f"of {s['method']} is {s['worst_where']}" for s in sorted(lost, key=lambda s: -s["worst_slice"])]
    return f"The worst slice {'; '.join(told)}." if told else ""


def bench_winner(result: Mapping[str, Any]) -> str:
    """One sentence: who has the highest target top-1, and whether the next is within one standard deviation."""
    lines = sorted((s for s in result.get("summary", []) if s.get("target_top1") is not None), key=lambda s: -s["target_top1"])
    if not lines:
        return "No method has a result yet."
    first = lines[0]
    text = f"Highest top-1 on the target: {first['method']}, {mean_sd(first['target_top1'], first.get('target_top1_sd'))}"
    if len(lines) > 1:
        gap, spread = (
            first["target_top1"] - lines[1]["target_top1"],
            max(first.get("target_top1_sd") or 0, lines[1].get("target_top1_sd") or 0),
        )
        text += f"; next {lines[1]['method']}, {mean_sd(lines[1]['target_top1'], lines[1].get('target_top1_sd'))}"
        text += " (within one standard deviation: no clear winner)" if gap <= spread else ""
    return text + "."


def mean_sd(mean: float | None, sd: float | None = None) -> str:
    if mean is None:
        return "–"
    return f"{mean:.3f}" + (f" ± {sd:.3f}" if sd is not None else "")
