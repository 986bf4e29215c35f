"""The parts that samplers are made of."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tcl.errors import UserError
from tcl.sampling.base import budget_of
from tcl.sampling.budget import split_budget
from tcl.sampling.coverage import coverage
from tcl.sampling.embedding import embed
from tcl.sampling.greedy import farthest_first, rank_share, typicality
from tcl.sampling.partition import blocks


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20), st.floats(0, 100)), min_size=1, max_size=20),
    st.integers(0, 700),
    st.integers(0, 5),
)
def test_a_split_spends_the_budget_and_serves_the_needy_first(rows, budget, seed):
    available, done, weights = (np.array(column) for column in zip(*rows, strict=True))
    shares = split_budget(available, budget, done=done, weights=weights, rng=np.random.default_rng(seed))
    assert shares.sum() == min(budget, available.sum())
    assert ((shares >= 0) & (shares <= available)).all()
    needy = (available > 0) & (done == 0)
    if len(rows) > 1 and budget >= needy.sum():
        assert (shares[needy] >= 1).all()


def test_a_split_follows_the_weights():
    shares = split_budget(np.array([1000, 1000, 1000]), 100, weights=np.array([1.0, 1.0, 2.0]), rng=np.random.default_rng(0))
    assert shares.tolist() == [25, 25, 50]


def test_the_embedding_keeps_distances_and_ignores_scale_and_constants():
    rng = np.random.default_rng(0)
    plain = rng.normal(size=(200, 5)).astype(np.float32)
    scaled = np.concatenate([plain * [1, 10, 100, 1e3, 1e-3], np.ones((200, 3))], axis=1).astype(np.float32)
    a, b = embed(plain), embed(scaled)
    assert a.shape == (200, 5)
    np.testing.assert_allclose(a, b, atol=1e-3)
    low = rng.normal(size=(300, 4)) @ rng.normal(size=(4, 80))  # four dimensions in eighty
    full, cut = embed(low.astype(np.float32), 80), embed(low.astype(np.float32), 8)
    gaps = [np.linalg.norm(space[:100] - space[100:200], axis=1) for space in (full, cut)]
    np.testing.assert_allclose(*gaps, rtol=1e-3)


def test_farthest_first_picks_what_scikit_activemls_core_set_picks():
    from skactiveml.pool import CoreSet

    vectors = np.random.default_rng(1).normal(size=(150, 4)).astype(np.float32)
    labels = np.full(150, np.nan)
    labels[7] = 0.0
    theirs = CoreSet(random_state=0).query(vectors, labels, batch_size=20)
    candidates = np.delete(np.arange(150), 7)
    ours, _ = farthest_first(vectors[candidates], vectors[[7]], 20, np.ones(149, np.float32))
    np.testing.assert_array_equal(candidates[ours], theirs)


def test_farthest_first_takes_distinct_programs_before_duplicates():
    vectors = np.repeat(np.random.default_rng(0).normal(size=(10, 3)).astype(np.float32), 5, axis=0)
    picked, diversity = farthest_first(vectors, vectors[:0], 12, np.random.default_rng(1).random(50).astype(np.float32) + 0.1)
    assert len(set(picked[:10] // 5)) == 10
    assert (diversity[picked[10:]] == 0).all()


def test_typicality_is_highest_in_the_crowd():
    rng = np.random.default_rng(0)
    crowd, odd = rng.normal(size=(80, 3)), rng.normal(size=(4, 3)) * 30
    typical = typicality(np.concatenate([crowd, odd]).astype(np.float32))
    assert typical[80:].max() < np.median(typical[:80])
    assert ((typical > 0) & (typical <= 1)).all()


def test_equal_values_have_equal_rank_shares():
    np.testing.assert_allclose(rank_share(np.array([3.0, 1.0, 3.0, 2.0])), [1.0, 0.25, 1.0, 0.5])


@pytest.mark.parametrize("identical", [False, True])
def test_blocks_are_small_and_complete(identical):
    rng = np.random.default_rng(0)
    vectors = np.zeros((9000, 3), np.float32) if identical else rng.normal(size=(9000, 3)).astype(np.float32)
    found = blocks(vectors, rng, 500)
    assert max(map(len, found)) <= 500
    np.testing.assert_array_equal(np.sort(np.concatenate(found)), np.arange(9000))


@pytest.mark.parametrize(
    ("text", "count"), [("10%", 20), (0.1, 20), ("0.5", 100), (1.0, 200), ("1", 1), (0, 0), ("150", 150), ("100%", 200)]
)
def test_budgets_as_people_write_them(text, count):
    assert budget_of(text, 200) == count


@pytest.mark.parametrize("text", ["ten", "", "-1", "201", "120%", "nan"])
def test_budgets_that_make_no_sense(text):
    with pytest.raises(UserError):
        budget_of(text, 200)


def test_coverage_of_everything_of_nothing_and_between():
    rng = np.random.default_rng(0)
    vectors, assignment = rng.normal(size=(300, 4)), np.repeat([0, 1, 2], 100)
    latency = rng.random(300) + 1
    everything = coverage(vectors, assignment, np.arange(300), latency)
    assert everything == {"mean_distance": 0.0, "clusters": 1.0, "assignments": 1.0, "regret": 0.0}
    nothing = coverage(vectors, assignment, np.arange(0), latency)
    assert nothing["clusters"] == 0.0
    assert nothing["regret"] == 1.0
    half = coverage(vectors, assignment, np.arange(0, 300, 10), latency)
    assert 0 < half["mean_distance"] < 1.2
    assert half["assignments"] == 1.0
    assert 0 < half["regret"] < 0.5
