"""Attention over the program's primitives together with hardware features (arXiv 2304.05430).

Our reconstruction of its joint network: primitives, the task and the platform are tokens of one sequence. On a platform whose
numbers are not known its token says so (see `tcl.features.context.platform_features`).
"""

from __future__ import annotations

import torch
from torch import nn

from tcl.models.neural import Batch, NeuralModel, Q, T, TokenEmbedding


class HardwareAttentionNetwork(nn.Module):
    def __init__(self, width: int = 96, heads: int = 4, layers: int = 2) -> None:
        super().__init__()
        self.embedding = TokenEmbedding(width)
        self.task = nn.Sequential(nn.Linear(T, width), nn.ReLU(), nn.Linear(width, width))
        self.platform = nn.Sequential(nn.Linear(Q, width), nn.ReLU(), nn.Linear(width, width))
        layer = nn.TransformerEncoderLayer(width, heads, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.Linear(3 * width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, batch: Batch) -> torch.Tensor:
        x = torch.cat(
            [self.task(batch.task)[:, None], self.platform(batch.platform)[:, None], self.embedding(batch.kind, batch.numbers)], dim=1
        )
        mask = torch.cat([batch.mask.new_ones(len(x), 2), batch.mask], dim=1)
        x = self.encoder(x, src_key_padding_mask=None if bool(mask.all()) else ~mask)
        weight = mask[:, 2:].to(x.dtype)
        pooled = torch.einsum("blc,bl->bc", x[:, 2:], weight) / weight.sum(1, keepdim=True).clamp(min=1)
        return torch.cat([x[:, 0], x[:, 1], pooled], dim=1)


class HardwareAttention(NeuralModel):
    name = "hardware_attention"

    def __init__(self, seed: int = 0, width: int = 96, heads: int = 4, layers: int = 2) -> None:
        super().__init__(seed=seed, width=width, heads=heads, layers=layers)

    def build(self) -> nn.Module:
        return HardwareAttentionNetwork(self.settings["width"], self.settings["heads"], self.settings["layers"])
