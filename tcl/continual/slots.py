"""What a knowledge base keeps of one platform beside the shared trunk: a small difference that is folded into the trunk's weights.

Our reconstruction. An output head alone cannot re-rank schedules for another cache or warp size, and a whole network per platform
would grow with every platform. A slot is in between: every vector of the network gets an offset (BitFit, Ben Zaken et al.,
arXiv 2106.10199, extended by the last layer), every large matrix a product of two thin ones (LoRA, Hu et al., arXiv 2106.09685).
Trunk plus slot *is* a plain `tcl.models.mamba.MambaNetwork`, so everything that reads a cost model reads a platform's.
"""

from __future__ import annotations

import torch

Weights = dict[str, torch.Tensor]

LOW_RANK = ("join.weight", "in_proj.weight", "out_proj.weight", "encoder.1.weight", "residual.0.weight")
"""Ends of the names of the matrices that get a low-rank difference, beside the head's."""


def empty_slot(trunk: Weights, rank: int) -> Weights:
    """A slot of zeros for `trunk`: name -> offset, or name + ".up" (out, rank) and name + ".down" (rank, in)."""
    slot: Weights = {}
    for name, value in trunk.items():
        if value.ndim == 1 or (value.ndim == 2 and value.shape[0] == 1):  # all vectors, and the last layer
            slot[name] = torch.zeros_like(value)
        elif rank and (name.endswith(LOW_RANK) or name.startswith("head.")):
            slot[f"{name}.up"] = value.new_zeros(value.shape[0], rank)
            slot[f"{name}.down"] = value.new_zeros(rank, value.shape[1])
    return slot


def slot_of_difference(trunk: Weights, weights: Weights, rank: int, generator: torch.Generator) -> Weights:
    """The slot with which the trunk comes nearest to `weights`: differences of vectors whole, of matrices cut to their `rank` largest
    singular values (Eckart and Young). Parts that are 0 start as LoRA's do (`down` random, `up` 0), so that they can be trained."""
    slot = empty_slot(trunk, rank)
    for name in [k for k in slot if not k.endswith((".up", ".down"))]:
        slot[name] = (weights[name] - trunk[name]).detach().clone()
    for name in [k.removesuffix(".up") for k in slot if k.endswith(".up")]:
        u, s, vt = torch.linalg.svd((weights[name] - trunk[name]).detach(), full_matrices=False)
        root = s[:rank].clamp(min=0).sqrt()
        noise = torch.randn(rank, vt.shape[1], generator=generator) / vt.shape[1] ** 0.5
        slot[f"{name}.up"] = u[:, :rank] * root
        slot[f"{name}.down"] = torch.where(root[:, None] > 1e-6, root[:, None] * vt[:rank], noise)
    return slot


def fold(trunk: Weights, slot: Weights) -> Weights:
    """The weights of trunk plus slot, with gradients to both. All zeros in the slot give exactly the trunk."""
    folded = {}
    for name, value in trunk.items():
        if name in slot:
            value = value + slot[name]  # noqa: PLW2901
        elif f"{name}.up" in slot:
            value = value + slot[f"{name}.up"] @ slot[f"{name}.down"]  # noqa: PLW2901
        folded[name] = value
    return folded
