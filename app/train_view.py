"""The sections of the Train page: curves, ranks, errors, primitives, benchmarks. Each draws what trainings left on disk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
import pandas as pd
import streamlit as st

from app.bench_results import MINE, bench_results, choose_result, reproduce_bench, show_goals
from app.chart import chart
from app.links import explore_link, explore_query, opened_ids, remember_opened
from app.program_view import show_programs
from app.shared import choice, dataset_name
from app.train_runs import Run
from tcl.bench.models import summary as summarise
from tcl.programs.dataset import Dataset
from tcl.programs.types import format_id, parse_id
from tcl.training import outcome
from tcl.views import benchmarks, palette
from tcl.views import training as figures
from tcl.views.palette import latency_text
from tcl.workspace import workspace

WORST = 100
"""Assignments listed, the worst first."""
EXPLAINED = {
    "top1": "latency of the fastest program / latency of the one the model ranks first, pooled over assignments: 1 is perfect",
    "top5": "the same with the best of the five it ranks highest",
    "pairwise": "share of the pairs of programs of an assignment that it orders rightly: 0.5 is chance",
    "spearman": "rank correlation of scores and labels within an assignment, averaged",
}


def colors_of(runs: Sequence[Run]) -> dict[str, str]:
    return palette.colors_of(run.name for run in runs)


def results_table(runs: Sequence[Run], baseline: Run | None) -> None:
    """Test results of the chosen runs, with the difference to the pinned one."""
    frame = pd.DataFrame([run.row() for run in runs])
    if baseline is not None:
        pinned = baseline.row()
        for metric in ("pairwise", "top1"):
            of = pd.to_numeric(frame[metric]) - (pinned[metric] if pinned[metric] is not None else float("nan"))
            frame.insert(frame.columns.get_loc(metric) + 1, f"Δ {metric}", of)
        frame["run"] = [run.name + (" (baseline)" if run is baseline else "") for run in runs]
    short = {"top1": "top-1", "top5": "top-5", "pairwise": "pairwise", "spearman": "Spearman"}
    metrics = {m: st.column_config.NumberColumn(short[m], format="%.4f", help=text) for m, text in EXPLAINED.items()}
    deltas = {f"Δ {m}": st.column_config.NumberColumn(f"Δ {short[m]}", format="%+.4f", help="Minus the baseline's") for m in EXPLAINED}
    st.dataframe(
        frame, hide_index=True, placeholder="", alt="Results of the chosen trainings on their test parts",
        column_config=metrics | deltas | {
            "per epoch": st.column_config.NumberColumn("s / epoch", format="%.2f"),
            "seconds": st.column_config.NumberColumn("seconds", format="%.1f"),
            "trained on": st.column_config.NumberColumn(format="localized", help="Programs; one on two platforms counts twice"),
            "parameters": st.column_config.NumberColumn(format="localized"),
        },
    )  # fmt: skip
    tests = {run.scores.get("programs") for run in runs if run.scores.get("programs")}
    sets = {str(run.dataset) for run in runs if run.scores.get("programs")}
    if len(tests) > 1 or len(sets) > 1:
        st.caption(":orange[These runs were tested on different programs: their scores do not compare.] Same data, split and seed do.")


def curves_section(runs: Sequence[Run], baseline: Run | None) -> None:
    """Loss and validation score over epochs, live."""
    with_curves = {run.name: run.curves for run in runs}
    drawn = {name: frame for name, frame in with_curves.items() if len(frame)}
    levels = {run.name: run.scores for run in runs if run.name not in drawn and run.scores}
    colors = colors_of(runs)
    pinned = baseline.name if baseline is not None and baseline.name in drawn else None
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        names = {v: k for k, v in figures.METRICS.items() if k in ("top1", "top5", "pairwise", "spearman")}
        metric = names[choice("Score", list(names), "pairwise accuracy", "curve-metric")]
        against = choice("Against", ["epoch", "seconds"], "epoch", "curve-x")
    if not drawn and not levels:
        waits = any(run.alive for run in runs)
        st.caption("A curve begins when the first epoch has ended." if waits else "No epoch was finished.")
        return
    left, right = st.columns(2, gap="medium")
    with left:
        if drawn:
            figure = figures.curves_figure(drawn, "loss", colors, against=against, baseline=pinned)
            chart(figure, key=f"loss-{against}", height=300, alt="Training loss")
        else:
            st.caption("Trees have no epochs: no loss curve.")
    with right:
        values = {name: result.get(f"valid_{metric}") for name, result in levels.items()}
        figure = figures.curves_figure(drawn, f"valid_{metric}", colors, against=against, baseline=pinned, levels=values)
        chart(figure, key=f"valid-{metric}-{against}", height=300, alt=f"Validation {metric}")
    losses = {run.loss for run in runs if run.name in drawn}
    if len(losses) > 1:
        st.caption(f"Losses of different kinds ({', '.join(sorted(losses))}) do not compare; scores do.")
    if pinned and len(drawn) > 1:
        figure = figures.curves_figure(drawn, f"valid_{metric}", colors, against=against, baseline=pinned, difference=True)
        st.caption(f"Validation {figures.METRICS[metric]} minus that of **{pinned}** at the same epoch")
        chart(figure, key=f"difference-{metric}-{against}", height=220, alt=f"Validation {metric} minus the baseline's")


def ranks_section(runs: Sequence[Run], baseline: Run | None) -> None:
    """Predicted against measured rank of one assignment, of a run and of the baseline beside it."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        run, table = _chosen(runs, "ranks")
        if run is None or table is None:
            return
        labels = {_assignment(r): (r.task, r.platform) for r in table.itertuples()}
        label = st.selectbox("Assignment, the worst first", list(labels), key="ranks-assignment", on_change=forget_opened)
    task, platform = labels[label]
    shown = [run] + ([baseline] if baseline is not None and baseline.name != run.name else [])
    columns = st.columns(len(shown), gap="medium") if len(shown) > 1 else [st.container()]
    for column, one in zip(columns, shown, strict=True):
        with column:
            _rank_chart(one, task, platform)
    _opened(run)


