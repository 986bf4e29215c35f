"""Losses over lists of programs. All are vectorised over padded lists; a list without two different labels costs nothing.

Every loss takes scores, labels and mask, each (G, M): G lists of up to M programs; labels in [0, 1], higher is faster; mask is
False for padding. It returns a scalar with gradients: the mean over the lists that have something to tell.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

from tcl.errors import UserError

Loss = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def lambda_rank(scores: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor, sharpness: float = 4.0) -> torch.Tensor:
    """LambdaRank (Burges 2010) in the form of LambdaLoss (Wang et al. 2018): pairs weighted by what their swap costs in NDCG.

    A pair's weight is |gain_i - gain_j| * |1 / D(rank_i) - 1 / D(rank_j)| / max DCG, with D(r) = log2(1 + r) and ranks by the
    current scores. gain = 2^(sharpness * label) - 1: TLP has sharpness 1; a higher one cares more about the fastest programs,
    which the top-k score is about (our reconstruction; measured in `tcl bench models`).
    """
    labels = labels.masked_fill(~mask, 0.0)
    gains = (torch.exp2(sharpness * labels) - 1) * mask
    with torch.no_grad():
        order = scores.masked_fill(~mask, -torch.inf).argsort(dim=1, descending=True)
        ranks = torch.empty_like(order).scatter_(1, order, torch.arange(1, order.shape[1] + 1, device=order.device).expand_as(order))
        discount = 1 / torch.log2(1 + ranks.to(scores.dtype))
        ideal = gains.sort(dim=1, descending=True).values
        best = (ideal / torch.log2(2 + torch.arange(ideal.shape[1], device=ideal.device, dtype=ideal.dtype))).sum(1).clamp(min=1e-9)
        swap = (gains[:, :, None] - gains[:, None, :]).abs() * (discount[:, :, None] - discount[:, None, :]).abs() / best[:, None, None]
        swap *= _ordered(labels, mask)
    return _per_list((swap * F.softplus(scores[:, None, :] - scores[:, :, None])).sum((1, 2)), swap.sum((1, 2)) > 0)


def pairwise(scores: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """RankNet: the cross-entropy of "i is faster than j", each pair weighted by how far apart their labels are."""
    labels = labels.masked_fill(~mask, 0.0)
    weight = _ordered(labels, mask) * (labels[:, :, None] - labels[:, None, :]).abs()
    total = weight.sum((1, 2))
    return _per_list((weight * F.softplus(scores[:, None, :] - scores[:, :, None])).sum((1, 2)) / total.clamp(min=1e-9), total > 0)


def mse(scores: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Mean squared error to the label."""
    error = (scores - labels.masked_fill(~mask, 0.0)).square() * mask
    return error.sum() / mask.sum().clamp(min=1)


def listnet(scores: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor, temperature: float = 0.1) -> torch.Tensor:
    """ListNet (Cao et al. 2007): the cross-entropy between softmax(labels / temperature) and softmax(scores).

    Low temperatures put the target on the fastest programs: close to what top-1 asks for.
    """
    target = (labels / temperature).masked_fill(~mask, -torch.inf)
    some = mask.any(1)
    target = torch.softmax(target.masked_fill(~some[:, None], 0.0), dim=1)
    logs = torch.log_softmax(scores.masked_fill(~mask, -1e9), dim=1)
    varied = _ordered(labels.masked_fill(~mask, 0.0), mask).flatten(1).any(1)
    return _per_list(-(target * logs * mask).sum(1), varied)


LOSSES: dict[str, Loss] = {"lambda_rank": lambda_rank, "pairwise": pairwise, "mse": mse, "listnet": listnet}


def loss_named(name: str) -> Loss:
    if name not in LOSSES:
        raise UserError(f"There is no loss {name!r}.", hint=f"Choose one of: {', '.join(LOSSES)}.")
    return LOSSES[name]


def across(loss: Loss) -> Loss:
    """`loss` with all lists of a batch as one list: scores of different assignments are then compared too, as TLP trains."""

    def one_list(scores: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return loss(scores.reshape(1, -1), labels.reshape(1, -1), mask.reshape(1, -1))

    return one_list


def _ordered(labels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """bool (G, M, M): i is faster than j and both are real."""
    return (labels[:, :, None] > labels[:, None, :]) & mask[:, :, None] & mask[:, None, :]


def _per_list(cost: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    return (cost * counts).sum() / counts.sum().clamp(min=1)
