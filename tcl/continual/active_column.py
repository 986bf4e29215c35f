"""The active column: a second Mamba that learns the new platform, with lateral connections from the frozen knowledge base.

After Progress & Compress (arXiv 1805.06370, section 3.1) and progressive networks (arXiv 1606.04671): the input of each block, and
the decoder, get what an adapter (a two-layer perceptron, its last layer 0 at the start) makes of the knowledge base's state at that
level. Our reconstruction: states are pooled over the program, so an adapter is small, and the column starts from the knowledge
base's weights for the platform nearest to the new one: from 10 % of the programs, random weights do not get there.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tcl.continual.knowledge_base import Shape, bytes_of, copied
from tcl.continual.slots import Weights
from tcl.files import load_tensors
from tcl.models.base import Inputs
from tcl.models.mamba import MambaNetwork
from tcl.models.neural import Batch, NeuralModel

ADAPTER = 12
"""Inner width of an adapter."""


class Adapter(nn.Module):
    """(B, n) -> (B, n); 0 until it is trained."""

    def __init__(self, n: int, inner: int = ADAPTER) -> None:
        super().__init__()
        self.norm, self.down, self.up = nn.LayerNorm(n), nn.Linear(n, inner), nn.Linear(inner, n)
        nn.init.zeros_(self.up.weight)
        nn.init.zeros_(self.up.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.up(F.silu(self.down(self.norm(x))))


@dataclass
class ColumnBatch(Batch):
    """A batch with the knowledge base's states: (B, layers + 2, width), or None to compute them."""

    states: torch.Tensor | None = None


class ColumnNetwork(nn.Module):
    """The column's own Mamba and its adapters. The frozen network is not a part of it: it is neither trained nor saved with it."""

    def __init__(self, own: MambaNetwork, base: MambaNetwork | None) -> None:
        super().__init__()
        self.own = own
        self.frozen = (base,)  # a tuple hides the module from torch
        levels = len(own.blocks) if base is not None else 0
        self.adapters = nn.ModuleList(Adapter(own.width) for _ in range(levels))
        self.decoder = Adapter(own.decoded) if base is not None else None

    @property
    def head(self) -> nn.Module:
        return self.own.head

    def base_states(self, batch: Batch) -> torch.Tensor:
        base = self.frozen[0]
        assert base is not None
        with torch.no_grad():
            return torch.stack(base.hidden(batch), dim=1)

    def forward(self, batch: Batch) -> torch.Tensor:
        base = self.frozen[0]
        if base is None or self.decoder is None:
            return self.own(batch)
        known = getattr(batch, "states", None)
        known = self.base_states(batch) if known is None else known
        lateral = [adapter(known[:, i]) for i, adapter in enumerate(self.adapters)]
        with torch.no_grad():
            read = base.decode(list(known.unbind(1)), batch)
        return self.own(batch, lateral) + self.decoder(read)


def decoded(network: MambaNetwork) -> int:
    """Width of what the head reads."""
    return next(m.in_features for m in network.head.modules() if isinstance(m, nn.Linear))


class ActiveColumn(NeuralModel):
    """A cost model like any other, trained by `tcl.training.loop.Trainer`."""

    name = "active_column"

    def __init__(self, shape: Shape, seed: int = 0, start: Weights | None = None, base: Weights | None = None) -> None:
        """start: weights of the column's Mamba (None: random). base: those of the frozen knowledge base (None: no lateral connections)."""
        self.shape = shape
        self._frozen = None
        if base is not None:
            self._frozen = shape.mamba().network
            self._frozen.load_state_dict(base)
            self._frozen.requires_grad_(False).eval()
        super().__init__(seed=seed)
        if start is not None:
            self.network.own.load_state_dict(copied(start))
        self._known: tuple[Inputs, torch.Tensor] | None = None

    def build(self) -> nn.Module:
        return ColumnNetwork(self.shape.mamba(self.settings["seed"]).network, self._frozen)

    def remember(self, inputs: Inputs) -> None:
        """Compute the frozen states of these programs once instead of once an epoch."""
        if self._frozen is None:
            return
        states = torch.empty(len(inputs), self.shape.layers + 2, self.shape.width)
        for rows, batch in self.batches(inputs):
            states[torch.from_numpy(rows)] = self.network.base_states(batch)
        self._known = (inputs, states)

    def batch(self, inputs: Inputs, rows: Any) -> Batch:
        batch = super().batch(inputs, rows)
        if self._known is None or self._known[0] is not inputs:
            return batch
        return ColumnBatch(**vars(batch), states=self._known[1][torch.from_numpy(rows)])

    def size_bytes(self) -> int:
        return bytes_of(dict(self.network.state_dict()))

    def save_weights(self, path: Path) -> None:
        from safetensors.torch import save_file

        draft = path.with_name(f".{path.name}")
        save_file({k: v.detach().contiguous().clone() for k, v in self.network.state_dict().items()}, draft)
        draft.replace(path)

    def load_weights(self, path: Path) -> None:
        self.network.load_state_dict(load_tensors(path))
