"""What every cost model must do. A new model: add its name to `MODELS` in tcl/models/base.py; these tests find it."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from tcl.errors import UserError
from tcl.features.context import task_features
from tcl.features.tokens import tokenize
from tcl.models.base import MODELS, Examples, Inputs, load, make
from tcl.programs.types import Task
from tcl.training.data import labels_of
from tcl.training.loop import Trainer
from tcl.training.metrics import Assignments

LEARNERS = [name for name in MODELS if name != "random"]


def sketch(a: int, b: int, r: int, unroll: int, long: bool = True) -> str:
    steps = [["SP", 2, 0, 64, [a, b], 1], ["SP", 2, 3, 64, [r], 1], ["RE", 2, [0, 3, 1, 4, 2]], ["AN", 2, 0, 5], ["AN", 2, 1, 6]]
    if long:
        steps += [["CHR", 0, "shared", [2]], ["CA", 1, 2, 3], ["PR", 2, 0, f"auto_unroll_max_step${unroll}"]]
    return json.dumps(steps, separators=(",", ":"))


def examples(tasks: int = 4, seed: int = 0, failures: float = 0.05, n: int = 48) -> Examples:
    """Programs whose latency follows from their splits: near 16 threads and a long reduction step it is low."""
    random = np.random.default_rng(seed)
    texts, latency, task = [], [], []
    for t in range(tasks):
        for _ in range(n):
            a, b, r, unroll = (int(2 ** random.integers(0, 6)) for _ in range(4))
            texts.append(sketch(a, b, r, unroll, long=bool(random.random() < 0.7)))
            cost = 1e-3 * (t + 1) * (1 + abs(np.log2(a) - 4) + 0.5 * abs(np.log2(r) - 3) + 0.05 * random.random())
            latency.append(np.nan if random.random() < failures else cost)
            task.append(t)
    of = np.array(task)
    table = task_features([Task(f"t{t}", "matmul", "ansor", str(t), (64, 64, 64 * (t + 1)), 1e6, 1e4) for t in range(tasks)])
    inputs = Inputs.plain(tokenize(texts, "ansor"))
    inputs.task, inputs.task_of = table, of
    cost = np.array(latency)
    return Examples(inputs, labels_of(cost, of), of, np.arange(len(of)), of, Assignments(of, cost))


def fitted(name: str, seed: int = 0, epochs: int = 12, train: Examples | None = None):
    model = make(name)
    if name == "random":
        model.fit(examples(), None, Trainer(seed=seed))
        return model
    model.fit(train or examples(), None, Trainer(seed=seed, epochs=epochs, lists=2, list_size=24))
    return model


@pytest.fixture(scope="module")
def trained():
    made = {}

    def get(name: str):
        if name not in made:
            made[name] = fitted(name)
        return made[name]

    return get


@pytest.mark.parametrize("name", LEARNERS)
def test_ranks_unseen_programs_far_better_than_chance(name, trained):
    fresh = examples(seed=5, failures=0.0)
    assert fresh.truth.evaluate(trained(name).predict(fresh.inputs))["pairwise"] > 0.75


@pytest.mark.parametrize("name", MODELS)
def test_predictions_are_finite_one_a_program_and_do_not_depend_on_the_batch(name, trained):
    model, inputs = trained(name), examples(seed=3).inputs
    whole = model.predict(inputs)
    assert whole.shape == (len(inputs),) and whole.dtype == np.float32 and np.isfinite(whole).all()
    for rows in (np.array([7]), np.arange(len(inputs))[::-1], np.zeros(0, dtype=int)):
        assert model.predict(inputs.take(rows)) == pytest.approx(whole[rows], abs=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_embedding_is_one_finite_vector_a_program(name, trained):
    inputs = examples(seed=3).inputs
    vectors = trained(name).embed(inputs)
    assert vectors.shape[0] == len(inputs) and vectors.ndim == 2 and vectors.shape[1] >= 2 and np.isfinite(vectors).all()
    same = trained(name).embed(inputs.take(np.array([3, 3])))
    assert np.allclose(same[0], same[1], atol=1e-5)  # two rows of one batch: a kernel may add up in another order


@pytest.mark.parametrize("name", MODELS)
def test_saved_and_loaded_it_predicts_the_same(name, trained, tmp_path):
    model, inputs = trained(name), examples(seed=3).inputs
    model.save(tmp_path / "m", {"dataset": "d"})
    assert np.array_equal(load(tmp_path / "m").predict(inputs), model.predict(inputs))
    assert not [f for f in (tmp_path / "m").iterdir() if f.suffix in (".pkl", ".pt", ".pickle")]


@pytest.mark.parametrize("name", MODELS)
def test_the_same_seed_gives_the_same_model_and_another_seed_another(name, trained):
    inputs = examples(seed=3).inputs
    again, other = (fitted(name, seed).predict(inputs) for seed in (0, 1))
    assert np.array_equal(again, trained(name).predict(inputs))
    assert not np.array_equal(again, other)


@pytest.mark.parametrize("name", MODELS)
def test_a_program_without_any_primitive_gets_a_score(name, trained):
    assert np.isfinite(trained(name).predict(Inputs.plain(tokenize(["[]", sketch(2, 2, 2, 0)], "ansor")))).all()


@pytest.mark.parametrize("name", MODELS)
def test_unseen_kinds_and_huge_numbers_do_not_break_it(name, trained):
    odd = '[["ZZ",9],["SP",1,0,1099511627776,[1048576,1048576],1],["PR",1,0,"auto_unroll_max_step$999999"]]'
    assert np.isfinite(trained(name).predict(Inputs.plain(tokenize([odd], "ansor")))).all()


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("case", ["nothing", "one program each", "all failed", "equal latencies", "nan labels"])
def test_data_that_teaches_nothing_is_a_users_error(name, case):
    data = {"nothing": examples().inputs.take(np.zeros(0, int))}
    rows = {"nothing": np.zeros(0, int), "one program each": np.array([0, 48, 96, 144])}.get(case, np.arange(192))
    whole = examples(failures=1.0 if case == "all failed" else 0.0)
    label = whole.label[rows].copy()
    if case == "equal latencies":
        label[:] = 1.0
    if case == "nan labels":
        label[3] = np.nan
    inputs = data.get(case, whole.inputs.take(rows))
    bad = Examples(inputs, label, whole.assignment[rows], whole.program[rows], whole.task[rows], whole.truth)
    with pytest.raises(UserError):
        make(name).fit(bad, None, Trainer(epochs=1))


@pytest.mark.parametrize("name", LEARNERS)
def test_some_all_failed_and_one_program_assignments_are_left_out_not_fatal(name):
    whole = examples(tasks=4)
    label = whole.label.copy()
    label[whole.assignment == 1] = 0
    rows = np.flatnonzero((whole.assignment != 2) | (np.arange(len(label)) == 100))
    part = Examples(whole.inputs.take(rows), label[rows], whole.assignment[rows], whole.program[rows], whole.task[rows], whole.truth)
    model = make(name)
    model.fit(part, None, Trainer(epochs=1))
    assert np.isfinite(model.predict(whole.inputs)).all()


def test_sizes_of_mamba_and_tlp(tmp_path):
    mamba = make("mamba")
    mamba.save(tmp_path / "m")
    assert sum(f.stat().st_size for f in (tmp_path / "m").iterdir()) <= 400_000
    assert abs(make("tlp").parameters() - 676_000) < 20_000


def test_mistakes_are_users_errors(tmp_path):
    with pytest.raises(UserError, match="no cost model"):
        make("nonsense")
    with pytest.raises(UserError, match="settings"):
        make("mamba", depth_of_thought=3)
    with pytest.raises(UserError, match="not a saved model"):
        load(tmp_path)
    make("mamba").save(tmp_path / "m")
    (tmp_path / "m" / "weights.safetensors").write_bytes(b"cut off")
    with pytest.raises(UserError, match="cannot be read"):
        load(tmp_path / "m")
    card = json.loads((tmp_path / "m" / "model.json").read_text())
    (tmp_path / "m" / "model.json").write_text(json.dumps({**card, "features": 0}))
    with pytest.raises(UserError, match="other features"):
        load(tmp_path / "m")
    (tmp_path / "m" / "model.json").write_text("{")
    with pytest.raises(UserError, match="cannot be read"):
        load(tmp_path / "m")


def test_the_registry_imports_no_heavy_library():
    code = "import sys, tcl.models.base; sys.exit(any(m in sys.modules for m in ('torch', 'xgboost', 'numba', 'tvm')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
