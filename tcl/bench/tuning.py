"""`tcl bench tuning`: search strategies and cost models side by side, every method on the same operators, networks, seeds and trials.

    tcl bench tuning --set 'methods=["tvm/xgb","decisions/xgb","decisions/models/kb"]' --set trials=64

A method is written STRATEGY/MODEL, MODEL being random, xgb, the folder of a saved model or knowledge base, or one of
`tcl.bench.priors`: kb and mlp, which are trained first, on the built-in dataset without the tuned tasks.

A cell is a subject with a seed, all methods one after the other on the same machine; each finished one is a JSON file in `cells`, and a
run that was stopped, or that reaches `time_limit_s`, goes on from there. Candidates scored per second count the cost model's scores over
the time of the whole search (features, scores, mutation, validation of what is proposed). Time is counted from the start of the search:
the baselines before it are no method's. Latencies of operators are those of a last measurement, in turns, of all programs that were a
method's best at some time: the lowest latency that a search saw of a program is partly luck. A method has reached the baseline's latency
when the program that it would have returned then is as fast as the baseline's last one, both measured in turns. So are the methods'
networks, as a whole; a network's curve is the sum over its tasks as the search saw them.
What production uses (PyTorch eager, torch.compile, ONNX Runtime) is timed in the same run, on the same threads, a few times for each
operator and network, once its first cell is finished.
"""

from __future__ import annotations

import json
import math
import re
import statistics
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tcl.bench.priors import PRIORS, priors
from tcl.bench.report import goal, machine
from tcl.errors import UserError
from tcl.files import write_json
from tcl.programs.dataset import Dataset
from tcl.programs.types import Program, content_id, format_id
from tcl.progress import Progress
from tcl.workspace import workspace

OPERATORS = (
    "matmul:256,256,256", "dense:64,1024,1024", "batch_matmul:12,128,128,64", "conv2d:1,64,56,56,64,3,3,1,1",
    "conv2d:1,256,14,14,256,1,1,1,0", "depthwise:1,144,56,56,3,3,1,1", "max_pool:1,64,112,112,3,2,1", "softmax:128,1024",
    "layer_norm:128,768", "transpose:1024,1024",
)  # fmt: skip
NETWORKS = ("resnet18", "mobilenet_v2", "bert_tiny")
BASELINE = "tvm/xgb"
SCORED_GOAL, FASTER_GOAL, FASTER_FLOOR, LATENCY_GOAL, NEVER_WORSE = 20_000.0, 16.8, 5.0, 1.20, 1.03
TURNS = 45
"""Repeats of each program in turns at the end of a cell. On a busy host medians of so many differed by 1.2 %, at one pace."""
NETWORK_TURNS = 5
"""The same for networks, in a process of its own each time."""
RIVAL_TURNS = 3
"""The same for what production uses."""
EQUAL = 1.01
"""Latencies measured in turns count as equal up to this ratio."""


class Curve(Progress):
    """The best latency over the seconds of the search: of an operator, or the sum over a network's tasks, once all have one."""

    def __init__(self) -> None:
        self.started = math.nan
        self.ended = math.nan  # seconds of the search
        self.points: list[tuple[float, float]] = []  # seconds since the search started, best latency; wherever that changed
        self.holders: list[str] = []  # of an operator: the program that was the best then
        self._weights: dict[str, float] = {}
        self._best: dict[str, float] = {}  # by task

    def event(self, kind: str, **data: Any) -> None:
        if kind == "phase" and data["name"] == "search":
            self.started = time.monotonic()
        elif kind == "task":
            self._weights[data["task"]] = data["weight"]
        elif kind == "measured":
            self._measured(time.monotonic() - self.started, data)

    def _measured(self, now: float, data: Mapping[str, Any]) -> None:
        self.ended = now
        task = data["task"]
        if data["best_s"] and data["best_s"] < self._best.get(task, math.inf):
            self._best[task] = data["best_s"]
            if len(self._best) == len(self._weights):
                self.points.append((now, sum(self._weights[t] * best for t, best in self._best.items())))
                self.holders.append("")
        if self.holders and data["latency_s"] == self._best[task]:  # all programs of a batch tell the best after it
            self.holders[-1] = data["program"]

    def measured_again(self, latencies: Mapping[str, float], last: str) -> Curve:
        """Of an operator: the curve of the same programs with other latencies, by program; those without one are left out. `last`: the
        program that the run chose in the end. It may rise: what looked faster need not be."""
        again = Curve()
        again.ended = self.ended
        pairs = [(s, p) for (s, _), p in zip([*self.points, (self.ended, 0.0)], [*self.holders, last], strict=True) if p in latencies]
        again.points = [(seconds, latencies[p]) for seconds, p in pairs]
        again.holders = [p for _, p in pairs]
        return again

    def reaches(self, latency_s: float) -> float | None:
        """Seconds of search until the best program was at least as fast; None where none was."""
        return next((seconds for seconds, best in self.points if best <= latency_s), None)

    def steps(self) -> list[tuple[float, float]]:
        """The points, rounded."""
        return [(round(seconds, 2), round(best, 9)) for seconds, best in self.points]


