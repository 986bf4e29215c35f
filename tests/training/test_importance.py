"""Permutation importance where the answer is known: one kind of primitive decides the latency, the others say nothing."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from tcl.errors import UserError
from tcl.features.context import PLATFORM_FEATURES, TASK_FEATURES
from tcl.features.tokenizer import Tokens, empty
from tcl.features.vocabulary import FACTOR, KIND, REDUCTION, ROLE, SPATIAL, VALUE
from tcl.models.base import CostModel, Examples, Inputs
from tcl.models.xgb import XGB
from tcl.training.importance import COLUMNS, permutation_importance, permuted, thinned
from tcl.training.loop import Trainer
from tcl.training.metrics import Assignments

SPLIT, UNROLL, VECTORIZE, FUSE = KIND["split"], KIND["pragma_unroll"], KIND["vectorize"], KIND["fuse"]


def schedules(assignments: int = 6, n: int = 64, seed: int = 0) -> tuple[Tokens, np.ndarray]:
    """Programs with a split, an unroll, a vectorize and a fuse that is the same in all; and the assignment of each."""
    random = np.random.default_rng(seed)
    tokens = empty(assignments * n)
    tokens.kind[:, :4] = (SPLIT, UNROLL, VECTORIZE, FUSE)
    tokens.length[:] = 4
    tokens.numbers[:, 0, FACTOR] = random.integers(0, 7, len(tokens))
    tokens.numbers[:, 1, VALUE] = random.integers(0, 7, len(tokens))
    tokens.numbers[:, 2, VALUE] = random.integers(0, 5, len(tokens))
    tokens.numbers[:, 3, VALUE] = 2
    return tokens, np.repeat(np.arange(assignments), n)


def examples(tokens: Tokens, assignment: np.ndarray, latency: np.ndarray) -> Examples:
    inputs = Inputs(
        tokens, np.zeros((1, len(TASK_FEATURES)), np.float32), np.zeros(len(tokens), np.int32),
        np.zeros((1, len(PLATFORM_FEATURES)), np.float32), np.zeros(len(tokens), np.int32),
    )  # fmt: skip
    truth = Assignments(assignment, latency)
    ids = np.arange(len(tokens))
    return Examples(inputs, truth.label.astype(np.float32), assignment, ids, assignment, truth)


def by_unroll(tokens: Tokens, seed: int = 1) -> np.ndarray:
    """Latencies (seconds) that the unroll depth alone decides, but for 1 % of noise."""
    noise = np.random.default_rng(seed).uniform(1, 1.01, len(tokens))
    return 1e-3 * (1 + tokens.numbers[:, 1, VALUE].astype(float)) * noise


class Reads(CostModel):
    """Scores by one number of one token, as a perfect model of `by_unroll` does."""

    name = "reads"

    def __init__(self, place: int = 1) -> None:
        super().__init__()
        self.place = place

    def fit(self, train, valid, trainer):
        return {}

    def predict(self, inputs):
        return -np.asarray(inputs.tokens.numbers[:, self.place, VALUE], dtype=np.float32)

    embed = parameters = _save_weights = _load_weights = None  # type: ignore[assignment]


def test_the_primitive_that_decides_is_found_and_the_others_are_worth_nothing():
    tokens, assignment = schedules()
    frame = permutation_importance(Reads(), examples(tokens, assignment, by_unroll(tokens)), repeats=5)
    assert list(frame.columns) == list(COLUMNS) and set(frame["primitive"]) == {"split", "pragma_unroll", "vectorize", "fuse"}
    first, others = frame.iloc[0], frame.iloc[1:]
    # After a swap its order is chance: accuracy falls from nearly 1 to about one half.
    assert first["primitive"] == "pragma_unroll" and 0.35 < first["pairwise_drop"] < 0.55 and first["top1_drop"] > 0.2
    assert 0 < first["pairwise_drop_sd"] < 0.05 and first["repeats"] == 5
    assert (others[["pairwise_drop", "top1_drop", "pairwise_drop_sd"]] == 0).all(axis=None)
    assert frame.set_index("primitive").loc["fuse", "changed"] == 0 and first["changed"] > 0.7


@pytest.mark.parametrize("name", ["xgb", "mlp"])
def test_a_learnt_model_rests_on_what_decides(name):
    """Through trees on flat features and through a network alike: no model is special."""
    from tcl.models.base import make

    tokens, assignment = schedules(8)
    learn = examples(tokens, assignment, by_unroll(tokens))
    fresh, place = schedules(4, seed=5)
    model = XGB(trees=30) if name == "xgb" else make("mlp", seed=0)
    model.fit(learn, None, Trainer(epochs=15))
    frame = permutation_importance(model, examples(fresh, place, by_unroll(fresh)), repeats=3).set_index("primitive")
    assert frame.index[0] == "pragma_unroll" and frame.loc["pragma_unroll", "pairwise_drop"] > 0.3
    assert frame.loc[["split", "vectorize"], "pairwise_drop"].abs().max() < 0.05


def test_numbers_stay_in_their_assignment_and_move_together():
    tokens, assignment = schedules(3, 20)
    tokens.kind[:, 2] = UNROLL  # now two unrolls a program
    tokens.numbers[:, 2] = tokens.numbers[:, 1] + 1  # the second says one more than the first
    tokens.kind[::4, 2] = VECTORIZE  # but every fourth program has one only
    numbers, changed = permuted(tokens, tokens.kind == UNROLL, assignment, np.random.default_rng(0))
    two = tokens.kind[:, 2] == UNROLL
    assert np.array_equal(numbers[two, 2], numbers[two, 1] + 1)
    assert np.array_equal(numbers[:, [0, 3]], tokens.numbers[:, [0, 3]]) and np.array_equal(numbers[~two, 2], tokens.numbers[~two, 2])
    for a in range(3):
        for group in (two, ~two):
            mine = group & (assignment == a)
            assert sorted(numbers[mine, 1, VALUE]) == sorted(tokens.numbers[mine, 1, VALUE])
    assert len(changed) > 20 and (numbers[changed] != tokens.numbers[changed]).any(axis=(1, 2)).all()
    alone = permuted(tokens, tokens.kind == UNROLL, np.arange(len(tokens)), np.random.default_rng(0))
    assert np.array_equal(alone[0], tokens.numbers) and len(alone[1]) == 0


def test_loops_of_either_role_are_told_apart():
    """The latency follows the splits of reduction loops only."""
    tokens, assignment = schedules(4, 40)
    tokens.kind[:, 1] = SPLIT
    tokens.numbers[:, 0, ROLE], tokens.numbers[:, 1, ROLE] = SPATIAL, REDUCTION
    frame = permutation_importance(Reads(), examples(tokens, assignment, by_unroll(tokens)), 2).set_index("primitive")
    assert frame.loc["split (spatial)", "pairwise_drop"] == 0 and frame.loc["split (reduction)", "pairwise_drop"] > 0.3
    assert frame.loc["split", "pairwise_drop"] > 0.3 and "vectorize (spatial)" not in frame.index


def test_the_same_seed_gives_the_same_and_one_repeat_has_no_spread():
    tokens, assignment = schedules(3, 32)
    data = examples(tokens, assignment, by_unroll(tokens))
    a, b = (permutation_importance(Reads(), data, repeats=2, seed=3) for _ in range(2))
    pd.testing.assert_frame_equal(a, b)
    assert permutation_importance(Reads(), data, repeats=1)["pairwise_drop_sd"].isna().all()
    with pytest.raises(UserError, match="at least 1 repeat"):
        permutation_importance(Reads(), data, repeats=0)


@pytest.mark.parametrize("latency", [[1.0], [np.nan, np.nan, np.nan]])
def test_where_nothing_can_be_ranked_there_is_no_importance(latency):
    tokens, _ = schedules(1, len(latency))
    frame = permutation_importance(Reads(), examples(tokens, np.zeros(len(latency), int), np.array(latency)))
    assert frame.empty and list(frame.columns) == list(COLUMNS)


def test_thinning_keeps_every_assignment():
    rows = pd.DataFrame({"platform": ["a"] * 90 + ["b"] * 10, "task": [1] * 50 + [2] * 40 + [1] * 10})
    few = thinned(rows, 30)
    assert len(few) == 30 and few.groupby(["platform", "task"]).size().tolist() == [10, 10, 10] and thinned(rows, 100) is rows
