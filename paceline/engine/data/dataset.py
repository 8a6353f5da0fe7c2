"""Holds samples in memory: one tensor of pictures, one of labels."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """A data set has `x`: float32 [n, c, h, w], normalised; `y`: int64 [n], each in 0 .. `classes` - 1.

    Raises ValueError for other shapes or types.
    """

    x: Tensor
    y: Tensor
    classes: int

    def __post_init__(self) -> None:
        if self.x.dim() != 4 or self.x.dtype != torch.float32:
            raise ValueError(f"x must be float32 [n, c, h, w], not {self.x.dtype} {list(self.x.shape)}")
        if self.y.shape != self.x.shape[:1] or self.y.dtype != torch.int64:
            raise ValueError(f"y must be int64 [{len(self.x)}], not {self.y.dtype} {list(self.y.shape)}")

    def __len__(self) -> int:
        return len(self.y)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Returns [c, h, w] of one sample."""
        _, c, h, w = self.x.shape
        return c, h, w

    @property
    def chance(self) -> float:
        """Returns the accuracy of always answering the most common class; 0 where there are no samples."""
        return int(self.y.bincount().max()) / len(self) if len(self) else 0.0

    def to(self, device: torch.device | str) -> Dataset:
        """Returns the same samples on `device`; itself when they are there already."""
        x, y = self.x.to(device), self.y.to(device)
        return self if x is self.x and y is self.y else Dataset(x, y, self.classes)


@dataclass(frozen=True, slots=True, eq=False)
class Splits:
    """The model is trained on `train`, and evaluated on `test`."""

    train: Dataset
    test: Dataset
