"""The Tune page's report: one HTML file of the chosen runs, to keep or to share."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from app.shared import reproduce
from app.tune_runs import Run
from tcl.jobs.tuning_run import several
from tcl.views.tuning_report import report


def report_section(runs: Sequence[Run], baseline: Run | None) -> None:
    """A button, and the command that writes the same file."""
    st.write("One HTML file that opens in any browser, without a network: charts, tasks, where the time went, the best schedules, "
             "the machine, versions, and the commands that repeat it.")  # fmt: skip

    def made() -> str:
        found = several([run.job for run in runs])
        pinned = next((r.name for r, run in zip(found, runs, strict=True) if baseline is not None and run.id == baseline.id), None)
        return report(found, pinned)

    what = "the run" if len(runs) == 1 else f"the {len(runs)} chosen runs"
    st.download_button(f"Report of {what}", made, file_name="tuning-report.html", mime="text/html", icon=":material/download:",
                       type="primary", on_click="ignore", key="tune-report")  # fmt: skip
    argv = ["report", *(named(run) for run in runs)]
    reproduce(*argv, *(["--baseline", named(baseline)] if baseline else []), "--out", "report.html")


def named(run: Run) -> str:
    """As `tcl report` finds it."""
    return str(run.job.path) if run.shipped else run.id
