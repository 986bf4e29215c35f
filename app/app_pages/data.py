"""Data: what a dataset holds, and bringing in other people's logs."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import streamlit as st

from app.chart import chart
from app.job_view import head
from app.shared import choose_dataset, reproduce
from tcl.jobs.store import ALIVE, all_jobs, submit
from tcl.programs import overview
from tcl.programs.dataset import Dataset
from tcl.views import data as figures
from tcl.views.palette import latency_text
from tcl.workspace import inside, workspace

SHOWN = 40  # tasks whose latencies are drawn: more are no longer told apart


@st.cache_data(max_entries=6, show_spinner="Counting…")
def tables(path: str, version: str) -> dict[str, pd.DataFrame]:
    dataset = Dataset.open(path)
    return {
        "operators": overview.count_matrix(dataset),
        "tasks": overview.count_matrix(dataset, by="name"),
        "failures": overview.failures(dataset),
        "latencies": overview.latency_distribution(dataset),
    }


@st.cache_data(max_entries=12, show_spinner="Comparing platforms…")
def shared(path: str, version: str, a: str, b: str) -> pd.DataFrame:
    return overview.shared(Dataset.open(path), a, b)


def counted(number: int, what: str) -> str:
    return f"**{number:,}** {what}{'s' * (number != 1)}"


def upload_folder(files: list) -> list[Path]:
    """Uploads, written under the workspace (never opened as anything but logs); a name that leads elsewhere is refused."""
    folder = workspace() / "uploads"
    folder.mkdir(exist_ok=True)
    paths = []
    for file in files:
        path = inside(folder, Path(file.name).name)
        path.write_bytes(file.getbuffer())
        paths.append(path)
    return paths


def importing() -> None:
    """The form that starts an import as a background job, and the latest of them."""
    st.markdown("**Import logs**")
    st.caption("Ansor, TenSet, AutoTVM and MetaSchedule logs, also .gz and .zip. They are read, never run.")
    files = st.file_uploader("Upload log files", accept_multiple_files=True, key="import-files")
    place = st.text_input("…or a file or folder on this machine", key="import-path")
    platform = st.text_input("Platform they were measured on", key="import-platform", help="You name it: logs do not tell devices apart.")
    name = st.text_input("Into the dataset", value="imported", key="import-name", help="A new one, or one in the workspace to add to.")
    named = all(re.fullmatch(r"[A-Za-z0-9][\w.+-]{0,63}", text) for text in (platform, name))
    ready = bool((files or place.strip()) and named)
    if st.button("Import", type="primary", icon=":material/upload:", disabled=not ready, width="stretch"):
        sources = [str(p) for p in upload_folder(files or [])] + ([place.strip()] if place.strip() else [])
        out = inside(workspace() / "datasets", name)
        out.parent.mkdir(exist_ok=True)
        submit("import", ["data", "import", *sources, "--platform", platform, "--out", str(out), "--json"], f"Import into {name}")
        st.rerun()
    if not ready:
        st.caption("Choose files, and name the platform (letters, digits, '.', '_', '+', '-').")
    reproduce("data", "import", place.strip() or "LOGS", "--platform", platform or "NAME", "--out", f"workspace/datasets/{name}")
    latest = next((job for job in all_jobs() if job.kind == "import"), None)
    if latest is None:
        return

    @st.fragment(run_every=1.0 if latest.state in ALIVE else None)
    def live() -> None:
        head(latest, "import")
        if latest.result:
            st.json(latest.result, expanded=2)

    live()


left, right = st.columns([7, 3], gap="large")
with left:
    dataset = choose_dataset()
    if dataset is not None:
        path, version = str(dataset.path), dataset.version
        found = tables(path, version)
        stats = dataset.stats()
        st.markdown(
            f"{counted(stats['measurements'], 'measurement')} of {counted(stats['programs'], 'program')} · "
            f"{counted(stats['tasks'], 'task')} · {counted(stats['platforms'], 'platform')} · **{stats['failures']:,}** failed"
        )
        if stats["measurements"]:
            by = st.segmented_control("Columns", ["operators", "tasks"], default="operators", key="counts-by") or "operators"
            height = 120 + 36 * len(found[by])
            chart(figures.counts_figure(found[by]), key=f"counts-{by}", alt=f"Measurements by platform and {by}", height=max(height, 220))
            names = list(found["operators"].index)
            with st.container(horizontal=True):
                a = st.selectbox("Platform", names, key="data-a", width=230)
                others = [n for n in names if n != a]
                b = st.selectbox("compared with", others, key="data-b", width=230) if others else None
            here = found["latencies"][found["latencies"]["platform"] == a]
            if here["median_s"].notna().any():
                drawn = min(len(here), SHOWN)
                st.caption(f"Latencies of the {drawn} slowest of {len(here)} tasks on {a}" if drawn < len(here) else f"Latencies on {a}")
                figure = figures.distribution_figure(found["latencies"], a, SHOWN)
                chart(figure, key="latencies", alt=f"Latencies of tasks on {a}", height=110 + 17 * drawn)
            else:
                st.info(f"Nothing was measured successfully on {a}: below is how it failed.", icon=":material/info:")
            if b:
                frame = shared(path, version, a, b)
                both = frame[frame["shared_programs"] > 0]
                st.markdown(
                    f"{a} and {b} share **{int(((frame['programs_a'] > 0) & (frame['programs_b'] > 0)).sum())}** tasks and "
                    f"**{int(frame['shared_programs'].sum()):,}** programs that ran on both"
                    + (f"; mean Spearman **{both['spearman'].mean():.3f}**" if both["spearman"].notna().any() else "")
                )
                if both["spearman"].notna().any():
                    chart(figures.agreement_figure(both, a, b), key="agreement", alt="Rank agreement by task", height=240)
                    st.dataframe(
                        both[["name", "operator", "shared_programs", "spearman", "best_of_a_on_b"]].sort_values("spearman"),
                        hide_index=True, height=240, alt="Agreement by task",
                        column_config={
                            "name": st.column_config.TextColumn("task", width=300),
                            "shared_programs": st.column_config.NumberColumn("shared", format="localized", help="Programs run on both"),
                            "spearman": st.column_config.NumberColumn("rho", format="%.3f", help="Spearman's, of their latencies"),
                            "best_of_a_on_b": st.column_config.NumberColumn(
                                "best carried over", format="%.3f",
                                help=f"{b}'s best latency / the latency there of the program that is best on {a}; 1: the same program wins",
                            ),
                        },
                    )  # fmt: skip
            st.markdown("**Failures by kind**")
            if found["failures"].empty:
                st.caption("No measurement failed.")
            else:
                share = {"share": st.column_config.NumberColumn(format="percent", help="Of the platform's measurements")}
                st.dataframe(found["failures"], hide_index=True, alt="Failures by platform and kind", column_config=share)
            slowest = found["latencies"]["median_s"].max()
            if pd.notna(slowest):
                st.caption(f"The slowest task's median is {latency_text(float(slowest))}.")
        else:
            st.caption("Nothing was measured in this dataset yet.")
        reproduce("data", "stats", path)
with right:
    importing()
