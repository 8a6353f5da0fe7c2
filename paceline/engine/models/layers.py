"""Builds the layers that several families of networks share."""

from __future__ import annotations

from torch import nn


def scaled(units: int, width: float) -> int:
    """Returns `units` times `width`, and at least 1."""
    return max(1, round(units * width))


def conv_bn(inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> list[nn.Module]:
    """Returns a convolution that keeps the side (except for its stride), and batch normalisation of what it gives."""
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
    return [convolution, nn.BatchNorm2d(outputs)]