def _rank_chart(run: Run, task: int, platform: str) -> None:
    programs = predictions_of(str(run.folder), run.stamp)
    mine = None if programs is None else programs[(programs["task"] == task) & (programs["platform"] == platform)].reset_index(drop=True)
    st.markdown(f"**{run.name}**")
    if mine is None or mine.empty:
        st.caption("This assignment is not in its test or validation part.")
        return
    row = next(r for r in assignments_of(str(run.folder), run.stamp).itertuples() if r.task == task and r.platform == platform)
    if pd.isna(row.best_s):
        st.caption(f"All {row.programs} programs of this assignment failed: there is no order to learn.")
        return
    picked = f"{row.picked_s / row.best_s:.2f} × the fastest" if pd.notna(row.picked_s) else "failed when it was measured"
    st.caption(
        f"Its choice is at measured rank **{row.picked_rank}** of {row.programs} ({picked}) · pairwise {_number(row.pairwise)} · "
        f"Spearman {_number(row.spearman)} · click a point to open the program"
    )
    key = f"ranks-{run.name}"

    def on_click() -> None:
        at = st.session_state[key].clicked
        if at is not None and int(at) < len(mine):
            remember_opened([format_id(int(mine["program"].iloc[int(at)]))])

    alt = f"Predicted against measured rank of {row.programs} programs"
    chart(figures.rank_figure(mine), key=key, height=420, alt=alt, on_click=on_click)


