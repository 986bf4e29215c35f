"""The template that every sampler must pass. A new sampler is in it as soon as the registry knows it."""

from __future__ import annotations

import numpy as np
import pytest

from tcl.errors import UserError
from tcl.sampling.base import Pool
from tcl.sampling.registry import make_sampler, names

SIZES = (40, 1, 7, 120, 3)


def make_pool(sizes=SIZES, d=6, seed=0, identical=False, model=False, measured=0) -> Pool:
    rng = np.random.default_rng(seed)
    n = sum(sizes)
    vectors = rng.normal(size=(n, d)).astype(np.float32) if not identical else np.ones((n, d), np.float32)
    labels = np.full(n, np.nan)
    labels[rng.choice(n, measured, replace=False)] = rng.random(measured)
    extra = {"uncertainty": rng.random(n), "prediction": rng.random(n)} if model else {}
    return Pool(vectors, rng.permutation(np.repeat(np.arange(len(sizes)) * 7 + 3, sizes)), labels, **extra)


@pytest.fixture(params=names())
def sampler(request):
    return make_sampler(request.param)


@pytest.mark.parametrize("model", [False, True])
@pytest.mark.parametrize("identical", [False, True])
@pytest.mark.parametrize("budget", [0, 1, 3, 5, 17, 100, 171])
def test_the_budget_is_exact_and_no_index_comes_twice(sampler, budget, identical, model):
    pool = make_pool(identical=identical, model=model)
    picked = sampler.query(pool, budget, seed=1)
    assert picked.dtype == np.int64
    assert picked.shape == (budget,)
    assert len(np.unique(picked)) == budget
    assert budget == 0 or (picked.min() >= 0 and picked.max() < len(pool))


@pytest.mark.parametrize("model", [False, True])
def test_every_assignment_gets_a_program_when_the_budget_allows(sampler, model):
    pool = make_pool(model=model)
    for budget in (len(SIZES), 17, 60):
        assert len(np.unique(pool.assignment[sampler.query(pool, budget, seed=2)])) == len(SIZES)
    # ... and its first pick stands among the first of the answer, so that an interrupted measurement has seen each.
    assert len(np.unique(pool.assignment[sampler.query(pool, 60, seed=2)[: len(SIZES)]])) == len(SIZES)


@pytest.mark.parametrize("model", [False, True])
def test_every_assignment_gets_its_share(sampler, model):
    """Proportional to its programs, and at least one; CDMPP's clusters go over all assignments, so it owes only the one."""
    pool = make_pool(model=model)
    counts = np.bincount(pool.assignment[sampler.query(pool, 57, seed=6)], minlength=32)[3::7]
    if sampler.name == "cdmpp":
        assert (counts >= 1).all()
    else:
        np.testing.assert_allclose(counts, np.array(SIZES) / 3, atol=1.0)


def test_another_seed_gives_another_answer(sampler):
    """Without a model each of them leaves something to chance: a benchmark's seeds are then independent repeats."""
    pool = make_pool()
    assert any(set(sampler.query(pool, 30, seed=0)) != set(sampler.query(pool, 30, seed=s)) for s in (1, 2, 3))


def test_a_budget_below_the_number_of_assignments_gives_none_two(sampler):
    pool = make_pool()
    assert len(np.unique(pool.assignment[sampler.query(pool, 3, seed=0)])) == 3


def test_the_same_seed_gives_the_same_answer(sampler):
    pool = make_pool(model=True)
    np.testing.assert_array_equal(sampler.query(pool, 30, seed=5), sampler.query(pool, 30, seed=5))


def test_programs_that_were_measured_are_not_picked_again(sampler):
    pool = make_pool(measured=60, model=True)
    picked = sampler.query(pool, len(pool) - 60, seed=0)
    assert not pool.measured[picked].any()
    with pytest.raises(UserError, match="budget"):
        sampler.query(pool, len(pool) - 59, seed=0)


def test_measured_programs_count_towards_an_assignments_share():
    pool = make_pool(sizes=(50, 50))
    labels = np.full(100, np.nan)
    labels[np.flatnonzero(pool.assignment == 3)[:20]] = 0.5
    pool = Pool(pool.vectors, pool.assignment, labels)
    picked = make_sampler("random").query(pool, 20, seed=0)
    assert (pool.assignment[picked] == 10).all()


class UnpaidLabels(np.ndarray):
    """An array that nobody may read a number from where nothing was measured; asking whether it is NaN is allowed."""

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        if ufunc is not np.isnan:
            raise AssertionError(f"a sampler computed {ufunc.__name__} of labels that were not paid for")
        return getattr(ufunc, method)(*(np.asarray(i).view(np.ndarray) for i in inputs), **kwargs)

    def __getitem__(self, key):
        raise AssertionError("a sampler read labels that were not paid for")


def test_no_label_is_read_that_was_not_paid_for(sampler):
    pool = make_pool(model=True)
    guarded = Pool(pool.vectors, pool.assignment, pool.labels.view(UnpaidLabels), pool.uncertainty, pool.prediction)
    np.testing.assert_array_equal(sampler.query(guarded, 40, seed=3), sampler.query(pool, 40, seed=3))
    with pytest.raises(AssertionError, match="not paid"):
        guarded.labels[0]


def test_a_pool_of_one_and_a_pool_of_none(sampler):
    one = Pool(np.ones((1, 4), np.float32), np.zeros(1, int))
    assert sampler.query(one, 1, seed=0).tolist() == [0]
    assert sampler.query(one, 0, seed=0).tolist() == []
    none = Pool(np.ones((0, 4), np.float32), np.zeros(0, int))
    assert sampler.query(none, 0, seed=0).tolist() == []


def test_odd_numbers_in_the_vectors_do_no_harm(sampler):
    pool = make_pool()
    vectors = pool.vectors.copy()
    vectors[3, 1], vectors[5, 2], vectors[:, 4] = np.nan, np.inf, 1e30
    assert len(np.unique(sampler.query(Pool(vectors, pool.assignment), 50, seed=0))) == 50


def test_a_budget_outside_the_pool_is_refused(sampler):
    with pytest.raises(UserError, match="172"):
        sampler.query(make_pool(), 172, seed=0)
    with pytest.raises(UserError):
        sampler.query(make_pool(), -1, seed=0)


@pytest.mark.parametrize("model", [False, True])
def test_scores_come_with_the_same_answer(sampler, model):
    pool = make_pool(model=model, measured=10)
    picked, scores = sampler.query(pool, 40, seed=4, return_scores=True)
    np.testing.assert_array_equal(picked, sampler.query(pool, 40, seed=4))
    assert list(scores.columns) == ["representativeness", "diversity", "uncertainty", "score", "order", "round"]
    assert len(scores) == len(pool)
    np.testing.assert_array_equal(np.flatnonzero(scores["round"] == 0), np.sort(picked))
    np.testing.assert_array_equal(scores["order"].to_numpy()[picked], np.arange(40))
    for column in ("representativeness", "diversity", "uncertainty"):
        known = scores[column].dropna()
        assert ((known >= 0) & (known <= 1)).all()


def test_an_assignment_larger_than_a_block(sampler):
    if sampler.name in ("typiclust", "probcover"):
        sizes, budget = (2100,), 20  # these compare all pairs
    else:
        sizes, budget = (5000, 10), 300
    picked = sampler.query(make_pool(sizes=sizes), budget, seed=0)
    assert len(np.unique(picked)) == budget
