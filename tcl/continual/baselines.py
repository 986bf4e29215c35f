"""What continual distillation is compared with, on the same programs and labels. Each returns the model(s) and plain JSON.

scratch       a Mamba on the platform's own measurements, nothing else
fine_tune     the previous platform's Mamba, trained on (the usual transfer learning; forgets)
frozen        the previous platform's Mamba as it is
joint         MTL-TLP's scheme (Zhai et al., TLP, arXiv 2211.03578, section 5) on a Mamba: a shared trunk and one head a platform,
              trained on all platforms at once: it keeps all data, and grows with the platforms
hardware      the attention model with hardware features (arXiv 2304.05430) on all platforms at once
unprotected   `Settings(protect="none")` of `tcl.continual.distill`: distillation into one network, nothing protected
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from tcl.continual.distill import Settings
from tcl.continual.knowledge_base import Shape, copied
from tcl.models.base import Examples, Inputs
from tcl.models.hardware_attention import HardwareAttention
from tcl.models.mamba import Mamba, MambaNetwork
from tcl.models.neural import Batch, NeuralModel
from tcl.progress import Progress
from tcl.training.loop import Trainer
from tcl.training.metrics import Assignments


def trainer_of(settings: Settings, seed: int, progress: Progress | None = None, epochs: int | None = None) -> Trainer:
    """The trainer that the column gets, so that methods differ in nothing else."""
    return Trainer(
        seed=seed, epochs=epochs or settings.epochs, lists=settings.lists, list_size=settings.list_size,
        learning_rate=settings.learning_rate, loss=settings.loss, device="cpu", progress=progress or Progress(),
    )  # fmt: skip


def scratch(shape: Shape, train: Examples, trainer: Trainer) -> Mamba:
    model = shape.mamba(trainer.seed)
    trainer.train(model, train, None)
    return model


def fine_tune(shape: Shape, previous: Mamba, train: Examples, trainer: Trainer) -> Mamba:
    model = shape.mamba()
    model.network.load_state_dict(copied(previous.network.state_dict()))
    trainer.train(model, train, None)
    return model


def hardware(trains: Sequence[Examples], trainer: Trainer) -> HardwareAttention:
    model = HardwareAttention(seed=trainer.seed)
    trainer.train(model, concatenated(trains), None)
    return model


def joint(shape: Shape, trains: Sequence[Examples], trainer: Trainer) -> Joint:
    everything = concatenated(trains)
    model = Joint(shape, len(everything.inputs.platform), trainer.seed)
    trainer.train(model, everything, None)
    return model


class Joint(NeuralModel):
    """A shared Mamba trunk and one head a platform. Which platform a program is scored for is its row in `Inputs.platform`."""

    name = "joint"

    def __init__(self, shape: Shape, platforms: int, seed: int = 0) -> None:
        self.shape, self.platforms = shape, platforms
        super().__init__(seed=seed)

    def build(self) -> nn.Module:
        return _JointNetwork(self.shape.mamba(self.settings["seed"]).network, self.platforms)

    def batch(self, inputs: Inputs, rows: Any) -> Batch:
        return _JointBatch(**vars(super().batch(inputs, rows)), head=torch.from_numpy(np.asarray(inputs.platform_of[rows], dtype=np.int64)))


@dataclass
class _JointBatch(Batch):
    head: torch.Tensor | None = None


class _JointNetwork(nn.Module):
    def __init__(self, trunk: MambaNetwork, platforms: int) -> None:
        super().__init__()
        self.trunk = trunk
        self.heads = nn.ModuleList(copy.deepcopy(trunk.head) for _ in range(platforms))
        self.head = nn.Identity()
        del trunk.head

    def forward(self, batch: _JointBatch) -> torch.Tensor:
        x = self.trunk(batch)
        every = torch.cat([head(x) for head in self.heads], dim=1)
        assert batch.head is not None
        return every.gather(1, batch.head[:, None])


def concatenated(parts: Sequence[Examples]) -> Examples:
    """Examples of several platforms of one dataset as one (their task and platform tables are the same)."""
    tokens = [p.inputs.tokens for p in parts]
    merged = replace(
        tokens[0], kind=np.concatenate([t.kind for t in tokens]), numbers=np.concatenate([t.numbers for t in tokens]),
        length=np.concatenate([t.length for t in tokens]), program=None,
    )  # fmt: skip
    inputs = Inputs(
        merged, parts[0].inputs.task, np.concatenate([p.inputs.task_of for p in parts]), parts[0].inputs.platform,
        np.concatenate([p.inputs.platform_of for p in parts]),
    )  # fmt: skip
    assignment = np.concatenate([p.assignment for p in parts])
    truths = [p.truth for p in parts]
    assert all(isinstance(t, Assignments) for t in truths)
    latency = np.concatenate([t.latency_s for t in truths if isinstance(t, Assignments)])
    return Examples(
        inputs, np.concatenate([p.label for p in parts]), assignment, np.concatenate([p.program for p in parts]),
        np.concatenate([p.task for p in parts]), Assignments(assignment, np.where(np.isfinite(latency), latency, np.nan)),
    )  # fmt: skip
