"""The default cost model: Mamba blocks over the schedule primitives, and a decoder that reads them beside a summary of the program.

Our reconstruction of the paper's "Mamba encoder-decoder" (its layer sizes are not public). Encoder: consecutive primitives are
joined two by two into one step (half the steps, half the time: the blocks' convolution sees both anyway), then residual Mamba
blocks. Decoder: the mean of the joined primitives, the mean and the last of the blocks' states, and a summary of the program's flat
features (a small residual perceptron), read by one small network. What each part is worth: `tcl bench models` with `--set settings`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import nn

from tcl.features.vocabulary import KINDS
from tcl.models.neural import Batch, D, NeuralModel, Standardise, TokenEmbedding
from tcl.models.selective_scan import MambaBlock, pack

OCCURRENCES = 16
"""The first, second, … primitive of its kind in a program; later ones count as the last."""


class PrimitiveEmbedding(nn.Module):
    """A primitive's vector: its numbers' linear map, scaled and shifted by its kind and by its occurrence (FiLM, arXiv 1709.07871).

    The n-th split of programs of one sketch splits the same axis: occurrence tells axes apart where the sequence alone is slow to.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.tokens = TokenEmbedding(width)
        self.kind_scale = nn.Embedding(len(KINDS), width)
        self.place = nn.Embedding(OCCURRENCES, width)
        self.place_scale = nn.Embedding(OCCURRENCES, width)
        for table in (self.kind_scale, self.place, self.place_scale):
            nn.init.normal_(table.weight, std=0.3)

    def forward(self, kind: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        """(B, L) and (B, L, P) to (B, L, width)."""
        same = kind[:, :, None] == kind[:, None, :]
        place = same.tril(-1).sum(2).clamp(max=OCCURRENCES - 1)
        x = self.tokens.linear(numbers) * (1 + self.kind_scale(kind) + self.place_scale(place))
        return x + self.tokens.kind(kind) + self.place(place)


class Summary(nn.Module):
    """(B, D) flat features to (B, width): TenSet's perceptron in small, its input thinned out while training."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.standardise = Standardise(D)
        self.encoder = nn.Sequential(nn.Dropout(dropout), nn.Linear(D, width), nn.SiLU())
        self.residual = nn.Sequential(nn.Linear(width, width), nn.SiLU())

    def forward(self, flat: torch.Tensor) -> torch.Tensor:
        x = self.encoder(self.standardise(flat))
        return x + self.residual(x)


class MambaNetwork(nn.Module):
    """`summary` is the width of the summary of the flat features, 0 for none.

    `hidden` gives every layer's pooled state, for lateral connections between networks (`tcl.continual`)."""

    def __init__(
        self,
        width: int = 48,
        layers: int = 2,
        d_state: int = 16,
        stride: int = 2,
        expand: int = 2,
        summary: int = 96,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.width, self.stride, self.reads_flat = width, stride, summary > 0
        self.decoded = 3 * width + summary
        """Width of what `forward` returns."""
        self.embedding = PrimitiveEmbedding(width)
        self.join = nn.Linear(stride * width, width)
        self.blocks = nn.ModuleList(MambaBlock(width, d_state=d_state, expand=expand) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.last = nn.LayerNorm(width)
        self.summary = Summary(summary, dropout) if summary else None
        self.head = nn.Sequential(nn.Dropout(dropout), nn.Linear(self.decoded, 64), nn.SiLU(), nn.Linear(64, 1))

    def hidden(self, batch: Batch, lateral: Sequence[torch.Tensor] | None = None) -> list[torch.Tensor]:
        """The pooled state of the joined primitives and of each block, and the last block's last state: layers + 2 of (B, width).

        lateral: (B, width) a block, added to every step of its input.
        """
        x, offsets, steps = self._steps(batch)
        sequence = torch.repeat_interleave(torch.arange(len(steps), device=x.device), steps)
        states = [self._pool(x, sequence, steps)]
        for i, (norm, block) in enumerate(zip(self.norms, self.blocks, strict=True)):
            if lateral is not None:
                x = x + lateral[i][sequence]
            x = x + block.forward_packed(norm(x), offsets)
            states.append(self._pool(x, sequence, steps))
        padded = torch.cat([x, x.new_zeros(1, x.shape[1])])  # a program without primitives reads the zeros
        ends = torch.where(steps > 0, offsets[1:].to(x.device) - 1, len(x))
        return [*states, padded[ends]]

    def decode(self, states: list[torch.Tensor], batch: Batch) -> torch.Tensor:
        """(B, decoded): the first pooled, the last pooled and the last state, and the summary of the program."""
        parts = [self.last(states[-2]), self.last(states[-1]), self.last(states[0])]
        if self.summary is not None:
            assert batch.flat is not None
            parts.append(self.summary(batch.flat))
        return torch.cat(parts, dim=1)

    def forward(self, batch: Batch, lateral: Sequence[torch.Tensor] | None = None) -> torch.Tensor:
        return self.decode(self.hidden(batch, lateral), batch)

    def _steps(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Packed steps (tokens, width), their offsets, and how many each program has (B,)."""
        b, n = batch.kind.shape
        pad = -n % self.stride
        x = F.silu(self.embedding(batch.kind, batch.numbers)) * batch.mask[..., None]
        x = F.pad(x, (0, 0, 0, pad)).view(b, (n + pad) // self.stride, self.stride * self.width)
        steps = (batch.length + self.stride - 1) // self.stride
        packed, offsets = pack(self.join(x), steps)
        return packed, offsets, steps

    @staticmethod
    def _pool(x: torch.Tensor, sequence: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        total = x.new_zeros(len(steps), x.shape[1]).index_add(0, sequence, x)
        return total / steps.clamp(min=1)[:, None]


class Mamba(NeuralModel):
    name = "mamba"
    learning_rate = 5e-3

    def __init__(
        self, seed: int = 0, width: int = 48, layers: int = 2, d_state: int = 16, stride: int = 2, expand: int = 2, summary: int = 96,
        dropout: float = 0.1,
    ) -> None:  # fmt: skip
        super().__init__(
            seed=seed, width=width, layers=layers, d_state=d_state, stride=stride, expand=expand, summary=summary, dropout=dropout
        )

    def build(self) -> nn.Module:
        s = self.settings
        return MambaNetwork(s["width"], s["layers"], s["d_state"], s["stride"], s["expand"], s["summary"], s["dropout"])
