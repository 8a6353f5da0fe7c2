"""Builds LeNet-5 (LeCun et al. 1998), with ReLU and max-pooling as it is built today."""

from __future__ import annotations

from torch import nn

from paceline.engine.models.layers import scaled

_BORDER = 2  # the paper lays 28x28 pictures into 32x32
_SIDE_MIN = 16  # the smallest side of which both convolutions and poolings leave a pixel


def lenet(shape: tuple[int, int, int], classes: int, width: float) -> nn.Module:
    """Returns the network with channels 6, 16 and hidden units 120, 84, each times width.

    Small pictures are padded to 16x16.
    """
    c, h, w = shape
    one, two, three, four = (scaled(units, width) for units in (6, 16, 120, 84))
    top, bottom = _margins(h)
    left, right = _margins(w)
    pixels = _left(h + top + bottom) * _left(w + left + right)
    return nn.Sequential(
        nn.ZeroPad2d((left, right, top, bottom)),
        nn.Conv2d(c, one, 5),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(one, two, 5),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(two * pixels, three),
        nn.ReLU(inplace=True),
        nn.Linear(three, four),
        nn.ReLU(inplace=True),
        nn.Linear(four, classes),
    )


def _margins(side: int) -> tuple[int, int]:
    """Returns zeros before and after, along one axis."""
    total = max(_SIDE_MIN, side + 2 * _BORDER) - side
    return total // 2, total - total // 2


def _left(side: int) -> int:
    """Returns the side after two convolutions of 5 and two poolings of 2."""
    return ((side - 4) // 2 - 4) // 2
