"""The Tune page's sections: curves of several runs, tasks, where the time went, what the model learned, the best schedules."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import streamlit as st

from app.chart import chart
from app.job_view import tuning_numbers, tuning_waits
from app.program_view import MARKS
from app.shared import details_of, reproduce, show_error
from app.tune_runs import Run
from tcl.errors import UserError
from tcl.programs.dataset import MANIFEST, Dataset
from tcl.programs.types import parse_id
from tcl.tuning.roofline import known_roofline
from tcl.tuning.targets import this_machine
from tcl.views import tuning, tuning_model, tuning_runs, tuning_time
from tcl.views.palette import colors_of, latency_text, latency_texts
from tcl.views.schedule import Step, difference, steps_of, steps_table


def curves_section(runs: Sequence[Run], baseline: Run | None, run: Run, against: str, relative: bool) -> None:
    """The run's figures, and the best latencies of all chosen ones."""
    if run.told.frame.empty:
        tuning_waits(run.job)
    else:
        tuning_numbers(run.job, run.told.frame, len(run.told.tasks) > 1, run.told.curve["best_s"])
    with_trials = [r for r in runs if len(r.told.frame)]
    if not with_trials:
        return
    subjects = {subject_of(r) for r in runs} - {""}  # a run that begins does not know its subject yet
    told = run.told.last("baseline") | run.result
    references = {label: told.get(key) for key, label in tuning.REFERENCES.items()} if len(subjects) == 1 else {}
    if len(runs) == 1:  # of several, each curve has its name, though one alone has begun
        (only,) = runs
        if (weights := tuning.weights_of(only.told.tasks)) and told.get("best_latency_s"):
            references = {"tuned, run as one": told["best_latency_s"]} | references
        figure = tuning.best_figure(only.told.frame, against, references, weights)
        chart(figure, key=f"best-{only.id}-{against}", height=360, alt=f"Best latency against {against}")
        return
    curves = {r.name: r.told.curve for r in with_trials}
    pinned = baseline.name if baseline is not None and baseline.name in curves and len(subjects) == 1 else None
    figure = tuning_runs.curves_figure(
        curves, colors_of(r.name for r in runs), against=against, baseline=pinned, relative=relative and pinned is not None,
        references=references,
    )  # fmt: skip
    chart(figure, key=f"curves-{against}-{relative}", height=380, alt=f"Best latencies of {len(curves)} runs against {against}")
    if len(subjects) > 1:
        st.caption(f":orange[These runs tune different things ({', '.join(sorted(subjects))}): their latencies do not compare.]")
    elif len({r.told.last("about").get("platform") or r.result.get("platform") for r in with_trials}) > 1:
        st.caption(":orange[These runs were measured on different platforms: their latencies do not compare.]")
    finals_table(with_trials, pinned)


def finals_table(runs: Sequence[Run], pinned: str | None) -> None:
    """What each run ended with, and how it stands to the pinned one."""
    finals = {r.name: r.result.get("best_latency_s") for r in runs}
    table = tuning_runs.comparison({r.name: r.told.curve for r in runs}, pinned, finals)
    table.insert(1, "state", [r.state for r in runs])
    table["best_s"], table["final_s"] = latency_texts(table["best_s"]), latency_texts(table["final_s"])
    table["run"] = [("baseline: " if r.name == pinned else "") + r.name for r in runs]
    number = st.column_config.NumberColumn
    st.dataframe(
        table, hide_index=True, placeholder="", alt="The chosen runs and how they ended",
        column_config={
            "run": st.column_config.TextColumn(width=230),
            "best_s": st.column_config.TextColumn("best", help="Fastest while searching; of a network the weighted sum over its tasks"),
            "final_s": st.column_config.TextColumn("final", help="Measured again at the end; of a network the whole, run as one"),
            "trials": number("programs"), "seconds": number("search, s", format="%.1f"),
            "ratio": number("× baseline", format="%.3f", help="The baseline's latency / this latency, at the end: above 1 is faster"),
            "reach_trials": number("even after", format="%d", help="Programs measured until it was as fast as the baseline's best"),
            "reach_seconds": number("even, s", format="%.1f", help="Seconds of search until then"),
            "times": number("× sooner", format="%.2f", help="The baseline's seconds to its best / this run's to the same"),
        },
    )  # fmt: skip


