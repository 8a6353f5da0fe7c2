"""Varies the pictures of training batches: CIFAR's, AlexNet's and ImageNet's usual augmentations.

    cifar      four pixels of zeros around, a random crop of the old size, every second picture mirrored
               (He et al. 2016, section 4.2)
    alexnet    a random crop of 7/8 of the side, 224 of 256, mirrored likewise (Krizhevsky et al. 2012)
    imagenet   a random crop of 8 to 100 % of the area and of 3/4 to 4/3 in shape, brought to 7/8 of the side, mirrored
               likewise (Szegedy et al. 2015)

Where training sees crops of 7/8, tests see the middle of that size. What is drawn follows from a seed that the caller
gives, so a run that is resumed draws the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample, pad

from paceline.engine.data.dataset import Dataset, Splits

PADDING = 4
AREA = (0.08, 1.0)
SHAPE = (3 / 4, 4 / 3)


def augmented(splits: Splits, name: str) -> Splits:
    """Returns the same samples, of which those to train are varied as `name` says."""
    variation = VARIATIONS[name]
    h, w = (variation.side(side) for side in splits.test.x.shape[2:])
    train = Dataset(splits.train.x, splits.train.y, splits.train.classes, variation)
    test = Dataset(middle(splits.test.x, h, w), splits.test.y, splits.test.classes)
    return Splits(train=train, test=test)


def middle(x: Tensor, h: int, w: int) -> Tensor:
    """Returns the middle of each picture, [..., h, w]."""
    top, left = (x.shape[-2] - h) // 2, (x.shape[-1] - w) // 2
    return x[..., top : top + h, left : left + w].contiguous()


@dataclass(frozen=True, slots=True)
class Variation:
    """Varies a batch. `crops`: its pictures have 7/8 of the side afterwards."""

    draw: Callable[[Tensor, int, int, torch.Generator], Tensor]
    crops: bool

    def side(self, pixels: int) -> int:
        """Returns the side of a varied picture."""
        return max(1, pixels * 7 // 8) if self.crops else pixels

    def plain(self, x: Tensor) -> Tensor:
        """Returns pictures as a test sees them, [b, c, h, w]."""
        return middle(x, self.side(x.shape[2]), self.side(x.shape[3])) if self.crops else x

    def __call__(self, x: Tensor, seed: int) -> Tensor:
        """Returns the varied batch, on the device of `x`."""
        generator = torch.Generator().manual_seed(seed)
        varied = self.draw(x, self.side(x.shape[2]), self.side(x.shape[3]), generator)
        mirrored = (torch.rand(len(x), generator=generator) < 0.5).to(x.device)
        return torch.where(mirrored.view(-1, 1, 1, 1), varied.flip(-1), varied)


def random_crop(x: Tensor, h: int, w: int, generator: torch.Generator) -> Tensor:
    """Returns a crop [b, c, h, w] of each picture, its place drawn evenly."""
    b, c = x.shape[:2]
    top = torch.randint(x.shape[2] - h + 1, (b,), generator=generator)
    left = torch.randint(x.shape[3] - w + 1, (b,), generator=generator)
    rows = (top[:, None] + torch.arange(h)).view(b, 1, h, 1).to(x.device)
    columns = (left[:, None] + torch.arange(w)).view(b, 1, 1, w).to(x.device)
    pictures, channels = torch.arange(b, device=x.device), torch.arange(c, device=x.device)
    return x[pictures.view(b, 1, 1, 1), channels.view(1, c, 1, 1), rows, columns]


def padded_crop(x: Tensor, h: int, w: int, generator: torch.Generator) -> Tensor:
    """Returns a crop of each picture with PADDING pixels of zeros around it."""
    return random_crop(pad(x, (PADDING,) * 4), h, w, generator)


def area_crop(x: Tensor, h: int, w: int, generator: torch.Generator) -> Tensor:
    """Returns a part of each picture, of random area and shape, brought to [h, w] by bilinear interpolation."""
    b = len(x)
    area, shape, down, across = torch.rand(4, b, generator=generator)
    area = AREA[0] + (AREA[1] - AREA[0]) * area
    shape = torch.exp(math.log(SHAPE[0]) + (math.log(SHAPE[1]) - math.log(SHAPE[0])) * shape)
    wide, high = (area * shape).sqrt().clamp(max=1), (area / shape).sqrt().clamp(max=1)
    theta = torch.zeros(b, 2, 3)
    # In coordinates from -1 to 1: the part's size, and how far its middle is from the picture's.
    theta[:, 0, 0], theta[:, 0, 2] = wide, (1 - wide) * (2 * across - 1)
    theta[:, 1, 1], theta[:, 1, 2] = high, (1 - high) * (2 * down - 1)
    grid = affine_grid(theta.to(x), [b, x.shape[1], h, w], align_corners=False)
    return grid_sample(x, grid, mode="bilinear", padding_mode="border", align_corners=False)


VARIATIONS = {
    "cifar": Variation(padded_crop, crops=False),
    "alexnet": Variation(random_crop, crops=True),
    "imagenet": Variation(area_crop, crops=True),
}