def errors_section(runs: Sequence[Run], baseline: Run | None) -> None:
    """Operators and assignments that a model ranks worst, with the programs behind them."""
    tables = {r.name: t for r in _scored(runs) if (t := _test_part(r)) is not None}
    if not tables:
        _nothing_scored()
        return
    names = {"top-1": "top1", "top-5": "top5", "pairwise accuracy": "pairwise", "Spearman's rho": "spearman"}
    metric = names[choice("By", list(names), "top-1", "errors-metric")]
    frame = figures.by_operator(tables, metric)
    chart(
        figures.operator_figure(frame, metric, colors_of(runs)), key=f"operators-{metric}",
        height=figures.bars_height(len(frame), len(tables)), alt=f"{metric} by operator",
    )  # fmt: skip
    run, table = _chosen(runs, "errors")
    if run is None or table is None:
        return
    known = dataset_name(run.dataset) if run.dataset else None
    rows = table.sort_values(metric, na_position="last").head(WORST).reset_index(drop=True)
    scores = {m: label for label, m in names.items() if m in (metric, "top1", "pairwise")}
    shown = pd.DataFrame(
        {
            "task": rows["name"], "platform": rows["platform"], **{label: rows[m] for m, label in scores.items()},
            "its choice": [latency_text(v) for v in rows["picked_s"]],
            "fastest": [latency_text(v) if pd.notna(v) else "none succeeded" for v in rows["best_s"]],
            "its rank": [f"{a} of {b}" for a, b in zip(rows["picked_rank"], rows["programs"], strict=True)],
        }
    )  # fmt: skip
    if baseline is not None and baseline.name in tables and baseline.name != run.name:
        other = tables[baseline.name].set_index(["task", "platform"])[metric]
        of = [other.get((t, p), float("nan")) for t, p in zip(rows["task"], rows["platform"], strict=True)]
        shown.insert(2, f"Δ {scores[metric]}", rows[metric] - pd.Series(of))
    if known:
        shown["programs"] = [
            explore_link(known, (int(b), int(p)), platform)
            for b, p, platform in zip(rows["best_program"], rows["picked_program"], rows["platform"], strict=True)
        ]
    st.caption(f"Assignments that **{run.name}** ranks worst; tick one to see its choice beside the fastest program")
    event = st.dataframe(
        shown, hide_index=True, height=min(38 + 35 * len(shown), 330), on_select="rerun", selection_mode="single-row",
        key=f"errors-{run.name}-{metric}", alt="The worst assignments",
        column_config={
            **{label: st.column_config.NumberColumn(format="%.3f") for label in scores.values()},
            f"Δ {scores[metric]}": st.column_config.NumberColumn(format="%+.3f", help="Minus the baseline's"),
            "its rank": st.column_config.TextColumn(help="Measured rank of the program that the model ranks first; 1 is the fastest"),
            "programs": st.column_config.LinkColumn(display_text="open in Explore", help="The fastest and the choice, side by side"),
            "task": st.column_config.TextColumn(width="medium"),
        },
    )  # fmt: skip
    if event.selection.rows and event.selection.rows[0] < len(rows):
        row = rows.iloc[event.selection.rows[0]]
        remember_opened(list(dict.fromkeys(format_id(int(p)) for p in (row["best_program"], row["picked_program"]))))
    _opened(run)


def primitives_section(runs: Sequence[Run]) -> None:
    """Permutation importance of the chosen runs, side by side."""
    tables = {run.name: pd.DataFrame(run.scores["importance"]) for run in runs if run.scores.get("importance")}
    if not tables:
        st.info(
            "No chosen run has been asked which primitives matter. A training does so at its end, unless it was stopped, had no test part, "
            "or ran with `--importance 0`; `tcl evaluate MODEL DATASET --importance 3` asks later.",
            icon=":material/info:",
        )
        return
    metric = {"pairwise accuracy": "pairwise", "top-1, mean": "top1"}[
        choice("By", ["pairwise accuracy", "top-1, mean"], "pairwise accuracy", "importance-metric")
    ]
    figure = figures.importance_figure(tables, metric, colors_of(runs))
    lines = max((len(t[t["changed"] > 0]) for t in tables.values()), default=0)
    chart(figure, key=f"importance-{metric}", height=figures.bars_height(lines, len(tables)), alt="Importance of primitives")
    st.caption(
        "The numbers of one kind of primitive are swapped among the programs of an assignment, and the model ranks again: what its "
        "ranking loses is what the primitive is worth to it. Bars within their spread of 0 mean nothing. Kinds that repeat each other's "
        "numbers share their worth. Primitives that are the same in all programs of each assignment are left out."
    )


def benchmarks_section() -> None:
    """The table of `tcl bench models`, and who wins where."""
    sources = {name: result for name, result in models_results().items() if result.get("summary")}
    if not sources:
        st.info(
            "No comparison of the models has been run here yet. It trains every model on every platform with every seed; stopped, it "
            "goes on where it was.",
            icon=":material/info:",
        )
        reproduce_bench({"bench": "models"})
        return
    names = {v: k for k, v in figures.METRICS.items()}
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        result = choose_result(sources, "bench-source")
        metric = names[choice("Metric", list(names), "top-1", "bench-metric")]
    lines = result["summary"]
    found = benchmarks.winners(lines, metric)
    for row in found:
        st.markdown(benchmarks.winner_text(row, metric))
    if not found:
        st.caption(f"No run has a {figures.METRICS[metric]}.")
        return
    table = benchmarks.benchmark_table(lines, metric)
    wide = {"_index": st.column_config.Column("model", width=130)}  # a model's whole name
    st.dataframe(table, column_config=wide, alt=f"{metric} of all models, mean and standard deviation over seeds")
    height = 110 + 90 * len(found)
    chart(benchmarks.benchmark_figure(lines, metric), key=f"bench-{metric}", height=height, alt=f"{metric} of all models")
    with st.expander("Size and speed, goals, machine", icon=":material/speed:"):
        columns = ["dataset", "platform", "model", "seeds", "parameters", "seconds_per_epoch_s", "programs_per_s"]
        frame = pd.DataFrame(lines)
        st.dataframe(frame[[c for c in columns if c in frame]], hide_index=True, alt="Size and speed of the models")
        show_goals(result)
        about = result.get("machine") or {}
        if about:
            st.caption(f"{about.get('processor')}, {about.get('cores')} cores, Python {about.get('python')}; {about.get('date')}")
    reproduce_bench(result)


