"""Holds pictures in memory: gathered from a format's reader, brought to one size, normalised.

A reader gives pixels 0 to 255, [c, h, w], with a label. They become a data set in one of two ways:

    without a mean file   (pixel / 255 - mean) / deviation, both of each channel over the training set
    with a mean file      pixel - mean, as Caffe and Theano-MPI do: their learning rates are meant for such numbers
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from paceline.core.errors import ConfigError
from paceline.engine.data.dataset import Dataset, Splits, shown

LABELS_MAX = 1_000_000
_AT_ONCE = 1024  # pictures: the interpolation's own memory stays small
_FLOATS = 4  # bytes of a number in memory, whatever it has in the file


@dataclass(frozen=True, slots=True, eq=False)
class Pixels:
    """Pictures as they are in files: `x` uint8 or float32 [n, c, h, w] in 0 .. 255, `y` int64 [n]."""

    x: Tensor
    y: Tensor


def gathered(items: Iterable[tuple[np.ndarray, int]], count: int, where: Path) -> Pixels:
    """Returns at most `count` pictures [c, h, w] with their labels, in the order of `items`.

    Raises ConfigError where there are none, they differ in size or type, a label is not in 0 .. 999,999, or they do
    not fit into memory.
    """
    x: np.ndarray | None = None
    labels: list[int] = []
    for pixels, label in items:
        if x is None:
            _check_memory(pixels, count, where)
            x = np.empty((count, *pixels.shape), pixels.dtype)
        if pixels.shape != x.shape[1:] or pixels.dtype != x.dtype:
            raise ConfigError(
                f"{where}: pictures of {_size(x.shape[1:])} and of {_size(pixels.shape)}: bring them to one size, "
                "--resize N"
            )
        if not 0 <= label < LABELS_MAX:
            raise ConfigError(f"{where}: picture {len(labels)} has label {label}, not one of 0 to {LABELS_MAX - 1:,}")
        x[len(labels)] = pixels
        labels.append(label)
    if x is None:
        raise ConfigError(f"{where} holds no pictures")
    return Pixels(torch.from_numpy(x[: len(labels)]), torch.tensor(labels))


def _check_memory(pixels: np.ndarray, count: int, where: Path) -> None:
    needed, free = count * pixels.size * (_FLOATS + pixels.itemsize), psutil.virtual_memory().available
    if needed > free:
        raise ConfigError(
            f"{where}: {count:,} pictures of {_size(pixels.shape)} take {needed / 2**30:.1f} GiB in memory, and "
            f"{free / 2**30:.1f} are free: --resize makes them smaller, and a loop of your own (paceline.join) may "
            "read them from a DataLoader"
        )


def _size(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def normalised(train: Pixels, test: Pixels, mean: Tensor | None) -> Splits:
    """Returns the two as data sets. `mean`: of a mean file, [c, h, w] or [c, 1, 1]; None: as the training set says.

    Raises ConfigError where the two parts, or the mean, have other sizes.
    """
    shape, other = train.x.shape[1:], test.x.shape[1:]
    if shape != other:
        raise ConfigError(
            f"pictures to train are {_size(shape)}, those to test {_size(other)}: bring them to one size, --resize N"
        )
    if mean is not None:
        shift, scale = fitting(mean, tuple(shape)), torch.ones(1)
    else:
        shift, scale = statistics(train.x)
    classes = 1 + max(int(train.y.max()), int(test.y.max()))
    parts = [Dataset(part.x.float().sub_(shift).div_(scale), part.y, classes) for part in (train, test)]
    return Splits(train=parts[0], test=parts[1])


def statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    """Returns mean and deviation of each channel, [c, 1, 1], in units of a pixel; the deviation is at least 1."""
    count, means, deviations = x[:, 0].numel(), [], []
    for channel in range(x.shape[1]):
        values = x[:, channel]
        # One picture at a time would be slow, and all of them as doubles need eight times their memory.
        parts = [part.double() for part in torch.split(values, _AT_ONCE)]
        mean = sum(float(part.sum()) for part in parts) / count
        variance = sum(float((part - mean).square().sum()) for part in parts) / count
        means.append(mean)
        deviations.append(max(1.0, variance**0.5))
    return torch.tensor(means).view(-1, 1, 1), torch.tensor(deviations).view(-1, 1, 1)


def fitting(mean: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Returns the mean for pictures of `shape`: one value a channel, or the middle of a larger mean, as Caffe crops it.

    Raises ConfigError for another number of channels or a smaller mean.
    """
    c, h, w = shape
    if mean.shape[0] != c or (mean.shape[1:] != (1, 1) and (mean.shape[1] < h or mean.shape[2] < w)):
        raise ConfigError(f"--mean-file: a mean of {_size(tuple(mean.shape))} for pictures of {_size(shape)}")
    if mean.shape[1:] == (1, 1):
        return mean
    top, left = (mean.shape[1] - h) // 2, (mean.shape[2] - w) // 2
    return mean[:, top : top + h, left : left + w]


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
    return Dataset(resized_pixels(data.x, side), data.y, data.classes)


def resized_pixels(x: Tensor, side: int) -> Tensor:
    """Returns float32 [n, c, side, side] of pictures [n, c, h, w]."""
    result = torch.empty(*x.shape[:2], side, side)
    for start in range(0, len(x), _AT_ONCE):
        part = x[start : start + _AT_ONCE].float()
        result[start : start + _AT_ONCE] = interpolate(part, (side, side), mode="bilinear", antialias=True)
    return result
