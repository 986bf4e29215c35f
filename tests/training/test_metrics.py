"""Metrics against cases computed by hand and against plain loops."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

from tcl.training.metrics import FLOOR, Assignments, Use, continual, report

NAN = float("nan")


def test_top_k_by_hand():
    # Assignment 0: latencies 1, 2, 4; the model puts 2 first, then 1. Assignment 1: 10, 30; the model puts 30 first.
    truth = Assignments(np.array([0, 0, 0, 1, 1]), np.array([1.0, 2.0, 4.0, 10.0, 30.0]))
    scores = np.array([0.5, 0.9, 0.1, 0.2, 0.8])
    assert truth.chosen_s(scores, (1, 2)).tolist() == [[2.0, 1.0], [30.0, 10.0]]
    pooled, mean = truth.top_k(scores, (1, 2))
    assert pooled == pytest.approx([11 / 32, 1.0])
    assert mean == pytest.approx([(1 / 2 + 10 / 30) / 2, 1.0])


def test_both_published_variants_with_weights():
    """TenSet's pooled quotient and the mean of the networks' quotients, from the sums written out as the papers' scripts do."""
    truth = Assignments(
        np.array([7, 7, 8, 8]),
        np.array([1.0, 3.0, 2.0, 4.0]),
        Use(np.array([0, 0, 1]), np.array([0, 1, 1]), np.array([2.0, 1.0, 5.0]), ("resnet", "bert")),
    )
    scores = np.array([0.0, 1.0, 1.0, 0.0])  # picks 3 s in assignment 7, 2 s (the best) in 8
    best = {"resnet": 2 * 1.0 + 1 * 2.0, "bert": 5 * 2.0}
    got = {"resnet": 2 * 3.0 + 1 * 2.0, "bert": 5 * 2.0}
    pooled, mean = truth.top_k(scores, (1,))
    assert pooled[0] == pytest.approx(sum(best.values()) / sum(got.values()))
    assert mean[0] == pytest.approx(np.mean([best[n] / got[n] for n in best]))
    assert truth.slice_scores(scores) == pytest.approx({"resnet": 0.5, "bert": 1.0})


def test_failure_ranked_first_counts_as_very_slow():
    truth = Assignments(np.array([0, 0]), np.array([NAN, 2.0]))
    pooled, _ = truth.top_k(np.array([1.0, 0.0]), (1, 2))
    assert pooled == pytest.approx([FLOOR, 1.0])


def test_empty_single_and_all_failed():
    empty = Assignments(np.array([], int), np.array([]))
    assert all(math.isnan(v) for k, v in empty.evaluate(np.array([])).items() if k != "assignments")
    one = Assignments(np.array([3]), np.array([0.1])).evaluate(np.array([NAN]))
    assert one["top1"] == one["top5_mean"] == 1.0 and math.isnan(one["pairwise"]) and math.isnan(one["spearman"])
    failed = Assignments(np.array([0, 0]), np.array([NAN, NAN])).evaluate(np.array([1.0, 2.0]))
    assert math.isnan(failed["top1"]) and math.isnan(failed["pairwise"]) and failed["assignments"] == 0
    # An all-failed assignment takes nothing away from the others.
    mixed = Assignments(np.array([0, 0, 1, 1]), np.array([NAN, NAN, 1.0, 2.0])).evaluate(np.array([1.0, 2.0, 2.0, 1.0]))
    assert mixed["top1"] == mixed["top1_mean"] == mixed["pairwise"] == mixed["spearman"] == 1.0


def test_nan_scores_rank_last():
    truth = Assignments(np.array([0, 0]), np.array([1.0, 2.0]))
    assert truth.evaluate(np.array([NAN, -1e9]))["top1"] == pytest.approx(0.5)
    assert truth.evaluate(np.array([NAN, NAN]))["pairwise"] == 0.5


def test_wrong_number_of_scores_is_refused():
    with pytest.raises(ValueError, match="3 scores for 2 programs"):
        Assignments(np.array([0, 0]), np.array([1.0, 2.0])).evaluate(np.zeros(3))


