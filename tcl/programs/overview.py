"""What a dataset holds, as plain tables for pages and notebooks. Reads only the columns it needs; never the schedules."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from tcl.programs.dataset import Dataset


def counts(dataset: Dataset) -> pd.DataFrame:
    """One row a (platform, task): platform, task, name, operator, programs, measurements, failures, best_latency_s (NaN if all failed)."""
    rows = dataset.measurements(["task", "platform", "program", "latency_s"])
    rows["failed"] = rows["latency_s"].isna()
    frame = rows.groupby(["platform", "task"], observed=True).agg(
        programs=("program", "nunique"), measurements=("program", "size"), failures=("failed", "sum"), best_latency_s=("latency_s", "min")
    )
    tasks = dataset.tasks()[["task", "name", "operator"]]
    frame = frame.reset_index().astype({"platform": str}).merge(tasks, on="task", how="left")
    return frame[["platform", "task", "name", "operator", "programs", "measurements", "failures", "best_latency_s"]]


def count_matrix(dataset: Dataset, by: str = "operator") -> pd.DataFrame:
    """Measurements as a heatmap: one row a platform, one column an operator (or task: `by="name"`), 0 where there is none."""
    frame = counts(dataset)
    return frame.pivot_table(index="platform", columns=by, values="measurements", aggfunc="sum", fill_value=0)


def failures(dataset: Dataset, by: str = "platform") -> pd.DataFrame:
    """One row a (`by`, kind of failure): platform or operator, error, count, share of the measurements of that platform or operator."""
    rows = dataset.measurements(["task", "platform", "error"]).astype({"error": str, "platform": str})
    if by == "operator":
        rows = rows.merge(dataset.tasks()[["task", "operator"]], on="task", how="left")
    total = rows.groupby(by).size()
    frame = rows[rows["error"] != ""].groupby([by, "error"]).size().rename("count").reset_index()
    frame["share"] = frame["count"] / frame[by].map(total).astype(float)  # the map of no rows at all is text
    return frame


def latency_distribution(dataset: Dataset, platforms: Sequence[str] | None = None, tasks: Sequence[int] | None = None) -> pd.DataFrame:
    """One row an assignment: platform, task, name, operator, programs, failures, and of the programs' best latencies the minimum, the
    5, 25, 50, 75, 95 % quantiles and the maximum (min_s, q05_s, …, max_s), and spread (median / minimum). NaN where all failed.
    """
    labels = dataset.labels(platforms, tasks).astype({"platform": str})
    grouped = labels.groupby(["platform", "task"], observed=True)["latency_s"]
    frame = grouped.quantile([0, 0.05, 0.25, 0.5, 0.75, 0.95, 1]).unstack()
    frame.columns = ["min_s", "q05_s", "q25_s", "median_s", "q75_s", "q95_s", "max_s"]
    frame["programs"], frame["failures"] = grouped.size(), grouped.apply(lambda s: int(s.isna().sum()))
    frame["spread"] = frame["median_s"] / frame["min_s"]
    return frame.reset_index().merge(dataset.tasks()[["task", "name", "operator"]], on="task", how="left")


def shared(dataset: Dataset, a: str, b: str) -> pd.DataFrame:
    """What two platforms share: one row a task that is measured on either.

    Columns: task, name, operator, programs_a, programs_b, shared_programs (measured successfully on both), spearman (of their latencies
    on a and b; NaN for fewer than 3), best_of_a_on_b (latency on b of the program that is best on a, relative to b's best of the shared).
    """
    labels = dataset.labels([a, b])
    wide = labels.astype({"platform": str}).pivot(index=["task", "program"], columns="platform", values="latency_s")
    wide = wide.reindex(columns=[a, b]).reset_index()
    measured = labels.astype({"platform": str}).groupby(["task", "platform"]).size().unstack(fill_value=0)
    measured = measured.reindex(columns=[a, b], fill_value=0)
    both = wide.dropna()
    ranks = both.assign(ra=both.groupby("task")[a].rank(), rb=both.groupby("task")[b].rank())
    rows = []
    for task, group in ranks.groupby("task"):
        enough = len(group) >= 3 and group["ra"].nunique() > 1 and group["rb"].nunique() > 1
        rho = float(np.corrcoef(group["ra"], group["rb"])[0, 1]) if enough else np.nan
        kept = float(group[b].min() / group.loc[group[a].idxmin(), b])
        rows.append((task, len(group), rho, kept))
    agreement = pd.DataFrame(rows, columns=["task", "shared_programs", "spearman", "best_of_a_on_b"]).astype({"task": np.int64})
    frame = measured.rename(columns={a: "programs_a", b: "programs_b"}).reset_index()
    frame.columns.name = None
    frame = frame.merge(agreement, on="task", how="left").fillna({"shared_programs": 0}).astype({"shared_programs": int})
    frame = frame.merge(dataset.tasks()[["task", "name", "operator"]], on="task", how="left")
    return frame[["task", "name", "operator", "programs_a", "programs_b", "shared_programs", "spearman", "best_of_a_on_b"]]


def shared_summary(dataset: Dataset) -> pd.DataFrame:
    """One row a pair of platforms: platform_a, platform_b, shared_tasks, shared_programs, and the mean Spearman over shared tasks."""
    names = sorted(dataset.platforms())
    rows = []
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            frame = shared(dataset, a, b)
            tasks = int(((frame["programs_a"] > 0) & (frame["programs_b"] > 0)).sum())
            rows.append((a, b, tasks, int(frame["shared_programs"].sum()), float(frame["spearman"].mean())))
    return pd.DataFrame(rows, columns=["platform_a", "platform_b", "shared_tasks", "shared_programs", "spearman"])