def run(
    *,
    progress: Progress,
    methods: Sequence[str] = ("random/random", BASELINE, "decisions/xgb", "decisions/mlp", "decisions/kb"),
    operators: Sequence[str] = OPERATORS,
    networks: Sequence[str] = NETWORKS,
    trials: int = 64,
    network_trials: int = 200,
    seeds: int = 3,
    rivals: Sequence[str] = ("pytorch", "torch_compile", "onnxruntime"),
    cells: str = "",
    resume: str = "",
    time_limit_s: float = 1e9,
) -> dict[str, Any]:
    """One row an operator or network, method and seed; goals over all of them.

    cells: where finished cells and the priors are kept. resume: an earlier result (--out) whose rows are taken for the cells that they
    fill, as long as the methods are the same. time_limit_s: start no cell after it; `missing` counts those left.
    """
    place = Path(cells) if cells else workspace() / "bench" / "tuning"
    place.mkdir(parents=True, exist_ok=True)
    subjects = [(name, trials, tuple(operators)) for name in operators] + [(name, network_trials, (name,)) for name in networks]
    # Seed by seed: a run that ends early has something of every subject.
    plan = [(seed, *one) for seed in range(seeds) for one in subjects]
    deadline = time.monotonic() + time_limit_s
    rows: list[dict[str, Any]] = []
    missing = 0
    earlier = _earlier(resume, methods)

    @cache  # a network is read and cut into tasks once, not once a seed
    def known(together: tuple[str, ...]) -> dict[str, str]:
        return priors(methods, together, place / "priors", progress)

    for done, (seed, subject, count, together) in enumerate(plan):
        progress.step(done, len(plan), f"{subject} seed {seed}")
        progress.check()
        key = format_id(content_id(json.dumps([subject, seed, count, methods])))
        file = place / f"{_slug(subject)}-{seed}-{key}.json"
        if not file.exists() and (filled := earlier.get((subject, seed, count))):
            write_json(file, filled)
        if not file.exists():
            if time.monotonic() > deadline:
                missing += 1
                continue
            write_json(file, _cell(subject, count, seed, methods, known(together)))
        production = _production(subject, rivals, place, deadline)
        rows += [row | production for row in json.loads(file.read_text())]
    progress.step(len(plan), len(plan), "done")
    return {"bench": "tuning", "rows": rows, "missing": missing, "goals": goals(rows), "machine": machine()}