def test_pairwise_and_spearman_by_hand():
    # labels by latency 1 < 2 < 3; scores order 1, 3, 2: one of three pairs is wrong.
    truth = Assignments(np.zeros(3, int), np.array([1.0, 2.0, 3.0]))
    scores = np.array([3.0, 1.0, 2.0])
    assert truth.pairwise(scores)[0] == pytest.approx(2 / 3)
    assert truth.spearman(scores)[0] == pytest.approx(1 - 6 * (0 + 1 + 1) / (3 * 8))
    assert truth.pairwise(np.array([1.0, 1.0, 0.0]))[0] == pytest.approx((0.5 + 1 + 1) / 3)
    assert truth.spearman(np.ones(3))[0] == 0.0


@pytest.mark.parametrize("seed", range(5))
def test_against_plain_loops(seed):
    rng = np.random.default_rng(seed)
    member = rng.integers(0, 6, 200)
    latency = rng.choice([1.0, 2.0, 3.0, 5.0, NAN], 200)
    scores = rng.choice([0.0, 0.5, 1.0, 1.5, 2.0, NAN], 200) if seed % 2 else rng.normal(size=200)
    truth = Assignments(member, latency)
    pairwise, rho = truth.pairwise(scores), truth.spearman(scores)
    clean = np.where(np.isnan(scores), -1e30, scores)
    for a in range(6):
        rows = np.flatnonzero(member == a)
        label = np.where(np.isnan(latency[rows]), 0.0, np.nanmin(latency[rows]) / latency[rows])
        won = total = 0.0
        for i, j in itertools.combinations(range(len(rows)), 2):
            if label[i] != label[j]:
                total += 1
                d = clean[rows[i]] - clean[rows[j]]
                won += 0.5 if d == 0 else float((d > 0) == (label[i] > label[j]))
        assert pairwise[a] == pytest.approx(won / total)
        assert rho[a] == pytest.approx(spearmanr(clean[rows], label).statistic)


def test_ties_do_not_follow_the_order_of_the_file():
    """A constant model must not profit from logs that list the best programs first."""
    member = np.repeat(np.arange(50), 20)
    latency = np.tile(np.arange(1.0, 21.0), 50)
    assert Assignments(member, latency).evaluate(np.zeros(1000))["top1_mean"] < 0.5


def test_labels_and_tasks_give_networks_platforms_operators():
    labels = pd.DataFrame(
        {"platform": ["a", "a", "b", "b"], "task": [1, 1, 1, 2], "latency_s": [1.0, 2.0, 1.0, 1.0], "program": [1, 2, 1, 3]}
    )
    tasks = pd.DataFrame({"task": [1, 2], "operator": ["conv2d", "matmul"], "networks": [{"net": 3.0}, {}]})
    truth = Assignments.of(labels, tasks)
    assert set(truth.use.names) == {"net on a", "net on b", "operator matmul on b"}
    got = report(truth, np.array([0.0, 1.0, 0.0, 0.0]))
    assert got["by_platform"]["a"]["top1"] == pytest.approx(0.5) and got["by_platform"]["b"]["top1"] == 1.0
    assert got["by_operator"]["conv2d"]["top1"] == pytest.approx((3 + 3) / (6 + 3))
    assert got["top1"] == pytest.approx((3 + 3 + 1) / (6 + 3 + 1)) and got["top1_mean"] == pytest.approx((0.5 + 1 + 1) / 3)


def test_continual_by_hand():
    r = np.array([[0.9, NAN, NAN], [0.8, 0.7, NAN], [0.85, 0.6, 0.95]])
    slices = {"conv2d": np.array([[0.9, 0, 0], [0.9, 0.9, 0], [0.4, 0.9, 1.0]]), "softmax": np.full((3, 3), NAN)}
    got = continual(r, slices, ["x", "y", "z"])
    assert got.average_accuracy == pytest.approx((0.85 + 0.6 + 0.95) / 3)
    assert got.backward_transfer == pytest.approx((-0.05 - 0.1) / 2)
    assert got.forgetting == pytest.approx((0.05 + 0.1) / 2)
    assert got.worst_slice == ("x", "conv2d") and got.worst_slice_drop == pytest.approx(0.5)
    alone = continual(np.array([[0.5]]))
    assert alone.average_accuracy == 0.5 and math.isnan(alone.forgetting) and alone.worst_slice == ("", "")
