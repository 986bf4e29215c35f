"""TLP (arXiv 2211.03578): one attention layer and two residual blocks over schedule primitives, about 676 thousand parameters."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tcl.models.neural import Batch, NeuralModel, T, TokenEmbedding


class TLPNetwork(nn.Module):
    """Up-sampling, multi-head self-attention, residual blocks, the sum over tokens, and a head (TLP, figure 6).

    The task's numbers are added to every token, which TLP does not do: it gives the baseline what the others get.
    """

    def __init__(self, width: int = 256, heads: int = 8) -> None:
        super().__init__()
        self.heads = heads
        self.embedding = TokenEmbedding(width)
        self.task = nn.Linear(T, width)
        self.up = nn.Linear(width, width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)) for _ in range(2))
        self.head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, batch: Batch) -> torch.Tensor:
        mask = batch.mask
        x = F.relu(self.embedding(batch.kind, batch.numbers) + self.task(batch.task)[:, None])
        x = F.relu(self.up(x))
        b, n, c = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        allowed = None if bool(mask.all()) else mask[:, None, None, :] | ~mask.any(1)[:, None, None, None]
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        x = x + self.out(attended.transpose(1, 2).reshape(b, n, c))
        for block in self.blocks:
            x = x + block(x)
        return torch.einsum("blc,bl->bc", x, mask.to(x.dtype)) / 32  # a sum, scaled to about a mean


class TLP(NeuralModel):
    name = "tlp"

    def __init__(self, seed: int = 0, width: int = 256, heads: int = 8) -> None:
        super().__init__(seed=seed, width=width, heads=heads)

    def build(self) -> nn.Module:
        return TLPNetwork(self.settings["width"], self.settings["heads"])
