"""Online EWC against values worked out by hand."""

from __future__ import annotations

import pytest
import torch

from tcl.continual.ewc import diagonal_fisher, normalised, penalty, updated


def test_fisher_is_the_mean_squared_gradient():
    # loss_n = (w . x_n)^2 / 2 has the gradient (w . x_n) x_n. w = (1, 2): x = (1, 0) gives (1, 0), x = (1, 1) gives (3, 3).
    w = torch.tensor([1.0, 2.0], requires_grad=True)
    unused = torch.tensor([5.0], requires_grad=True)
    xs = [torch.tensor([1.0, 0.0]), torch.tensor([1.0, 1.0])]
    fisher = diagonal_fisher((lambda x=x: (w @ x) ** 2 / 2 for x in xs), {"w": w, "unused": unused})
    torch.testing.assert_close(fisher["w"], torch.tensor([(1 + 9) / 2, 9 / 2]))
    torch.testing.assert_close(fisher["unused"], torch.zeros(1))


def test_a_sample_without_a_finite_gradient_is_left_out():
    w = torch.tensor([2.0], requires_grad=True)
    fisher = diagonal_fisher((lambda k=k: (w * k).sum() for k in (3.0, float("inf"))), {"w": w})
    torch.testing.assert_close(fisher["w"], torch.tensor([9.0]))
    assert float(diagonal_fisher([], {"w": w})["w"]) == 0


def test_the_running_estimate_fades():
    first = normalised({"a": torch.tensor([1.0, 3.0]), "b": torch.tensor([2.0])})  # mean 2
    torch.testing.assert_close(first["a"], torch.tensor([0.5, 1.5]))
    running = updated(updated({}, first, 0.9), {"a": torch.tensor([1.0, 0.0]), "b": torch.tensor([0.0])}, 0.9)
    torch.testing.assert_close(running["a"], torch.tensor([1.45, 1.35]))
    torch.testing.assert_close(running["b"], torch.tensor([0.9]))


def test_penalty_and_its_gradient():
    w = torch.tensor([1.0, 2.0], requires_grad=True)
    value = penalty({"w": w}, {"w": torch.tensor([0.0, 2.5])}, {"w": torch.tensor([4.0, 8.0])})
    assert float(value.detach()) == pytest.approx(4 * 1 / 2 + 8 * 0.25 / 2)
    value.backward()
    torch.testing.assert_close(w.grad, torch.tensor([4.0, -4.0]))
    assert float(penalty({"w": w}, {"w": w}, {}).detach()) == 0