def tasks_section(run: Run) -> None:
    """One row a task: how fast, and how much of the machine's peak that is."""
    roof = roofline_of(run)
    table = tuning.held_against(run.told.tasks, roof, run.result.get("roofline_share"))
    if table.empty:
        st.caption("The tasks appear when the search begins.")
        return
    table = table.assign(best=latency_texts(table["best_s"]))
    number = st.column_config.NumberColumn
    st.dataframe(
        table[["name", "operator", "share", "best", "gflops", "roofline", "trials", "weight"]], hide_index=True, alt="Tasks of the run",
        height="auto" if len(table) < 12 else 460, placeholder="",
        column_config={
            "share": st.column_config.ProgressColumn("share of time", format="percent", min_value=0, max_value=1),
            "gflops": number("GFLOP/s", format="%.1f"),
            "roofline": number("of roofline", format="percent", help="Least time at the machine's peaks / best latency"),
            "weight": number("times in it", format="%d"), "trials": number("programs", format="%d"),
        },
    )  # fmt: skip
    if roof:
        st.caption(
            f"Roofline: {roof['flops'] / 1e9:,.0f} GFLOP/s and {roof['bandwidth'] / 1e9:,.1f} GB/s to memory, the most that was attained "
            "in large matrix products and sums. A task that stays in cache may be above 100 %."
        )
        threads = int(roof.get("threads") or this_machine().cores)
        if not run.shipped and roof.get("machine", this_machine().slug) == this_machine().slug:
            with st.expander("Measure the peaks again", icon=":material/terminal:"):
                st.caption("While nothing else runs; the higher value of each counts.")
                reproduce("roofline", "--threads", str(threads), "--again")


def roofline_of(run: Run) -> dict[str, Any] | None:
    """The peaks of the machine that the run was measured on: those known now where it is this one, else as the run recorded them."""
    told = run.result.get("roofline") or run.told.last("roofline")
    if not told:
        return None
    if told.get("machine") == this_machine().slug and (known := known_roofline(int(told["threads"]))):
        return known.told()
    return dict(told)


def time_section(runs: Sequence[Run]) -> None:
    """Where the time of each run went."""
    spent = {r.name: s for r in runs if (s := tuning_time.spent(r.told.events))}
    if not spent:
        st.caption("Told after the first batch.")
        return
    share = st.segmented_control("Of", ["seconds", "per cent"], default="seconds", key="time-unit", label_visibility="collapsed")
    figure = tuning_time.time_figure(spent, share=share == "per cent")
    chart(figure, key=f"time-{share}", height=110 + 46 * len(spent), alt="Where the time went, one bar a run")
    if len(spent) == 1:
        table = tuning_time.time_table(next(iter(spent.values())))
        st.dataframe(
            table, hide_index=True, alt="Where the time went",
            column_config={
                "part": st.column_config.TextColumn(width=90), "seconds": st.column_config.NumberColumn(format="%.2f", width=70),
                "share": st.column_config.NumberColumn(format="percent", width=70),
                "what": st.column_config.TextColumn("what is in it"),
            },
        )  # fmt: skip


def model_section(runs: Sequence[Run], run: Run) -> None:
    """Whether the scores rank what is measured then, and whether they do so better with time."""
    learned = {r.name: tuning_model.learning(r.told.frame) for r in runs}
    learned = {name: rows for name, rows in learned.items() if len(rows)}
    left, right = st.columns(2, gap="medium")
    with left:
        st.caption("Rank correlation of score and speed within each batch: 1 all in the right order, 0 chance. A batch holds the best of "
                   "thousands, which differ little: their order is the hardest part.")  # fmt: skip
        if learned:
            figure = tuning_model.learning_figure(learned, colors_of(r.name for r in runs))
            chart(figure, key="learning", height=300, alt="Rank correlation, each batch")
        else:
            st.caption("None yet: it takes a batch of programs that the cost model chose.")
    with right:
        st.caption(f"**{run.name}**: scores against what was measured then, the newest dark")
        if run.told.frame["predicted"].notna().sum() > 4:
            chart(tuning.predicted_figure(run.told.frame), key=f"pred-{run.id}", height=300, alt="Predicted score against measured latency")
        else:
            st.caption("No program of this run was chosen by a model.")
    medians = tuning_model.chosen_against_random(run.told.frame)
    if medians:
        st.caption(
            f"Median latency: {latency_text(medians['chosen'])} of the programs that the model chose, {latency_text(medians['random'])} of "
            f"those drawn at random: {medians['random'] / medians['chosen']:.2f} ×."
        )


