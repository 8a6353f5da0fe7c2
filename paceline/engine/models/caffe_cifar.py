"""Builds the two CIFAR-10 networks that come with Caffe: `cifar10_quick` and `cifar10_full` (examples/cifar10).

Both have three 5x5 convolutions with 32, 32, 64 channels and 3x3 pooling of stride 2: first the maximum, then means.
quick adds a hidden layer of 64 without an activation; full adds local response normalisation. Weights begin as Caffe's
files say: normal, with a standard deviation a layer. SpeeDO trains `cifar10_full`'s relatives.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import avg_pool2d

from paceline.core.errors import ConfigError
from paceline.engine.models.layers import scaled


class WithinChannelNorm(nn.Module):
    """Divides by (1 + alpha * mean of squares) ^ beta over 3x3 neighbours of one channel: Caffe's WITHIN_CHANNEL."""

    def __init__(self, alpha: float = 5e-5, beta: float = 0.75) -> None:
        super().__init__()
        self.alpha, self.beta = alpha, beta

    def forward(self, x: Tensor) -> Tensor:
        return x / (1 + self.alpha * avg_pool2d(x * x, 3, stride=1, padding=1)) ** self.beta


def cifar10_quick(shape: tuple[int, int, int], classes: int, width: float) -> nn.Module:
    """Returns `cifar10_quick`: 145,578 parameters on [3, 32, 32] with 10 classes, channels times width."""
    one, two, three, hidden = (scaled(units, width) for units in (32, 32, 64, 64))
    pixels = _left(shape[1]) * _left(shape[2])
    layers = [
        _normal(nn.Conv2d(shape[0], one, 5, padding=2), 1e-4),
        _max_pool(),
        nn.ReLU(inplace=True),
        _normal(nn.Conv2d(one, two, 5, padding=2), 0.01),
        nn.ReLU(inplace=True),
        _mean_pool(),
        _normal(nn.Conv2d(two, three, 5, padding=2), 0.01),
        nn.ReLU(inplace=True),
        _mean_pool(),
        nn.Flatten(),
        _normal(nn.Linear(three * pixels, hidden), 0.1),
        _normal(nn.Linear(hidden, classes), 0.1),
    ]
    return nn.Sequential(*layers)


def cifar10_full(shape: tuple[int, int, int], classes: int, width: float) -> nn.Module:
    """Returns `cifar10_full`: 89,578 parameters on [3, 32, 32] with 10 classes, channels times width."""
    one, two, three = (scaled(units, width) for units in (32, 32, 64))
    pixels = _left(shape[1]) * _left(shape[2])
    layers = [
        _normal(nn.Conv2d(shape[0], one, 5, padding=2), 1e-4),
        _max_pool(),
        nn.ReLU(inplace=True),
        WithinChannelNorm(),
        _normal(nn.Conv2d(one, two, 5, padding=2), 0.01),
        nn.ReLU(inplace=True),
        _mean_pool(),
        WithinChannelNorm(),
        _normal(nn.Conv2d(two, three, 5, padding=2), 0.01),
        nn.ReLU(inplace=True),
        _mean_pool(),
        nn.Flatten(),
        _normal(nn.Linear(three * pixels, classes), 0.01),
    ]
    return nn.Sequential(*layers)


def _normal(layer: nn.Conv2d | nn.Linear, std: float) -> nn.Module:
    nn.init.normal_(layer.weight, std=std)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


def _max_pool() -> nn.Module:
    return nn.MaxPool2d(3, 2, ceil_mode=True)  # Caffe rounds up


def _mean_pool() -> nn.Module:
    return nn.AvgPool2d(3, 2, ceil_mode=True)


def _left(side: int) -> int:
    """Returns the side after three poolings of 3 with stride 2, rounded up. Raises ConfigError below 8."""
    if side < 8:
        raise ConfigError(f"pictures of {side} pixels a side are too small for this network: --resize 8")
    for _ in range(3):
        side = -(-(side - 3) // 2) + 1
    return side
