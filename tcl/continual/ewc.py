"""Online elastic weight consolidation: how much each weight matters to what was learned, as one running estimate.

Kirkpatrick et al. (arXiv 1612.00796) penalise a change of weight i by F_i (w_i - w*_i)^2 / 2, F the diagonal of the Fisher information.
Progress & Compress (arXiv 1805.06370, section 3.2) keeps one F for all earlier tasks: F = gamma * F + F_new, around the latest
weights, so that memory does not grow. Our reconstruction for ranking: a sample is one list of programs of one assignment, its
loss the ranking loss, and F_new is divided by its mean over all weights, so that one strength serves every platform.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch

from tcl.continual.slots import Weights


def diagonal_fisher(losses: Iterable[Callable[[], torch.Tensor]], weights: Weights) -> Weights:
    """The mean over samples of the squared gradient of each sample's loss (the empirical Fisher).

    losses: one function a sample that returns its scalar loss, computed from `weights` (leaves that require gradients). A sample
    whose gradient is not finite is left out. Returns name -> like the weight; zeros where there is no sample.
    """
    total = {k: torch.zeros_like(v) for k, v in weights.items()}
    count = 0
    for loss in losses:
        gradients = torch.autograd.grad(loss(), list(weights.values()), allow_unused=True)
        if not all(bool(torch.isfinite(g).all()) for g in gradients if g is not None):
            continue
        count += 1
        for name, gradient in zip(weights, gradients, strict=True):
            if gradient is not None:
                total[name] += gradient.detach() ** 2
    return {k: v / max(count, 1) for k, v in total.items()}


def normalised(fisher: Weights) -> Weights:
    """Divided by the mean over all weights (P&C normalises too: platforms with larger gradients do not count for more)."""
    mean = sum(float(v.sum()) for v in fisher.values()) / max(sum(v.numel() for v in fisher.values()), 1)
    return {k: v / mean for k, v in fisher.items()} if mean > 0 else fisher


def updated(running: Weights, new: Weights, gamma: float) -> Weights:
    """gamma * running + new; `running` empty: new."""
    return {k: gamma * running[k] + v for k, v in new.items()} if running else new


def penalty(weights: Weights, anchor: Weights, fisher: Weights) -> torch.Tensor:
    """sum F (w - w*)^2 / 2 over the weights that `fisher` names; a scalar with gradients to `weights`."""
    return sum(((fisher[k] * (weights[k] - anchor[k]) ** 2).sum() for k in fisher), torch.zeros(())) / 2