def schedule_section(run: Run, baseline: Run | None) -> None:
    """The fastest program of a task, primitive by primitive; beside the baseline's where it tuned the same task."""
    bests = {e["task"]: e for e in run.told.events if e.get("kind") == "best"}
    names = dict(zip(run.told.tasks["task"], run.told.tasks["name"], strict=True))
    if not names:
        st.caption("There is no program yet.")
        return
    task = st.selectbox("Task", list(names), key="schedule-task", format_func=names.get) if len(names) > 1 else next(iter(names))
    found = explained(run, task, bests.get(task))
    if found is None:
        st.caption("The schedule is told when the run ends." if run.alive else "This recording does not hold its schedules.")
        return
    identity, latency_s, steps = found
    st.markdown(f"Program `{identity}`, **{latency_text(latency_s)}**: {len(steps)} primitives in order")
    other = next((e for e in baseline.told.events if e.get("kind") == "best" and e["task"] == task), None) if baseline else None
    if other is not None and baseline is not None and baseline is not run:
        table = difference(_steps(other), steps).rename(columns={"left": "baseline", "right": "this run"})
        only = st.toggle(f"Only what differs ({int((table['change'] != '').sum())} of {len(table)} steps)", key="schedule-only", value=True)
        shown = table[table["change"] != ""] if only else table
        styled = shown.style.apply(lambda row: [MARKS.get(row["change"], "")] * len(row), axis=1)
        st.dataframe(styled, hide_index=True, height="auto" if len(shown) < 13 else 480, alt="The baseline's schedule and this one",
                     column_config={"change": st.column_config.TextColumn(width=90)})  # fmt: skip
    else:
        st.dataframe(steps_table(steps).set_index("#"), height="auto" if len(steps) < 13 else 480, alt="Schedule primitives in order")
    if dataset_of(run):
        reproduce("program", str(dataset_of(run)), identity, "--script")


def explained(run: Run, task: str, best: dict[str, Any] | None) -> tuple[str, float, list[Step]] | None:
    """(program id, latency, its steps) of a task's best: as told, or from the run's dataset; None where neither holds it."""
    if best is not None:
        return best["program"], best["latency_s"], _steps(best)
    rows = run.told.frame[(run.told.frame["task"] == task) & run.told.frame["latency_s"].notna()]
    path = dataset_of(run)
    if rows.empty or path is None:
        return None
    row = rows.loc[rows["latency_s"].idxmin()]
    try:
        details = details_of(str(path), Dataset.open(path).version, parse_id(row["program"]))
    except UserError as error:
        show_error(error)
        return None
    steps = steps_of(details["schedule"], details["format"], details["operator"], details["extents"])
    return details["id"], float(row["latency_s"]), steps


def result_section(run: Run) -> None:
    """What the run left behind, and its log."""
    if run.shipped:
        st.caption("The library that this run built stayed on the machine that it was measured on; a run of your own leaves one here.")
    elif run.result.get("export"):
        export = run.result["export"]
        st.markdown("**Use the result**")
        if export.get("snippet"):
            st.caption("Loads, runs, times and checks the library:")
            st.code(f"python {export['snippet']}", language=None, wrap_lines=True)
        st.caption(f"A TVM MetaSchedule database for `JSONDatabase(work_dir=…)`: {export['folder']}. {export.get('note', '')}")
    if path := dataset_of(run):
        st.caption(f"Everything that was measured is a dataset: {path}")
    st.markdown("**Command**")
    reproduce(*[a for a in run.argv if a != "--json"])
    log = run.job.log()
    if log:
        with st.expander("Log", icon=":material/notes:"):
            st.code(log, language=None, height=260)


def subject_of(run: Run) -> str:
    return str(run.told.last("about").get("subject") or run.result.get("subject") or next(iter(run.told.tasks["name"]), ""))


def dataset_of(run: Run) -> Path | None:
    """Where the run wrote what it measured; None where that is gone."""
    told = run.result.get("dataset") or run.told.last("about").get("dataset")
    path = Path(run.job.about.get("cwd", ".")) / told if told else None
    return path if path is not None and (path / MANIFEST).exists() else None


def _steps(best: dict[str, Any]) -> list[Step]:
    return steps_of(best["schedule"], best["format"], best["operator"], best["extents"])
