"""`tcl bench tuning`: search strategies and cost models side by side, every method on the same operators, seeds and trials.

    tcl bench tuning --set 'methods=["tvm/xgb","decisions/xgb"]' --set trials=64

A method is written STRATEGY/MODEL, MODEL being random, xgb or the folder of a saved model. Candidates scored per second count
the cost model's scores over the time of the whole search (features, scores, mutation, validation of what is proposed).
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tcl.bench.report import goal, machine
from tcl.progress import Progress

OPERATORS = (
    "matmul:256,256,256", "dense:64,1024,1024", "batch_matmul:12,128,128,64", "conv2d:1,64,56,56,64,3,3,1,1",
    "conv2d:1,256,14,14,256,1,1,1,0", "depthwise:1,144,56,56,3,3,1,1", "max_pool:1,64,112,112,3,2,1", "softmax:128,1024",
    "layer_norm:128,768", "transpose:1024,1024",
)  # fmt: skip
SCORED_GOAL = 20_000.0


def run(
    *,
    progress: Progress,
    methods: Sequence[str] = ("random/random", "tvm/xgb", "decisions/xgb"),
    operators: Sequence[str] = OPERATORS,
    trials: int = 64,
    seeds: int = 3,
) -> dict[str, Any]:
    """One row an operator, method and seed; goals over all of them."""
    from tcl.tuning.tune import tune

    rows = []
    total = len(operators) * len(methods) * seeds
    for operator in operators:
        for seed in range(seeds):
            for method in methods:
                strategy, _, model = method.partition("/")
                with tempfile.TemporaryDirectory() as folder:
                    result = tune(
                        operator, trials=trials, out=Path(folder) / "out", model=model, strategy=strategy, seed=seed, export=False
                    )
                rows.append(_row(operator, method, seed, result))
                progress.step(len(rows), total, "runs")
    return {"bench": "tuning", "rows": rows, "goals": goals(rows), "machine": machine()}


def _row(operator: str, method: str, seed: int, result: dict[str, Any]) -> dict[str, Any]:
    spent = result["time_s"]
    search = spent.get("search", 0.0)
    return {
        "operator": operator,
        "method": method,
        "seed": seed,
        "measured": result["measured"],
        "failed": sum(result["failed"].values()),
        "best_ms": result["best_latency_s"] * 1e3 if result["best_latency_s"] else None,
        "untuned_ms": result["untuned_latency_s"] * 1e3 if result["untuned_latency_s"] else None,
        "pytorch_ms": result["pytorch_latency_s"] * 1e3 if result["pytorch_latency_s"] else None,
        "correct": result["correct"],
        "scored": result["scored"],
        "scored_per_s": result["scored"] / search if search else None,
        "search_s": search,
        "learn_s": spent.get("learn", 0.0),
        "seconds": result["seconds"],
    }


def goals(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Scoring speed of the decision search, and its latency relative to TVM's search with the same seed and trials."""
    found = []
    speeds = [r["scored_per_s"] for r in rows if r["method"].startswith("decisions/") and r["scored_per_s"]]
    if speeds:
        value = statistics.median(speeds)
        found.append(goal("candidates scored per second, median", SCORED_GOAL, value))
    baseline = {(r["operator"], r["seed"]): r["best_ms"] for r in rows if r["method"] == "tvm/xgb" and r["best_ms"]}
    for method in dict.fromkeys(r["method"] for r in rows):
        ratios = [
            r["best_ms"] / baseline[r["operator"], r["seed"]]
            for r in rows
            if r["method"] == method and r["best_ms"] and (r["operator"], r["seed"]) in baseline
        ]
        if ratios and method.startswith("decisions/"):
            value = statistics.median(ratios)
            found.append(goal(f"latency of {method} / tvm/xgb at equal trials, median", 1.03, value, at_most=True))
    return found
