"""A recurrent network over schedule primitives (TLP, arXiv 2211.03578, compares with one)."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from tcl.models.neural import Batch, NeuralModel, T, TokenEmbedding


class LSTMNetwork(nn.Module):
    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.embedding = TokenEmbedding(width)
        self.task = nn.Linear(T, width)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.head = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, batch: Batch) -> torch.Tensor:
        """The last state beside the task's vector: (B, 2 * width)."""
        task = self.task(batch.task)
        x = self.embedding(batch.kind, batch.numbers) + task[:, None]
        packed = pack_padded_sequence(x, batch.length.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False)
        _, (hidden, _) = self.lstm(packed)
        return torch.cat([hidden[-1], task], dim=1)


class LSTM(NeuralModel):
    name = "lstm"

    def __init__(self, seed: int = 0, width: int = 96) -> None:
        super().__init__(seed=seed, width=width)

    def build(self) -> nn.Module:
        return LSTMNetwork(self.settings["width"])
