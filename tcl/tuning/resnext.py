"""ResNeXt (arXiv 1611.05431): bottlenecks whose middle convolution works in groups. transformers has no definition of it.

`resnext50()` is ResNeXt-50 (32x4d), table 1 of the paper. Attribute names are those that `tcl.tuning.networks` folds batch
normalisation by.
"""

from __future__ import annotations

import torch
from torch import nn

GROUPS, GROUP_WIDTH = 32, 4
STAGES = ((3, 256), (4, 512), (6, 1024), (3, 2048))
"""(blocks, channels out) of each stage; the middle width starts at GROUPS x GROUP_WIDTH and doubles."""


class ConvNorm(nn.Module):
    def __init__(self, inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1, relu: bool = True) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
        self.normalization = nn.BatchNorm2d(outputs)
        self.activation = nn.ReLU() if relu else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, C, H, W) to (N, C', H / stride, W / stride)."""
        return self.activation(self.normalization(self.convolution(x)))


class Bottleneck(nn.Module):
    def __init__(self, inputs: int, middle: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            ConvNorm(inputs, middle, 1), ConvNorm(middle, middle, 3, stride, GROUPS), ConvNorm(middle, outputs, 1, relu=False)
        )
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else ConvNorm(inputs, outputs, 1, stride, relu=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


def resnext50(classes: int = 1000) -> nn.Module:
    """(N, 3, H, W) to (N, classes); 25.0 million parameters."""
    layers: list[nn.Module] = [ConvNorm(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for stage, (blocks, outputs) in enumerate(STAGES):
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            layers.append(Bottleneck(channels, GROUPS * GROUP_WIDTH << stage, outputs, stride))
            channels = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))
