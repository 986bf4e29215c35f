"""Losses: padding and hopeless lists cost nothing, the best order costs least, gradients push the right way."""

from __future__ import annotations

import pytest
import torch

from tcl.errors import UserError
from tcl.training.losses import LOSSES, across, lambda_rank, loss_named

RANKING = ["lambda_rank", "pairwise", "listnet"]


def lists():
    labels = torch.tensor([[1.0, 0.5, 0.2, 0.0], [0.3, 1.0, 0.0, 0.0]])
    mask = torch.tensor([[True, True, True, True], [True, True, False, False]])
    return labels, mask


@pytest.mark.parametrize("name", LOSSES)
def test_padding_changes_nothing(name):
    labels, mask = lists()
    scores = torch.tensor([[0.1, 0.4, -0.3, 0.2], [0.5, 0.2, 9.0, -9.0]], requires_grad=True)
    value = LOSSES[name](scores, labels, mask)
    value.backward()
    assert scores.grad[1, 2:].abs().max() == 0
    other = torch.tensor([[0.1, 0.4, -0.3, 0.2], [0.5, 0.2, -1.0, 5.0]])
    padded = labels.masked_fill(~mask, float("nan"))
    assert LOSSES[name](other, padded, mask).item() == pytest.approx(value.item(), rel=1e-5)


@pytest.mark.parametrize("name", RANKING)
def test_the_right_order_costs_less_and_gradients_lead_there(name):
    labels, mask = lists()
    right, wrong = labels * 3, -labels * 3
    assert LOSSES[name](right, labels, mask) < LOSSES[name](wrong, labels, mask)
    scores = torch.zeros_like(labels, requires_grad=True)
    LOSSES[name](scores + torch.tensor([0.0, 1e-3, 2e-3, 3e-3]), labels, mask).backward()
    assert scores.grad[0, 0] < 0 < scores.grad[0, 3]  # a step down the gradient raises the fastest, lowers the failure


@pytest.mark.parametrize("name", LOSSES)
def test_lists_that_tell_nothing_give_a_finite_loss_without_gradient(name):
    scores = torch.randn(3, 4, requires_grad=True)
    labels = torch.tensor([[0.0] * 4, [1.0] * 4, [0.7, 0, 0, 0]])
    mask = torch.tensor([[True] * 4, [True] * 4, [True, False, False, False]])
    value = LOSSES[name](scores, labels, mask)
    value.backward()
    assert torch.isfinite(value)
    if name != "mse":
        assert value.item() == 0 and scores.grad.abs().max() == 0
    assert torch.isfinite(LOSSES[name](scores, labels, torch.zeros_like(mask)))


def test_lambda_rank_agrees_with_a_loop():
    torch.manual_seed(0)
    scores, labels = torch.randn(7), torch.rand(7)
    order = scores.argsort(descending=True).tolist()
    gain = [2 ** (4 * float(y)) - 1 for y in labels]
    discount = {i: 1 / torch.log2(torch.tensor(2.0 + order.index(i))).item() for i in range(7)}
    best = sum(g / torch.log2(torch.tensor(2.0 + r)).item() for r, g in enumerate(sorted(gain, reverse=True)))
    expected = 0.0
    for i in range(7):
        for j in range(7):
            if labels[i] > labels[j]:
                weight = abs(gain[i] - gain[j]) * abs(discount[i] - discount[j]) / best
                expected += weight * torch.log1p(torch.exp(scores[j] - scores[i])).item()
    value = lambda_rank(scores[None], labels[None], torch.ones(1, 7, dtype=torch.bool))
    assert value.item() == pytest.approx(expected, rel=1e-4)


def test_across_compares_programs_of_different_lists():
    labels = torch.tensor([[1.0, 1.0], [0.1, 0.1]])
    mask = torch.ones(2, 2, dtype=torch.bool)
    scores = torch.zeros(2, 2, requires_grad=True)
    assert LOSSES["pairwise"](scores, labels, mask).item() == 0
    across(LOSSES["pairwise"])(scores, labels, mask).backward()
    assert (scores.grad[0] < 0).all() and (scores.grad[1] > 0).all()


def test_unknown_loss():
    with pytest.raises(UserError):
        loss_named("hinge")
