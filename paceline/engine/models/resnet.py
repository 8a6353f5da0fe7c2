"""Builds ResNet-18 (He et al. 2016, arXiv 1512.03385) for small pictures: its stem is one 3x3
convolution, no pooling.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import relu

from paceline.engine.models.layers import conv_bn, scaled


class Block(nn.Module):
    """Computes y = relu(F(x) + shortcut(x)): F is two 3x3 convolutions; the shortcut is 1x1 where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            *conv_bn(inputs, outputs, stride=stride),
            nn.ReLU(inplace=True),
            *conv_bn(outputs, outputs),
        )
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else nn.Sequential(*conv_bn(inputs, outputs, 1, stride))

    def forward(self, x: Tensor) -> Tensor:
        return relu(self.residual(x) + self.shortcut(x))


def resnet18(shape: tuple[int, int, int], classes: int, width: float) -> nn.Module:
    """Returns four stages of two blocks with 64, 128, 256, 512 channels times width.

    A stage halves the picture only while a side of 2 is left: BatchNorm cannot train on one pixel of one sample, and
    the last batch of an epoch may be one sample.
    """
    inputs, side = scaled(64, width), min(shape[1:])
    layers = [*conv_bn(shape[0], inputs), nn.ReLU(inplace=True)]
    for stage, units in enumerate((64, 128, 256, 512)):
        outputs, stride = scaled(units, width), 2 if stage and side >= 4 else 1
        layers += [Block(inputs, outputs, stride), Block(outputs, outputs, 1)]
        inputs, side = outputs, -(-side // stride)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))
