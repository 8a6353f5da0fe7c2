"""A network and data of the user's own, which runs know by their import paths."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset, random_split

Labelled = Dataset[tuple[Tensor, ...]]


class Net(nn.Module):
    """It looks at its samples by `view`, which fails on pictures in another layout."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(1, width, 2), nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(torch.relu(self.first(x)).view(len(x), -1))
        return out


class OnSmallCard(Net):
    """The same network, on a card that holds the activations of six samples."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training and len(x) > 6:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return super().forward(x)


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(9, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.table(x)
        return out


def pictures() -> list[Labelled]:
    x = torch.randn(200, 1, 2, 2)
    return list(random_split(TensorDataset(x, x.flatten(1)[:, :3].argmax(1)), [160, 40]))


def texts() -> list[Labelled]:
    y = torch.arange(200) % 3
    return list(random_split(TensorDataset(y[:, None] * 3 + torch.randint(0, 3, (200, 5)), y), [160, 40]))


def too_many_classes() -> list[Labelled]:
    return [TensorDataset(torch.randn(40, 1, 2, 2), torch.arange(40) % 5)] * 2
