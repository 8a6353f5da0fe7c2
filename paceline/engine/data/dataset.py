"""Holds samples in memory: one tensor of pictures, one of labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from paceline.core.errors import ConfigError

WAY_OUT = "give --model module:function, a network of your own"


class Augmentation(Protocol):
    """Varies the pictures of a training batch."""

    def side(self, pixels: int) -> int:
        """Returns the side of a varied picture whose side was `pixels`."""
        ...

    def plain(self, x: Tensor) -> Tensor:
        """Returns pictures as a test sees them."""
        ...

    def __call__(self, x: Tensor, seed: int) -> Tensor: ...


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """A data set has `x`: [n, ...], float32 or whole numbers; `y`: int64 [n], each in 0 .. `classes` - 1.

    The samples of named data sets are pictures: float32 [n, c, h, w], normalised. With `augmentation` batches have
    varied pictures, perhaps smaller ones.

    Raises ValueError for other shapes or types.
    """

    x: Tensor
    y: Tensor
    classes: int
    augmentation: Augmentation | None = None

    def __post_init__(self) -> None:
        if not self.x.dim() or self.x.is_complex() or (self.x.is_floating_point() and self.x.dtype != torch.float32):
            raise ValueError(f"x must be [n, ...] of float32 or integers, not {self.x.dtype} {list(self.x.shape)}")
        if self.y.shape != self.x.shape[:1] or self.y.dtype != torch.int64:
            raise ValueError(f"y must be int64 [{len(self.x)}], not {self.y.dtype} {list(self.y.shape)}")

    def __len__(self) -> int:
        return len(self.y)

    @property
    def shape(self) -> tuple[int, int, int]:
        """[c, h, w] of one sample of a batch; of one without channels or height these are 1.

        Raises ConfigError for no picture.
        """
        shape = (1, 1, 1, *self.x.shape[1:])
        if self.x.dim() > 4 or not self.x.is_floating_point():
            raise ConfigError(
                f"samples are {shown(self.x)}, and networks known by name take float32 [c, h, w]: {WAY_OUT}"
            )
        c, h, w = shape[-3:]
        return (c, h, w) if self.augmentation is None else (c, self.augmentation.side(h), self.augmentation.side(w))

    def batch(self, indices: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        """Returns samples and labels; `seed` decides how they are varied."""
        x, y = self.x.index_select(0, indices), self.y.index_select(0, indices)
        return (x if self.augmentation is None else self.augmentation(x, seed)), y

    def first(self, count: int) -> tuple[Tensor, Tensor]:
        """Returns the first samples, in the form of a batch but not varied."""
        x = self.x[:count]
        return (x if self.augmentation is None else self.augmentation.plain(x)), self.y[:count]

    @property
    def is_pictures(self) -> bool:
        return self.x.dim() == 4

    @property
    def is_tokens(self) -> bool:
        """True for sequences of whole numbers, [n, t]."""
        return self.x.dim() == 2 and not self.x.is_floating_point()

    @property
    def chance(self) -> float:
        """Returns the accuracy of always answering the most common class; 0 where there are no samples."""
        return int(self.y.bincount().max()) / len(self) if len(self) else 0.0

    def to(self, device: torch.device | str) -> Dataset:
        """Returns the same samples on `device`; itself when they are there already."""
        x, y = self.x.to(device), self.y.to(device)
        return self if x is self.x and y is self.y else Dataset(x, y, self.classes, self.augmentation)


def shown(samples: Tensor) -> str:
    """Type and shape of one of them, such as `float32 [1, 8, 8]`."""
    return f"{str(samples.dtype).removeprefix('torch.')} {list(samples.shape[1:])}"


@dataclass(frozen=True, slots=True, eq=False)
class Splits:
    """The model is trained on `train`, and evaluated on `test`."""

    train: Dataset
    test: Dataset
