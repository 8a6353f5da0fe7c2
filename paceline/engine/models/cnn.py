"""Builds a small convolutional network with batch normalisation."""

from __future__ import annotations

from torch import nn

from paceline.engine.models.layers import conv_bn, scaled


def cnn(shape: tuple[int, int, int], classes: int, width: float) -> nn.Module:
    """Returns three times 3x3 convolution, BatchNorm, ReLU, max-pool, with 32, 64, 128 channels times width.

    The mean over the picture follows, and one linear layer.
    """
    inputs = shape[0]
    layers: list[nn.Module] = []
    for units in (32, 64, 128):
        outputs = scaled(units, width)
        layers += conv_bn(inputs, outputs)
        layers += [nn.ReLU(inplace=True), nn.MaxPool2d(2, ceil_mode=True)]
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))
