"""TenSet-MLP's shape (Zheng et al., TenSet, NeurIPS 2021 datasets track): an encoder, a residual layer, a decoder; no sequence."""

from __future__ import annotations

import torch
from torch import nn

from tcl.models.neural import Batch, D, NeuralModel


class MLPNetwork(nn.Module):
    reads_flat = True
    reads_tokens = False

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.normal = nn.BatchNorm1d(D)
        self.encoder = nn.Sequential(nn.Linear(D, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.residual = nn.Sequential(nn.Linear(width, width), nn.ReLU())
        self.head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, batch: Batch) -> torch.Tensor:
        assert batch.flat is not None
        x = self.encoder(self.normal(batch.flat).clamp(-8, 8))  # a feature that training never saw vary must not explode
        return x + self.residual(x)


class MLP(NeuralModel):
    name = "mlp"

    def __init__(self, seed: int = 0, width: int = 256) -> None:
        super().__init__(seed=seed, width=width)

    def build(self) -> nn.Module:
        return MLPNetwork(self.settings["width"])
