"""What all neural cost models share: batches without padding waste, prediction, embedding, weights on disk."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from tcl.features.context import PLATFORM_FEATURES, TASK_FEATURES
from tcl.features.flat import FLAT_FEATURES
from tcl.features.vocabulary import KINDS, NUMBERS
from tcl.files import load_tensors
from tcl.models.base import CostModel, Examples, Inputs, Trainer

P = len(NUMBERS)
T = len(TASK_FEATURES)
Q = len(PLATFORM_FEATURES)
D = len(FLAT_FEATURES) + T
_CHUNK = 16384
"""Programs whose tokens are read from disk at once."""


@dataclass
class Batch:
    """kind: int64 (B, L); numbers: float32 (B, L, P); length: int64 (B,); task: float32 (B, T); platform: float32 (B, Q); flat:
    float32 (B, D) for networks that read no sequence, else None. L is the longest length of this batch (at least 1)."""

    kind: torch.Tensor
    numbers: torch.Tensor
    length: torch.Tensor
    task: torch.Tensor
    platform: torch.Tensor
    flat: torch.Tensor | None

    @property
    def mask(self) -> torch.Tensor:
        """bool (B, L): the tokens that are not padding."""
        return torch.arange(self.kind.shape[1], device=self.kind.device) < self.length[:, None]


class Standardise(nn.Module):
    """(B, D) features less the mean and over the spread of the first data that the network was trained on; 0 before.

    Not a batch norm: a network that goes on to another platform, or that an earlier one is distilled into, keeps its yardstick.
    """

    def __init__(self, features: int) -> None:
        super().__init__()
        self.statistics: torch.Tensor
        self.register_buffer("statistics", torch.zeros(2, features))  # mean; 1 / spread

    def fit(self, features: np.ndarray) -> None:
        """features: float32 (n, D). Does nothing the second time."""
        if self.statistics[1].any():
            return
        mean, spread = features.mean(0, dtype=np.float64), features.std(0, dtype=np.float64)
        scale = np.where(spread > 1e-6, 1 / np.maximum(spread, 1e-3), 0.0)  # what never varied tells nothing yet
        self.statistics.copy_(torch.from_numpy(np.stack([mean, scale]).astype(np.float32)))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return ((features - self.statistics[0]) * self.statistics[1]).clamp(-6, 6)


class NeuralModel(CostModel):
    """A cost model whose score is `head(network(batch))`; subclasses build the network.

    A network maps a Batch to vectors (B, E) and has `head`, a module that maps them to (B, 1). It, or a module in it, says by an
    attribute `reads_flat` that it reads `Batch.flat`, and by `reads_tokens = False` that it reads nothing else.
    """

    batch_size = 1024
    """Programs a batch of prediction."""
    learning_rate = 2e-3
    """Peak rate of training where the trainer names none; chosen on validation parts."""

    def __init__(self, seed: int = 0, **settings: Any) -> None:
        super().__init__(seed=seed, **settings)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.network = self.build()
        self.device = torch.device("cpu")
        self.reads_flat = any(getattr(module, "reads_flat", False) for module in self.network.modules())
        self.reads_tokens = bool(getattr(self.network, "reads_tokens", True))

    @abstractmethod
    def build(self) -> nn.Module:
        """A new network from `self.settings`, its weights drawn from torch's generator (seeded by the caller)."""

    def fit(self, train: Examples, valid: Examples | None, trainer: Trainer) -> dict[str, Any]:
        return trainer.train(self, train, valid)

    def score(self, batch: Batch) -> torch.Tensor:
        """(B,) scores with gradients."""
        return self.network.head(self.network(batch)).squeeze(-1)

    def to(self, device: torch.device | str) -> NeuralModel:
        """Move the network; batches are made where it is."""
        self.device = torch.device(device)
        self.network.to(self.device)
        return self

    def predict(self, inputs: Inputs) -> np.ndarray:
        out = np.empty(len(inputs), dtype=np.float32)
        for rows, batch in self.batches(inputs):
            out[rows] = self.score(batch).float().cpu().numpy()
        return np.nan_to_num(out, nan=-1e9, posinf=1e9, neginf=-1e9)

    def embed(self, inputs: Inputs) -> np.ndarray:
        parts = [(rows, self.network(batch).float().cpu().numpy()) for rows, batch in self.batches(inputs)]
        width = parts[0][1].shape[1] if parts else 0
        out = np.empty((len(inputs), width), dtype=np.float32)
        for rows, part in parts:
            out[rows] = part
        return out

    def parameters(self) -> int:
        return sum(p.numel() for p in self.network.parameters())

    def batches(self, inputs: Inputs) -> Iterator[tuple[np.ndarray, Batch]]:
        """(rows, batch) for prediction: programs of like length together, so that almost nothing is padding."""
        self.network.eval()
        length = np.asarray(inputs.tokens.length)
        with torch.inference_mode():
            for start in range(0, len(inputs), _CHUNK):
                block = np.arange(start, min(start + _CHUNK, len(inputs)))
                rows = block if not self.reads_tokens else block[np.argsort(length[block], kind="stable")]
                part = inputs.take(rows)
                for at in range(0, len(rows), self.batch_size):
                    here = np.arange(at, min(at + self.batch_size, len(rows)))
                    yield rows[here], self.batch(part, here)

    def batch(self, inputs: Inputs, rows: np.ndarray) -> Batch:
        """The programs at `rows` (int (B,)) as tensors on the network's device."""
        tokens = inputs.tokens
        length = np.asarray(tokens.length[rows]).astype(np.int64)
        longest = max(int(length.max(initial=1)), 1)

        def tensor(array: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
            return torch.from_numpy(np.ascontiguousarray(array)).to(self.device, dtype)

        if not self.reads_tokens:
            kind, numbers = np.zeros((len(rows), 1), np.uint8), np.zeros((len(rows), 1, P), np.float16)
        else:
            kind, numbers = tokens.kind[rows, :longest], tokens.numbers[rows, :longest]
        return Batch(
            tensor(kind, torch.int64),
            tensor(numbers, torch.float32),
            torch.from_numpy(length).to(self.device),
            tensor(inputs.task[inputs.task_of[rows]], torch.float32),
            tensor(inputs.platform[inputs.platform_of[rows]], torch.float32),
            tensor(inputs.flat[rows], torch.float32) if self.reads_flat else None,
        )

    def _save_weights(self, folder: Path) -> None:
        from safetensors.torch import save_file

        save_file({k: v.contiguous().cpu() for k, v in self.network.state_dict().items()}, folder / "weights.safetensors")

    def _load_weights(self, folder: Path) -> None:
        self.network.load_state_dict(load_tensors(folder / "weights.safetensors"))


class TokenEmbedding(nn.Module):
    """A token's vector: what kind of primitive it is, plus a linear map of its numbers, scaled to about [0, 3]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.kind = nn.Embedding(len(KINDS), width, padding_idx=0)
        nn.init.normal_(self.kind.weight, std=0.5)
        self.numbers = nn.Linear(P, width)

    def forward(self, kind: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        """(…,) and (…, P) to (…, width)."""
        return self.kind(kind) + self.linear(numbers)

    def linear(self, numbers: torch.Tensor) -> torch.Tensor:
        """(…, P) to (…, width): what the numbers alone say."""
        return self.numbers(numbers * (1 / 4))
