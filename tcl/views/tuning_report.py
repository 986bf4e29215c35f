"""A tuning run, or several beside each other, as one HTML file that needs nothing else: figures inline, no network, no scripts but the
charts' own library.

    Path("report.html").write_text(report([Recorded("xgb", command, events, result)]))
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from html import escape
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from tcl.progress import format_seconds
from tcl.views import palette, tuning, tuning_model, tuning_runs, tuning_time
from tcl.views.palette import latency_text
from tcl.views.schedule import steps_of

INK = "#333"
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 64rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.6rem } h2 { font-size: 1.25rem; margin-top: 2.5rem; border-top: 1px solid #ddd; padding-top: 1rem }
h3 { font-size: 1rem; margin: 1.5rem 0 .5rem } table { border-collapse: collapse; margin: .5rem 0 }
th, td { text-align: left; padding: .2rem .9rem .2rem 0; border-bottom: 1px solid #eee; vertical-align: top }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums } pre { background: #f5f5f5; padding: .7rem; overflow-x: auto }
.wide { overflow-x: auto } .note { color: #666; font-size: .9rem } summary { cursor: pointer }
"""


@dataclass(frozen=True)
class Recorded:
    """What a run left behind. name: for people; command: the line that repeats it; created: seconds since 1970, 0 where unknown."""

    name: str
    command: str
    events: Sequence[Mapping[str, Any]]
    result: Mapping[str, Any] = field(default_factory=dict)
    created: float = 0.0

    def about(self, key: str) -> Any:
        """Of the result, or of what the run told at its start; None where neither says."""
        told = next((e for e in self.events if e.get("kind") == "about"), {})
        return self.result.get(key) if self.result.get(key) is not None else told.get(key)


def report(runs: Sequence[Recorded], baseline: str | None = None, title: str = "") -> str:
    """One HTML document. baseline: the name of the run that the others are compared with."""
    title = title or ", ".join(dict.fromkeys(str(r.about("subject") or r.name) for r in runs))
    body = [f"<h1>Tuning: {escape(title)}</h1>"]
    if len(runs) > 1:
        body += _beside(runs, baseline)
    for run in runs:
        body += _one(run, heading=len(runs) > 1)
    body.append('<p class="note">Latencies are medians of repeated runs. '
                f"Written on {datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC.</p>")  # fmt: skip
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>Tuning: {escape(title)}</title><style>{STYLE}</style><script>{get_plotlyjs()}</script></head>\n<body>"
        + "\n".join(body)
        + "</body></html>\n"
    )


def _beside(runs: Sequence[Recorded], baseline: str | None) -> list[str]:
    curves = {r.name: tuning_runs.curve(r.events) for r in runs}
    colors = palette.colors_of(curves)
    pinned = baseline if baseline in curves else None
    parts = ["<h2>All runs</h2>"]
    for against in tuning_runs.AGAINST:
        parts.append(_figure(tuning_runs.curves_figure(curves, colors, against=against, baseline=pinned), 380))
    if pinned:
        parts.append(f"<h3>Times as fast as {escape(pinned)}</h3>")
        parts.append(_figure(tuning_runs.curves_figure(curves, colors, against="seconds", baseline=pinned, relative=True), 260))
    frame = tuning_runs.comparison(curves, pinned, {r.name: r.result.get("best_latency_s") for r in runs})
    names = {
        "run": "run", "trials": "programs", "seconds": "search, s", "best_s": "best", "final_s": "final", "ratio": "× baseline",
        "reach_trials": "even after, programs", "reach_seconds": "even after, s", "times": "times sooner",
    }  # fmt: skip
    for column in ("best_s", "final_s"):
        frame[column] = palette.latency_texts(frame[column])
    parts.append(_table(frame.rename(columns=names)))
    return parts


def _one(run: Recorded, *, heading: bool) -> list[str]:
    result = run.result
    frame, tasks = tuning.measured(run.events), tuning.tasks(run.events)
    weights = tuning.weights_of(tasks)
    best = tuning.best_so_far(frame, weights).dropna()
    best_s = result.get("best_latency_s") or (float(best.iloc[-1]) if len(best) else None)
    told = {**tuning.last(run.events, "baseline"), **result}
    references = {label: told[key] for key, label in tuning.REFERENCES.items() if told.get(key)}
    parts = [f"<h2>{escape(run.name)}</h2>" if heading else "", _facts(run, frame, best_s, references)]
    if frame.empty:
        return [*parts, "<p>Nothing was measured.</p>"]
    parts.append("<h3>Best latency</h3>")
    if weights and result.get("best_latency_s"):
        references = {"tuned, run as one": result["best_latency_s"]} | references
    parts += [_figure(tuning.best_figure(frame, against, references, weights), 360) for against in ("trials", "seconds")]
    parts += _tasks(run, tasks)
    spent = tuning_time.spent(run.events)
    if spent:
        parts += ["<h3>Where the time went</h3>", _figure(tuning_time.time_figure({"": spent}), 170)]
        rows = tuning_time.time_table(spent).assign(share=lambda t: [f"{v:.1%}" for v in t["share"]])
        parts.append(_table(rows.rename(columns={"what": "what is in it"})))
    learned = tuning_model.learning(frame)
    if len(learned):
        parts.append("<h3>What the cost model learned</h3>")
        parts.append('<p class="note">Rank correlation of score and speed within each batch (1 all in the right order, 0 chance), '
                     "and scores against what was measured then.</p>")  # fmt: skip
        parts += [_figure(tuning_model.learning_figure({"": learned}, {"": palette.CATEGORIES[0]}), 260),
                  _figure(tuning.predicted_figure(frame), 320)]  # fmt: skip
    return [*parts, *_schedules(run)]


