"""How well a knowledge base ranks each platform it learned, slice by slice, and how much two platforms agree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tcl.models.base import Examples
from tcl.programs.types import format_id
from tcl.training.metrics import FLOOR, Assignments, continual

if TYPE_CHECKING:
    from tcl.continual.knowledge_base import KnowledgeBase

MIN_SHARED = 5
"""Programs of a task that two platforms must have measured for its rank agreement to count."""


def score(test: Examples, scores: np.ndarray) -> dict[str, Any]:
    """How well `scores` rank one platform's test programs.

    Returns top1 and top5: the mean over assignments of best latency / best latency among the k highest-ranked, 0 where only failures were
    picked. That is what R holds: in the pooled score one failed pick counts as 1e5 times the best latency and hides everything else;
    it stands beside it as top1_pooled and top5_pooled. Also pairwise, spearman, and top-1 `by_operator` and `by_task` (task ids as 16
    hex digits), and which program was `picked` for each task. Assignments in which everything failed are left out.
    """
    truth = test.truth
    assert isinstance(truth, Assignments)
    chosen = truth.chosen_s(scores, (1, 5))
    good = truth.usable
    share = truth.best_s[good, None] / chosen[good]
    share[share <= 2 * FLOOR] = 0.0
    whole = truth.evaluate(scores)
    operator = truth.operator[good]
    return {
        "top1": _mean(share[:, 0]), "top5": _mean(share[:, 1]), "top1_pooled": whole["top1"], "top5_pooled": whole["top5"],
        "pairwise": whole["pairwise"], "spearman": whole["spearman"], "assignments": int(good.sum()),
        "by_operator": {str(o): _mean(share[operator == o, 0]) for o in sorted(set(operator.tolist()))},
        "by_task": {format_id(int(t)): float(v) for t, v in zip(truth.task[good], share[:, 0], strict=True)},
        "picked": _picked(test, scores),
    }  # fmt: skip


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if len(values) else None


def _picked(test: Examples, scores: np.ndarray) -> dict[str, str]:
    order = np.lexsort((-np.nan_to_num(scores, nan=-np.inf), test.assignment))
    first = order[np.unique(test.assignment[order], return_index=True)[1]]
    return {format_id(int(test.task[i])): format_id(int(test.program[i])) for i in first}


def summary(history: list[dict[str, Any]], kind: str = "top1") -> dict[str, Any]:
    """R and what follows from it, from a knowledge base's history (whose entries hold `row`: platform -> `score`).

    Returns platforms, R (rows: after learning the i-th; null where not evaluated), average, backward_transfer, forgetting, worst_slice
    {drop, platform, operator}, worst_task {drop, platform, task, before, after} and the same metrics for top1_mean as `mean`.
    """
    names = [h["platform"] for h in history]
    r = _matrix(history, names, lambda row: row.get(kind))
    operators = sorted({o for h in history for row in h.get("row", {}).values() for o in row.get("by_operator", {})})
    slices = {o: _matrix(history, names, lambda row, o=o: row["by_operator"].get(o)) for o in operators}
    tasks = sorted({t for h in history for row in h.get("row", {}).values() for t in row.get("by_task", {})})
    by_task = {t: _matrix(history, names, lambda row, t=t: row["by_task"].get(t)) for t in tasks}
    result: dict[str, Any] = {"platforms": names, "R": r.tolist()}
    if not names:
        return result
    whole, task = continual(r, slices, names), continual(r, by_task, names)
    result |= {
        "average": whole.average_accuracy, "backward_transfer": whole.backward_transfer, "forgetting": whole.forgetting,
        "worst_slice": {"drop": whole.worst_slice_drop, "platform": whole.worst_slice[0], "operator": whole.worst_slice[1]},
        "worst_task": {"drop": task.worst_slice_drop, "platform": task.worst_slice[0], "task": task.worst_slice[1]},
    }  # fmt: skip
    if task.worst_slice[1]:
        platform, which = task.worst_slice
        seen = [(h["platform"], h["row"][platform]["picked"].get(which)) for h in history if platform in h.get("row", {})]
        result["worst_task"]["picked"] = [{"after": p, "program": program} for p, program in seen]
    return result


def _matrix(history: list[dict[str, Any]], names: list[str], read: Any) -> np.ndarray:
    r = np.full((len(names), len(names)), np.nan)
    for i, entry in enumerate(history):
        for j, name in enumerate(names):
            row = entry.get("row", {}).get(name)
            value = read(row) if row else None
            r[i, j] = np.nan if value is None else value
    return r


def agreement(a: pd.DataFrame, b: pd.DataFrame) -> dict[str, Any]:
    """How two platforms order the programs that both measured. a, b: `Dataset.labels()` of one platform each.

    Returns shared_tasks, shared_programs (measured successfully on both), tasks (with at least `MIN_SHARED` shared programs) and
    spearman (mean over those; null where there is none: platforms without overlap may still share schedules' structure, which this
    cannot see).
    """
    both = a[["program", "task", "latency_s"]].merge(b[["program", "latency_s"]], on="program", suffixes=("_a", "_b")).dropna()
    rho = []
    for _, rows in both.groupby("task"):
        if len(rows) >= MIN_SHARED and rows["latency_s_a"].nunique() > 1 and rows["latency_s_b"].nunique() > 1:
            rho.append(rows["latency_s_a"].corr(rows["latency_s_b"], method="spearman"))
    return {
        "shared_tasks": len(set(a["task"]) & set(b["task"])), "shared_programs": len(both), "tasks": len(rho),
        "spearman": float(np.mean(rho)) if rho else None,
    }  # fmt: skip


def transfer(base: KnowledgeBase, test: Examples | None) -> dict[str, dict[str, Any]]:
    """What each learned platform's model, as it is, makes of a new platform's test programs: platform -> {top1, spearman}."""
    if test is None:
        return {}
    scores = {name: score(test, base.model(name).predict(test.inputs)) for name in base.platforms}
    return {name: {"top1": s["top1"], "spearman": s["spearman"]} for name, s in scores.items()}