# -- reading -----------------------------------------------------------------------------------------------------------------


@st.cache_data(max_entries=24, show_spinner=False)
def predictions_of(folder: str, stamp: str) -> pd.DataFrame | None:
    return outcome.read_table(folder, outcome.PREDICTIONS)


@st.cache_data(max_entries=24, show_spinner=False)
def assignments_of(folder: str, stamp: str) -> pd.DataFrame | None:
    return outcome.read_table(folder, outcome.ASSIGNMENTS)


def models_results() -> dict[str, dict[str, Any]]:
    """Results of `tcl bench models`; of one's own also what an unfinished run has."""
    found = bench_results("models")
    if any(name.startswith(MINE) for name in found):
        return found
    rows = []
    for file in sorted((workspace() / "bench" / "models").glob("*.json")):
        try:
            row = orjson.loads(file.read_bytes())
        except (OSError, orjson.JSONDecodeError):
            continue
        if isinstance(row, dict) and {"dataset", "platform", "model", "seed"} <= row.keys():
            rows.append(row)
    if rows:
        found = {f"{MINE}, unfinished": {"bench": "models", "summary": summarise(rows), "goals": [], "machine": {}}, **found}
    return found


def forget_opened() -> None:
    """Other programs are looked at now: those that were open belong to what was looked at before."""
    st.query_params.pop("open", None)


def _scored(runs: Sequence[Run]) -> list[Run]:
    return [run for run in runs if not run.alive and assignments_of(str(run.folder), run.stamp) is not None]


def _test_part(run: Run) -> pd.DataFrame | None:
    """Assignments of the test part; of the validation part where there is no test."""
    table = assignments_of(str(run.folder), run.stamp)
    if table is None or table.empty:
        return None
    return table[table["part"] == ("test" if (table["part"] == "test").any() else "valid")].reset_index(drop=True)


def _chosen(runs: Sequence[Run], key: str) -> tuple[Run | None, pd.DataFrame | None]:
    """The run that a section looks into, of those that have been scored, and its assignments."""
    scored = {run.name: run for run in _scored(runs)}
    if not scored:
        _nothing_scored()
        return None, None
    run = scored[st.selectbox("Run", list(scored), key=f"{key}-run", width=260, on_change=forget_opened)]
    table = _test_part(run)
    if table is not None and (table["part"] == "valid").all():
        st.caption("It has no test part: these are the tasks that its best epoch was chosen on.")
    return run, table


def _nothing_scored() -> None:
    st.info("None of the chosen runs has been scored yet: that comes at the end of a training.", icon=":material/info:")


def _opened(run: Run) -> None:
    """The programs that a click or a tick opened, if they are of the run's dataset."""
    ids, path = opened_ids(), run.dataset
    if not ids or path is None or not (path / "dataset.json").exists():
        return
    dataset = Dataset.open(path.resolve())
    known = dataset_name(path)
    if known:
        st.page_link("app_pages/explore.py", label="Open in Explore", icon=":material/scatter_plot:",
                     query_params=explore_query(known, [parse_id(i) for i in ids]))  # fmt: skip
    show_programs(str(dataset.path), dataset.version, ids)


def _assignment(row: Any) -> str:
    score = "all failed" if pd.isna(row.best_s) else f"top-1 {_number(row.top1)}, pairwise {_number(row.pairwise)}"
    return f"{row.name} on {row.platform} · {score} [{format_id(int(row.task))[-4:]}]"


def _number(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, int | float) and pd.notna(value) else "–"
