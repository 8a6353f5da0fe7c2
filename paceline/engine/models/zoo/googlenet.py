"""Builds GoogLeNet (Szegedy et al. 2015, "Going Deeper with Convolutions"), without batch normalisation, as published.

Its two auxiliary classifiers are left out: they help the first layers of a deep network without normalisation, and
later work, also by its authors, found that they do little. 6,998,552 parameters for 1000 classes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

# Table 1 of the paper: 1x1; 3x3 reduce, 3x3; 5x5 reduce, 5x5; pool projection. A None is a max-pool of stride 2.
_INCEPTIONS: tuple[tuple[int, int, int, int, int, int] | None, ...] = (
    (64, 96, 128, 16, 32, 32),
    (128, 128, 192, 32, 96, 64),
    None,
    (192, 96, 208, 16, 48, 64),
    (160, 112, 224, 24, 64, 64),
    (128, 128, 256, 24, 64, 64),
    (112, 144, 288, 32, 64, 64),
    (256, 160, 320, 32, 128, 128),
    None,
    (256, 160, 320, 32, 128, 128),
    (384, 192, 384, 48, 128, 128),
)


class Inception(nn.Module):
    """Concatenates four branches along the channels: 1x1, 3x3, 5x5 and pooling, each behind a 1x1 convolution."""

    def __init__(self, inputs: int, one: int, reduce3: int, three: int, reduce5: int, five: int, pooled: int) -> None:
        super().__init__()
        self.one = _conv(inputs, one, 1)
        self.three = nn.Sequential(_conv(inputs, reduce3, 1), _conv(reduce3, three, 3))
        self.five = nn.Sequential(_conv(inputs, reduce5, 1), _conv(reduce5, five, 5))
        self.pooled = nn.Sequential(nn.MaxPool2d(3, 1, padding=1), _conv(inputs, pooled, 1))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat((self.one(x), self.three(x), self.five(x), self.pooled(x)), 1)


class GoogLeNet(nn.Module):
    """Maps [n, 3, 224, 224] to logits [n, 1000]."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [
            _conv(3, 64, 7, stride=2),
            nn.MaxPool2d(3, 2, ceil_mode=True),
            nn.LocalResponseNorm(5),
            _conv(64, 64, 1),
            _conv(64, 192, 3),
            nn.LocalResponseNorm(5),
            nn.MaxPool2d(3, 2, ceil_mode=True),
        ]
        inputs = 192
        for sizes in _INCEPTIONS:
            if sizes is None:
                layers.append(nn.MaxPool2d(3, 2, ceil_mode=True))
                continue
            layers.append(Inception(inputs, *sizes))
            inputs = sizes[0] + sizes[2] + sizes[4] + sizes[5]
        self.features = nn.Sequential(*layers)
        self.features.add_module("final_pool", nn.AvgPool2d(7, 1))
        self.output = nn.Sequential(nn.Flatten(), nn.Dropout(0.4), nn.Linear(inputs, 1000))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.output(self.features(x))
        return logits


def _conv(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Module:
    return nn.Sequential(nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2), nn.ReLU(inplace=True))
