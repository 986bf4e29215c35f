"""`tcl train` and `tcl evaluate` from a dataset on disk to a saved model, and what people do wrong with them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from tcl.bench import models as bench
from tcl.errors import UserError
from tcl.programs.dataset import Dataset
from tcl.programs.selection import save_selection
from tcl.programs.types import Measurement, NetworkUse, Platform, Program, Task
from tcl.programs.writer import Writer
from tcl.training import outcome
from tcl.training.data import LazyRows, at_most, examples_of, labels_of
from tcl.training.loop import Trainer
from tcl.training.runs import Choice, evaluate, parts_of, train
from tests.models.test_models import sketch

KEYS = {"model", "parameters", "top1", "top5", "top1_mean", "top5_mean", "pairwise", "spearman", "seconds", "by_platform"}
QUICK = {"epochs": 2, "lists": 4, "list_size": 16}


def fill(path: Path, platforms: tuple[str, ...] = ("a", "b"), operator: str = "matmul", tasks: int = 10, n: int = 24) -> Dataset:
    random = np.random.default_rng(0)
    dataset = Dataset.create(path)
    with Writer(dataset) as writer:
        for p in platforms:
            writer.add_platform(Platform(p))
        for t in range(tasks):
            task = Task(
                f"{operator} {t}", operator, "ansor", f"{operator}{t}", (64, 64, 64 * (t + 1)), 1e6, 1e4, (NetworkUse(f"net{t % 3}", 1.0),)
            )
            writer.add_tasks([task])
            made = {sketch(*(int(2**e) for e in random.integers(0, 6, 4))) for _ in range(n)}
            programs = [Program(task.id, text) for text in sorted(made)]
            writer.add_programs(programs)
            for p in platforms:
                writer.add_measurements(
                    Measurement(q.id, task.id, p, error="build_error") if t == 1 or random.random() < 0.05  # task 1: all failed
                    else Measurement(q.id, task.id, p, (1e-3 * (1 + len(q.schedule) % 7 + random.random()),))
                    for q in programs
                )  # fmt: skip
    return dataset.refresh()


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> Dataset:
    return fill(tmp_path_factory.mktemp("data") / "d")


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    main = "from tcl.cli import main; main()"
    return subprocess.run([sys.executable, "-c", main, *map(str, arguments)], capture_output=True, text=True, check=False)


def test_train_then_evaluate_gives_the_same_scores_and_all_keys(dataset, tmp_path):
    _, result = train(dataset, "mlp", Trainer(**QUICK), Choice(), tmp_path / "m")
    assert result.keys() >= KEYS and set(result["by_platform"]) == {"a", "b"}
    again = evaluate(tmp_path / "m", dataset)
    assert again.keys() >= KEYS and again["split"] == "test"
    assert again["top1"] == result["top1"] and again["pairwise"] == result["pairwise"]
    table = pq.read_table(tmp_path / "m" / "predictions.parquet").to_pandas()
    assert set(table["part"]) == {"valid", "test"} and np.isfinite(table["prediction"]).all()
    assert len(json.loads((tmp_path / "m" / "history.json").read_text())) == 2
    assert again["worst"][0]["top1"] <= again["worst"][-1]["top1"]


def test_what_a_training_leaves_says_which_program_the_model_picks(dataset, tmp_path):
    """The tables that pages draw from agree with each other and with the printed metrics."""
    _, result = train(dataset, "mlp", Trainer(**QUICK), Choice(), tmp_path / "m", importance=2)
    table, programs = outcome.read_table(tmp_path / "m", outcome.ASSIGNMENTS), outcome.read_table(tmp_path / "m", outcome.PREDICTIONS)
    test = table[table["part"] == "test"]
    assert len(test) == sum(row["assignments"] for row in result["by_platform"].values()) + test["best_s"].isna().sum()
    assert test["pairwise"].mean() == pytest.approx(result["pairwise"])
    for row in table[table["best_s"].notna()].itertuples():
        mine = programs[(programs["task"] == row.task) & (programs["platform"] == row.platform)].set_index("program")
        assert len(mine) == row.programs and mine["latency_s"].isna().sum() == row.failed and mine["part"].eq(row.part).all()
        assert mine.loc[row.picked_program, "prediction"] == mine["prediction"].max()
        assert mine.loc[row.best_program, "latency_s"] == mine["latency_s"].min() == row.best_s
        picked = mine.loc[row.picked_program, "latency_s"]
        if np.isfinite(picked):
            assert row.picked_s == picked and row.top1 == pytest.approx(row.best_s / picked)
            assert row.picked_rank == 1 + (mine["latency_s"] < picked).sum()
        else:
            assert np.isnan(row.picked_s) and row.top1 < 1e-3 and row.picked_rank == 1 + mine["latency_s"].notna().sum()
    scores = outcome.read_json(tmp_path / "m", outcome.SCORES)
    assert scores["top1"] == result["top1"] and scores["worst"][0]["task"] in set(test["name"])
    assert {"primitive", "pairwise_drop", "top1_drop", "pairwise_drop_sd"} <= scores["importance"][0].keys()
    assert {"split", "annotate"} & {row["primitive"] for row in scores["importance"]} and scores["importance"][0]["repeats"] == 2
    # elsewhere, and by way of the saved model, the same
    again = evaluate(tmp_path / "m", dataset, out=tmp_path / "e", importance=2)
    assert again["importance"] == scores["importance"]
    pd.testing.assert_frame_equal(outcome.read_table(tmp_path / "e", outcome.ASSIGNMENTS), test.reset_index(drop=True))


def test_tables_of_all_failed_assignments_and_of_nothing(dataset, tmp_path):
    failed = dataset.labels()
    failed = failed[failed.groupby(["platform", "task"], observed=True)["latency_s"].transform("count") == 0]
    examples = examples_of(dataset, failed, relabel=False)
    table = outcome.assignments(examples, np.zeros(len(examples)), {}, "test")
    assert len(table) == 2 and table[["top1", "pairwise", "best_s", "picked_s"]].isna().all(axis=None) and outcome.worst(table) == []
    nothing = examples_of(dataset, failed[:0], relabel=False)
    assert outcome.assignments(nothing, np.zeros(0), {}, "test").empty and outcome.predictions(nothing, np.zeros(0), "test").empty
    assert outcome.read_table(tmp_path, outcome.PREDICTIONS) is None and outcome.read_json(tmp_path, outcome.SCORES) is None
    (tmp_path / outcome.PREDICTIONS).write_bytes(b"cut")
    with pytest.raises(UserError, match=r"predictions\.parquet cannot be read"):
        outcome.read_table(tmp_path, outcome.PREDICTIONS)


def test_no_task_is_on_two_sides(dataset):
    parts = parts_of(dataset, Choice())
    sides = [set(parts.train.task), set(parts.valid.task), set(parts.test["task"])]
    assert all(sides) and not (sides[0] & sides[1] or sides[0] & sides[2] or sides[1] & sides[2])


def test_a_selection_bounds_what_is_learnt_from_but_not_the_test(dataset):
    whole = parts_of(dataset, Choice())
    some = whole.train.program[:5]
    part = parts_of(dataset, Choice(programs=some))
    assert set(part.train.program) == set(some) and part.valid is None and len(part.test) == len(whole.test)
    tenth = parts_of(dataset, Choice(fraction=0.1))
    assert 0 < len(tenth.train) < 0.2 * len(whole.train) and set(tenth.train.assignment) == set(whole.train.assignment)


def test_labels_come_from_what_was_measured_not_from_the_whole_pool(dataset):
    rows = dataset.labels(["a"])
    best = rows.groupby("task")["label"].idxmax()
    without = rows.drop(index=best)
    label = pd.Series(examples_of(dataset, without).label).groupby(without["task"].to_numpy()).max()
    assert set(label) <= {0.0, 1.0} and examples_of(dataset, without, relabel=False).label.max() < 1


def test_labels_of_bad_latencies():
    label = labels_of(np.array([2.0, 1.0, np.nan, -1.0, np.inf, np.nan]), np.array([0, 0, 0, 0, 0, 1]))
    assert label.tolist() == [0.5, 1.0, 0.0, 0.0, 0.0, 0.0]
    assert labels_of(np.zeros(0), np.zeros(0, int)).shape == (0,)


def test_at_most_and_lazy_rows(dataset):
    rows = dataset.labels()
    few = at_most(rows, 3, 0)
    assert few.groupby(["platform", "task"], observed=True).size().max() == 3 and few.index.is_monotonic_increasing
    array = np.arange(60).reshape(10, 6)
    lazy = LazyRows(array, np.array([3, 1, 7]))
    assert np.array_equal(lazy[np.array([2, 0])], array[[7, 3]]) and np.array_equal(lazy[np.array([1]), :2], array[[1], :2])
    assert len(lazy) == 3 and lazy.shape == (3, 6)


def test_another_dataset_with_unseen_operators_and_platform(dataset, tmp_path):
    train(dataset, "mlp", Trainer(**QUICK), Choice(), tmp_path / "m")
    strange = fill(tmp_path / "other", ("c",), "fft", tasks=3)
    result = evaluate(tmp_path / "m", strange)
    assert result["split"] == "all" and set(result["by_platform"]) == {"c"} and set(result["by_operator"]) == {"fft"}


def test_one_platform_and_one_task(tmp_path):
    only = fill(tmp_path / "one", ("a",), tasks=1)
    _, result = train(only, "mlp", Trainer(**QUICK), Choice(), tmp_path / "m")
    assert np.isnan(result["top1"]) and result["programs"] == 0 and result["valid_programs"] == 0
    with pytest.raises(UserError, match="test part"):
        evaluate(tmp_path / "m", only)
    assert evaluate(tmp_path / "m", only, "all")["programs"] > 0


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (Choice(split="nonsense"), "no split"), (Choice(platforms=["z"]), "no platform"), (Choice(operators=["fft"]), "no operator"),
        (Choice(fraction=0.0), "fraction"), (Choice(fraction=1.5), "fraction"),
        (Choice(programs=np.zeros(0, np.int64)), "No measured program"),
    ],
)  # fmt: skip
def test_choices_that_cannot_be_met(dataset, choice, message):
    with pytest.raises(UserError, match=message):
        parts_of(dataset, choice)


def test_all_failed_dataset(tmp_path):
    dataset = Dataset.create(tmp_path / "d")
    with Writer(dataset) as writer:
        writer.add_platform(Platform("a"))
        for t in range(4):
            task = Task(f"t{t}", "matmul", "ansor", str(t), (t + 1,))
            program = Program(task.id, sketch(2, 2, 2, 0))
            writer.add_tasks([task])
            writer.add_programs([program])
            writer.add_measurements([Measurement(program.id, task.id, "a", error="run_error")])
    with pytest.raises(UserError, match="No task has two programs"):
        train(dataset.refresh(), "mlp", Trainer(**QUICK), Choice())
    with pytest.raises(UserError, match="no measured program"):
        parts_of(Dataset.create(tmp_path / "empty"), Choice())


def test_commands(dataset, tmp_path):
    ids = parts_of(dataset, Choice()).train.program[:40]
    save_selection(dataset, "some", pd.DataFrame({"program": ids, "round": 0}), {"sampler": "hand"})
    out = command("train", dataset.path, "--model", "mlp", "--epochs", 2, "--selection", "some", "--out", tmp_path / "m", "--json")
    assert out.returncode == 0, out.stderr
    result = json.loads(out.stdout)
    assert result.keys() >= KEYS and result["train_programs"] <= 80
    out = command("evaluate", tmp_path / "m", dataset.path, "--out", tmp_path / "e", "--importance", 1, "--json")
    assert json.loads(out.stdout)["top1"] == result["top1"] and (tmp_path / "e" / outcome.ASSIGNMENTS).exists()
    assert result["importance"] and json.loads(out.stdout)["importance"]
    out = command("train", dataset.path, "--fraction", 0.3, "--sampler", "kmeans", "--model", "xgb", "--out", tmp_path / "x", "--json")
    assert out.returncode == 0, out.stderr
    for wrong in (
        ("evaluate", tmp_path, dataset.path),
        ("train", tmp_path, "--out", tmp_path / "y"),
        ("train", dataset.path, "--model", "gpt", "--out", "y"),
    ):
        out = command(*wrong)
        assert out.returncode != 0 and "Traceback" not in out.stderr and out.stderr.startswith("tcl: ")


def test_the_benchmark_resumes_from_its_finished_cells(dataset, tmp_path):
    how = {"datasets": [str(dataset.path)], "models": ["xgb", "random"], "seeds": [0, 1], "epochs": 1, "folder": str(tmp_path / "b")}
    first = bench.run(**how)
    assert len(first["rows"]) == 8 and {r["model"] for r in first["rows"]} == {"xgb", "random"}
    files = {f: f.stat().st_mtime_ns for f in (tmp_path / "b").iterdir()}
    next(iter(files)).unlink()
    again = bench.run(**how)
    assert sum(f.stat().st_mtime_ns == files[f] for f in (tmp_path / "b").iterdir()) == 7
    assert [r["top1"] for r in again["rows"]] == [r["top1"] for r in first["rows"]]
    assert all("met" in g for g in first["goals"]) and first["machine"]["cores"]
    with pytest.raises(UserError):
        bench.run(models=["gpt"])
