"""Builds a multi-layer perceptron with two hidden layers."""

from __future__ import annotations

import math

from torch import nn

from paceline.engine.models.layers import scaled


def mlp(shape: tuple[int, int, int], classes: int, width: float) -> nn.Module:
    """Returns two hidden layers of 128 * width ReLU units."""
    inputs, hidden = math.prod(shape), scaled(128, width)
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(inputs, hidden),
        nn.ReLU(inplace=True),
        nn.Linear(hidden, hidden),
        nn.ReLU(inplace=True),
        nn.Linear(hidden, classes),
    )
