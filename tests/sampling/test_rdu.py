"""What each part of RDU is there for."""

from __future__ import annotations

import numpy as np

from tcl.sampling.base import Pool
from tcl.sampling.greedy import typicality
from tcl.sampling.rdu import Rdu

SEEDS = range(20)


def picks(sampler: Rdu, vectors, budget, uncertainty=None) -> list[np.ndarray]:
    pool = Pool(np.asarray(vectors, np.float32), np.zeros(len(vectors), int), None, uncertainty)
    return [sampler.query(pool, budget, seed=seed) for seed in SEEDS]


def test_diversity_avoids_what_is_picked_already():
    crowd = np.repeat(np.random.default_rng(0).normal(size=(10, 4)), 10, axis=0)  # ten programs, each ten times
    with_d = np.mean([len(np.unique(p // 10)) for p in picks(Rdu(d=1), crowd, 10)])
    without = np.mean([len(np.unique(p // 10)) for p in picks(Rdu(d=0), crowd, 10)])
    assert with_d == 10
    assert without < 9


def test_representativeness_is_for_the_first_programs_of_an_assignment():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(60, 4)).astype(np.float32)
    typical = typicality(vectors)
    first = [p[0] for p in picks(Rdu(r=1), vectors, 12)]
    assert typical[first].mean() > 0.9
    last = np.concatenate([p[6:] for p in picks(Rdu(r=1), vectors, 12)])
    alone = np.concatenate([p[6:] for p in picks(Rdu(r=0), vectors, 12)])
    assert abs(typical[last].mean() - typical[alone].mean()) < 0.1


def test_uncertainty_goes_where_the_model_is_unsure():
    rng = np.random.default_rng(0)
    vectors, unsure = rng.normal(size=(100, 4)), np.arange(100.0)
    with_u = np.mean([p.mean() for p in picks(Rdu(u=2), vectors, 10, unsure)])
    without = np.mean([p.mean() for p in picks(Rdu(u=0), vectors, 10, unsure)])
    assert with_u > without + 15


def test_all_weights_zero_is_uniform():
    vectors = np.random.default_rng(0).normal(size=(50, 4))
    counts = np.bincount(np.concatenate(picks(Rdu(r=0, d=0, u=0), vectors, 10)), minlength=50)
    assert counts.sum() == 200
    assert counts.max() <= 11  # expected 4 each; a chance of 1e-3 to be exceeded
