"""Optimizers with several parameter groups."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn


def decayed_and_not(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """nanoGPT's two groups: matrices with weight decay, vectors without; here with a rate of their own, too."""
    every = list(parameters)
    matrices, vectors = [p for p in every if p.dim() >= 2], [p for p in every if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.5}, {"params": vectors, "weight_decay": 0.0, "lr": 0.05}]
    return torch.optim.AdamW(groups, lr=0.02, betas=(0.9, 0.95))


def by_rate(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Interleaved: the groups' parameters lie all over the model."""
    every = list(parameters)
    groups: list[dict[str, Any]] = [
        {"params": every[::3], "lr": 0.05, "momentum": 0.9},
        {"params": every[1::3], "momentum": 0.5, "nesterov": True, "weight_decay": 0.1},
        {"params": every[2::3]},
    ]
    return torch.optim.SGD(groups, lr=0.1)