def _facts(run: Recorded, frame: pd.DataFrame, best_s: float | None, references: Mapping[str, float]) -> str:
    failed = ", ".join(f"{n} {kind.replace('_', ' ')}" for kind, n in tuning.failures(frame).items()) or "none"
    rows: list[tuple[str, str]] = [("Best latency", latency_text(best_s) if best_s else "none")]
    rows += [(name, f"{latency_text(v)}" + (f", {v / best_s:.2f} × the best" if best_s else "")) for name, v in references.items()]
    if "correct" in run.result:
        rows.append(("Output", "correct: compared with NumPy or PyTorch" if run.result["correct"] else "WRONG, or nothing was found"))
    rows.append(("Programs measured", f"{len(frame):,}; failed: {failed}"))
    if run.about("seconds"):
        rows.append(("Took", format_seconds(run.about("seconds"))))
    method = [str(run.about(key)) for key in ("strategy", "cost_model") if run.about(key)]
    rows.append(("Search, cost model", ", ".join(method) + f", seed {run.about('seed')}" if method else "not recorded"))
    threads = f", {run.about('threads')} threads" if run.about("threads") else ""
    rows.append(("Machine", f"{run.about('machine') or 'not recorded'}{threads}; platform {run.about('platform') or 'not recorded'}"))
    versions = run.about("versions") or {}
    rows.append(("Versions", ", ".join(f"{name} {number}" for name, number in versions.items()) or "not recorded"))
    if run.created:
        rows.append(("Started", f"{datetime.fromtimestamp(run.created, timezone.utc):%Y-%m-%d %H:%M} UTC"))
    cells = "".join(f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in rows)
    return f"<table>{cells}</table><p>Repeat it:</p><pre>{escape(run.command)}</pre>"


def _tasks(run: Recorded, tasks: pd.DataFrame) -> list[str]:
    roof = run.result.get("roofline") or tuning.last(run.events, "roofline")
    table = tuning.held_against(tasks, roof, run.result.get("roofline_share"))
    shown = pd.DataFrame({
        "task": table["name"], "operator": table["operator"],
        "share of time": [f"{v:.1%}" if pd.notna(v) else "" for v in table["share"]],
        "best": palette.latency_texts(table["best_s"]),
        "GFLOP/s": [f"{v:,.1f}" if pd.notna(v) else "" for v in table["gflops"]],
        "of roofline": [f"{v:.1%}" if pd.notna(v) else "" for v in table["roofline"]],
        "programs": table["trials"], "times in it": table["weight"],
    })  # fmt: skip
    words = ""
    if roof:
        words = (f'<p class="note">Roofline: {roof["flops"] / 1e9:,.0f} GFLOP/s and {roof["bandwidth"] / 1e9:,.1f} GB/s to memory, '
                 "attained on this machine. A task that stays in cache may be above 100 %.</p>")  # fmt: skip
    return ["<h3>Tasks</h3>", _table(shown), words]


def _schedules(run: Recorded) -> list[str]:
    bests = [e for e in run.events if e.get("kind") == "best"]
    if not bests:
        return []
    parts = ["<h3>The best schedules, primitive by primitive</h3>"]
    for best in bests:
        steps = steps_of(best["schedule"], best["format"], best["operator"], best["extents"])
        items = "".join(f"<li>{escape(step.text)}</li>" for step in steps)
        head = f"{escape(best['name'])}: {latency_text(best['latency_s'])}, program {escape(best['program'])}, {len(steps)} primitives"
        parts.append(f"<details{' open' if len(bests) == 1 else ''}><summary>{head}</summary><ol>{items}</ol></details>")
    return parts


def _figure(figure: go.Figure, height: int) -> str:
    shown = go.Figure(figure).update_layout(height=height, font={"color": INK, "size": 12})
    return shown.to_html(full_html=False, include_plotlyjs=False, config={"displaylogo": False, "responsive": True})


def _table(frame: pd.DataFrame) -> str:
    numeric = {c for c in frame.columns if pd.api.types.is_numeric_dtype(frame[c])}
    head = "".join(f"<th{_right(c in numeric)}>{escape(str(c))}</th>" for c in frame.columns)
    rows = "".join(
        "<tr>" + "".join(f"<td{_right(c in numeric)}>{escape(_text(v))}</td>" for c, v in zip(frame.columns, row, strict=True)) + "</tr>"
        for row in _rows(frame)
    )
    return f'<div class="wide"><table><tr>{head}</tr>{rows}</table></div>'


def _rows(frame: pd.DataFrame) -> Iterable[tuple[Any, ...]]:
    return frame.itertuples(index=False, name=None)


def _right(number: bool) -> str:
    return ' class="n"' if number else ""


def _text(value: Any) -> str:
    if isinstance(value, float):
        return "" if pd.isna(value) else f"{value:,.0f}" if value.is_integer() else f"{value:,.4g}"
    return "" if value is None else str(value)