def _slug(subject: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", subject)


def _production(subject: str, rivals: Sequence[str], place: Path, deadline: float) -> dict[str, Any]:
    """`{rival}_ms` of a subject, timed in turns; None where one cannot run it. Nothing where there is no time left to time them."""
    from tcl.tuning.baseline import rival_latencies
    from tcl.tuning.targets import this_machine

    file = place / f"production-{_slug(subject)}-{format_id(content_id(json.dumps([subject, rivals])))}.json"
    if not file.exists():
        if not rivals or time.monotonic() > deadline:
            return {}
        turns = [rival_latencies(subject, rivals, this_machine().cores) for _ in range(RIVAL_TURNS)]
        known = {name: [t[f"{name}_latency_s"] for t in turns if t[f"{name}_latency_s"]] for name in rivals}
        write_json(file, {f"{name}_ms": _ms(statistics.median(found)) if found else None for name, found in known.items()})
    return json.loads(file.read_text())


def _earlier(path: str, methods: Sequence[str]) -> dict[tuple[str, int, int], list[dict[str, Any]]]:
    """The rows of an earlier result by subject, seed and trials, where it has all methods.

    Raises:
        UserError: it is no result of this benchmark.
    """
    if not path:
        return {}
    try:
        result = json.loads(Path(path).read_text())
        if result["bench"] != "tuning":
            raise ValueError(f"it is one of {result['bench']}")
        found: dict[tuple[str, int, int], list[dict[str, Any]]] = {}
        for row in result["rows"]:
            found.setdefault((row["subject"], row["seed"], row["trials"]), []).append(row)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is no result of this benchmark: {error!r}.", hint="Name a file written with --out.") from None
    return {key: group for key, group in found.items() if [r["method"] for r in group] == list(methods)}


def _cell(subject: str, trials: int, seed: int, methods: Sequence[str], trained: dict[str, str]) -> list[dict[str, Any]]:
    """All methods on one subject with one seed, one after the other."""
    from tcl.tuning.tune import tune

    rows: list[dict[str, Any]] = []
    curves: dict[str, Curve] = {}
    folders: dict[str, Path] = {}  # of the methods that tuned a network
    chosen: dict[str, str] = {}  # method -> the program of an operator that it ends with
    schedules: dict[str, str] = {}
    processor = machine()["processor"]  # a run that goes on elsewhere has rows of several
    with tempfile.TemporaryDirectory() as folder:
        for method in methods:
            curves[method] = Curve()
            model = _model(method)
            out = Path(folder) / str(len(rows))
            result = tune(
                subject, trials=trials, out=out, model=trained.get(model, model), strategy=method.partition("/")[0],
                seed=seed, export=False, rivals=(), progress=curves[method],
            )  # fmt: skip
            if result.get("best_program"):
                chosen[method] = result["best_program"]
                schedules |= schedules_of(out, [*curves[method].holders, chosen[method]])
            elif (out / "export" / "network.so").exists():
                folders[method] = out / "export"
            rows.append(_row(subject, method, seed, trials, result) | {"processor": processor})
        latencies = networks_in_turns(folders)
    again = in_turns(subject, schedules)
    for method, program in chosen.items():
        curves[method] = curves[method].measured_again(again, program)
        latencies[method] = again.get(program, math.nan)
    for row in rows:
        if math.isfinite(known := latencies.get(row["method"], math.nan)):
            row["best_ms"] = _ms(known)
        row["curve"] = curves[row["method"]].steps()
    _add_times(rows, curves)
    return rows


def schedules_of(folder: Path, programs: Collection[str]) -> dict[str, str]:
    """The schedules of those of a dataset's programs."""
    found = Dataset.open(folder).programs()
    names = found["program"].map(format_id)
    wanted = names.isin(set(programs))
    return dict(zip(names[wanted], found.loc[wanted, "schedule"], strict=True))


def in_turns(subject: str, schedules: Mapping[str, str]) -> dict[str, float]:
    """Latency, in seconds, of programs of an operator (any key -> schedule), measured once more in turns: the methods ran minutes apart,
    and meanwhile a machine changes by more than they differ. Programs that cannot run have none."""
    from tcl.tuning.measure import Measurer
    from tcl.tuning.pace import latencies
    from tcl.tuning.subject import subject as read
    from tcl.tuning.targets import platform_for

    if not schedules:
        return {}
    (task,) = read(subject).tasks
    programs = {key: Program(task.id, schedule) for key, schedule in schedules.items()}
    distinct = list({p.id: p for p in programs.values()}.values())
    with Measurer() as measurer:
        measured = measurer.measure(platform_for("native"), task, distinct, repeats=TURNS)
    found = dict(zip((p.id for p in distinct), latencies(measured).tolist(), strict=True))
    return {key: found[p.id] for key, p in programs.items() if math.isfinite(found[p.id])}


def networks_in_turns(folders: Mapping[str, Path]) -> dict[str, float]:
    """Latency, in seconds, of exported networks (any key -> the folder of `network.so` and `inputs.npz`), timed in turns; NaN where one
    cannot be run."""
    from tcl.machine import quiet
    from tcl.tuning.apart import ProcessFailed
    from tcl.tuning.network_run import run_network
    from tcl.tuning.pace import at_one_pace
    from tcl.tuning.targets import this_machine

    def timed(folder: Path) -> float:
        try:
            run = run_network(folder / "network.so", folder / "inputs.npz", threads=this_machine().cores)
        except ProcessFailed:
            return math.nan
        return statistics.median(run.costs_s)

    if not folders:
        return {}
    with quiet():
        turns = np.array([[timed(folder) for folder in folders.values()] for _ in range(NETWORK_TURNS)])
    return dict(zip(folders, at_one_pace(turns).tolist(), strict=True))


def _model(method: str) -> str:
    return method.partition("/")[2]


def _row(subject: str, method: str, seed: int, trials: int, result: dict[str, Any]) -> dict[str, Any]:
    spent = result["time_s"]
    search = spent.get("search", 0.0) + spent.get("space", 0.0)
    return {
        "subject": subject,
        "method": method,
        "seed": seed,
        "trials": trials,
        "measured": result["measured"],
        "failed": sum(result["failed"].values()),
        "best_ms": _ms(result["best_latency_s"]),
        "untuned_ms": _ms(result["untuned_latency_s"]),
        "correct": result["correct"],
        "scored": result["scored"],
        "scored_per_s": result["scored"] / spent["search"] if spent.get("search") else None,
        "search_s": search,
        "learn_s": spent.get("learn", 0.0),
        "seconds": result["seconds"],
    }


def _add_times(rows: Sequence[dict[str, Any]], curves: dict[str, Curve]) -> None:
    """To rows of one subject and seed: seconds of search until the baseline's last latency was reached, and how often faster that
    is than all of the baseline's search."""
    baseline = curves.get(BASELINE)
    if baseline is None or not baseline.points:
        return
    target = baseline.points[-1][1] * EQUAL
    for row in rows:
        row["reach_s"] = curves[row["method"]].reaches(target)
        row["times_faster"] = baseline.ended / row["reach_s"] if row["reach_s"] else None


def _ms(seconds: float | None) -> float | None:
    return seconds * 1e3 if seconds else None


def goals(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Scoring speed of the decision search; its time to the baseline's latency; its latency at equal trials. A run that never reached
    the baseline's latency counts as 0 times faster."""
    found = []
    speeds = [r["scored_per_s"] for r in rows if r["method"].startswith("decisions/") and r["scored_per_s"]]
    if speeds:
        found.append(goal("candidates scored per second, median", SCORED_GOAL, statistics.median(speeds)))
    for method in dict.fromkeys(r["method"] for r in rows):
        if not method.startswith("decisions/"):
            continue
        times = [r["times_faster"] or 0.0 for r in rows if r["method"] == method and "times_faster" in r]
        if times:
            value = statistics.median(times)
            found.append(goal(f"{method}: times faster to {BASELINE}'s latency, median", FASTER_GOAL, value))
            found.append(goal(f"{method}: the same, floor", FASTER_FLOOR, value))
        if beside := ratios(rows, method, BASELINE).values():
            found.append(goal(f"{method}: latency / {BASELINE} at equal trials, median", 1.0, statistics.median(beside), at_most=True))
            found.append(goal(f"{method}: the same, worst", NEVER_WORSE, max(beside), at_most=True))
        for other in dict.fromkeys(r["method"] for r in rows):
            if other != method and _is_mlp(other) and (beside := ratios(rows, other, method).values()):
                found.append(goal(f"{other}: latency / {method} at equal trials, median", LATENCY_GOAL, statistics.median(beside)))
    return found


def ratios(rows: Sequence[Mapping[str, Any]], method: str, other: str) -> dict[tuple[str, int], float]:
    """Best latency of `method` over that of `other`, for each (subject, seed) that both have."""
    beside = {(r["subject"], r["seed"]): r["best_ms"] for r in rows if r["method"] == other and r["best_ms"]}
    mine = [r for r in rows if r["method"] == method and r["best_ms"]]
    return {key: r["best_ms"] / beside[key] for r in mine if (key := (r["subject"], r["seed"])) in beside}


def _is_mlp(method: str) -> bool:
    """Whether a method's model is a saved MLP: TenSet's kind of cost model."""
    from tcl.models.base import read_card

    model = _model(method)
    return model == "mlp" or (model not in ("random", "xgb", *PRIORS) and read_card(model)["model"] == "mlp")
