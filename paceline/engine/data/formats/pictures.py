"""Prepares pictures that are in memory: one size for all of them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from paceline.core.errors import ConfigError
from paceline.engine.data.dataset import Dataset, Splits, shown

_AT_ONCE = 1024  # pictures: the interpolation's own memory stays small


def resized(splits: Splits, side: int) -> Splits:
    """Returns the same samples as pictures of `side` x `side` pixels, by bilinear interpolation.

    When they become smaller, the pixels that fall together are averaged. Raises ConfigError for samples that are no
    pictures.
    """
    return Splits(train=_resized(splits.train, side), test=_resized(splits.test, side))


def _resized(data: Dataset, side: int) -> Dataset:
    if not data.is_pictures:
        raise ConfigError(f"--resize {side}: samples are {shown(data.x)}, and pictures are [c, h, w]")
    if data.x.shape[2:] == (side, side):
        return data
    return Dataset(resized_pixels(data.x, side, side), data.y, data.classes)


def resized_pixels(x: Tensor, height: int, width: int) -> Tensor:
    """Returns float32 [n, c, height, width] of pictures [n, c, h, w]."""
    result = torch.empty(*x.shape[:2], height, width)
    for start in range(0, len(x), _AT_ONCE):
        part = x[start : start + _AT_ONCE].float()
        result[start : start + _AT_ONCE] = interpolate(part, (height, width), mode="bilinear", antialias=True)
    return result
