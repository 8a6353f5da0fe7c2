"""What several families share."""

from __future__ import annotations

from torch import nn


def scaled(units: int, width: float) -> int:
    """`units` times `width`, and never none."""
    return max(1, round(units * width))


def conv_bn(inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> list[nn.Module]:
    """A convolution that keeps the side (but for its stride), normalised over the batch."""
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
    return [convolution, nn.BatchNorm2d(outputs)]
