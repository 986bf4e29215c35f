"""The loop: measure, train, pick again."""

from __future__ import annotations

import numpy as np
import pytest

from tcl.features.context import PLATFORM_FEATURES, TASK_FEATURES
from tcl.features.tokens import Tokens
from tcl.features.vocabulary import KIND, LENGTH, NUMBERS
from tcl.models.base import CostModel, Inputs
from tcl.sampling.committee import Committee
from tcl.sampling.registry import make_sampler, names
from tcl.sampling.rounds import Rounds, round_sizes

N, TASKS = 240, 4


def make_inputs(seed=0) -> tuple[Inputs, np.ndarray, np.ndarray]:
    """A pool of splits with random numbers, and latencies that depend on them."""
    rng = np.random.default_rng(seed)
    kind = np.zeros((N, LENGTH), np.uint8)
    kind[:, :3] = KIND["split"]
    numbers = np.zeros((N, LENGTH, len(NUMBERS)), np.float16)
    numbers[:, :3] = rng.random((N, 3, len(NUMBERS)))
    task_of = np.repeat(np.arange(TASKS), N // TASKS)
    tokens = Tokens(kind, numbers, np.full(N, 3, np.int16))
    task = rng.random((TASKS, len(TASK_FEATURES))).astype(np.float32)
    inputs = Inputs(tokens, task, task_of, np.zeros((1, len(PLATFORM_FEATURES)), np.float32), np.zeros(N, int))
    latency = 1e-3 * (1 + task_of) * np.exp(numbers[:, 0].astype(float).sum(axis=1))
    return inputs, task_of, latency


def make_loop(inputs, task, budget, name="rdu", **settings) -> Rounds:
    small = Committee(inputs, task, members=2, settings={"trees": 10, "depth": 3})
    return Rounds(inputs, task, budget, sampler=make_sampler(name), committee=small, **settings)


class Oracle:
    """Latencies that are counted, and refused a second time: a measurement is paid for once."""

    def __init__(self, latency):
        self.latency, self.paid = latency, np.zeros(len(latency), bool)

    def __call__(self, rows):
        assert not self.paid[rows].any()
        self.paid[rows] = True
        return self.latency[rows]


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("rounds", [1, 3])
def test_the_budget_counts_every_measurement_of_every_round(name, rounds):
    inputs, task, latency = make_inputs()
    oracle = Oracle(latency)
    loop = make_loop(inputs, task, 60, name, rounds=rounds, seed=3)
    rows = loop.run(oracle)
    assert oracle.paid.sum() == 60
    np.testing.assert_array_equal(np.sort(rows), np.flatnonzero(oracle.paid))
    assert set(task[rows]) == set(range(TASKS))
    picked = loop.selection()
    assert picked["round"].nunique() == rounds
    assert picked["order"].tolist() == list(range(60))


def test_what_was_not_paid_for_changes_nothing():
    inputs, task, latency = make_inputs()
    rows = make_loop(inputs, task, 40, seed=1).run(Oracle(latency))
    other = np.full(N, 1e9)
    other[rows] = latency[rows]
    np.testing.assert_array_equal(make_loop(inputs, task, 40, seed=1).run(Oracle(other)), rows)


def test_the_second_round_uses_what_the_first_measured():
    inputs, task, latency = make_inputs()
    a = make_loop(inputs, task, 40, "uncertainty", seed=1).run(Oracle(latency))
    b = make_loop(inputs, task, 40, "uncertainty", seed=1).run(Oracle(latency[::-1].copy()))
    np.testing.assert_array_equal(a[:20], b[:20])
    assert set(a[20:]) != set(b[20:])


def test_a_loop_that_was_cut_short_continues_to_the_same_end():
    inputs, task, latency = make_inputs()

    def loop(**kwargs):
        return make_loop(inputs, task, 60, rounds=3, seed=2, **kwargs)

    whole = loop().run(Oracle(latency))
    known = np.full(N, np.nan)
    known[whole[:30]] = latency[whole[:30]]  # the first round, as it stands on disk after a kill
    rest = loop(known_s=known, resumed=True)
    oracle = Oracle(latency)
    np.testing.assert_array_equal(rest.run(oracle), whole[30:])
    assert oracle.paid.sum() == 30
    assert rest.spent == 60


def test_failures_are_answers_and_count():
    inputs, task, latency = make_inputs()
    latency[task == 2] = np.nan
    loop = make_loop(inputs, task, 60, seed=0)
    rows = loop.run(Oracle(latency))
    assert len(rows) == 60
    assert np.isinf(loop.latency_s[rows[task[rows] == 2]]).all()
    nothing = make_loop(inputs, task, 30, seed=0)
    assert len(nothing.run(Oracle(np.full(N, np.nan)))) == 30


class FirstNumber(CostModel):
    """A model of another platform: the first number of the first split."""

    name = "first_number"
    sign = 1.0

    def fit(self, train, valid, trainer):
        return {}

    def predict(self, inputs):
        return self.sign * inputs.tokens.numbers[:, 0, 0].astype(np.float32)

    def embed(self, inputs):
        return self.predict(inputs)[:, None]

    def parameters(self):
        return 0

    def _save_weights(self, folder): ...

    def _load_weights(self, folder): ...


def test_models_of_other_platforms_guide_the_first_round():
    inputs, task, _ = make_inputs()
    one, two = FirstNumber(), FirstNumber()
    two.sign = -1.0
    loop = make_loop(inputs, task, 20, "uncertainty", rounds=1, others=[one, two])
    value = inputs.tokens.numbers[:, 0, 0].astype(float)
    extreme = np.abs(value - np.median(value))
    assert extreme[loop.ask()].mean() > 1.5 * extreme.mean()  # they disagree most about the extremes
    assert make_loop(inputs, task, 20, "balto", rounds=1, others=[one]).pool().uncertainty is None


def test_telling_what_was_not_asked_is_refused():
    inputs, task, latency = make_inputs()
    loop = make_loop(inputs, task, 20, "random", rounds=1)
    asked = loop.ask()
    with pytest.raises(ValueError, match="not asked"):
        loop.tell(np.setdiff1d(np.arange(N), asked)[:1], latency[:1])


def test_round_sizes_sum_to_the_budget():
    for budget in (0, 1, 7, 100):
        for rounds in (1, 2, 5):
            for assignments in (1, 4, 300):
                sizes = round_sizes(budget, rounds, assignments)
                assert sizes.sum() == budget
                assert len(sizes) == rounds
                assert (sizes >= 0).all()
