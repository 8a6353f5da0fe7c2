"""A small network and data for all frameworks, and a comparison of what two runs have trained."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import paceline


def network() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))


def loader(*, shuffle: bool = False, samples: int = 200) -> DataLoader[tuple[torch.Tensor, ...]]:
    images, targets = paceline.load_digits()
    data = TensorDataset(images.flatten(1)[:samples], targets[:samples])
    return DataLoader(data, batch_size=32, shuffle=shuffle)


def assert_same(one: nn.Module, other: nn.Module) -> None:
    for name, parameter in one.named_parameters():
        assert torch.allclose(parameter, other.get_parameter(name), rtol=1e-5, atol=1e-7), name
