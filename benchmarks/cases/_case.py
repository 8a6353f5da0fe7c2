"""What the cases share: this worker's number, the scheme, and how to report what a run gave."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

RANK = int(os.environ.get("PACELINE_RANK", "0"))
WORKERS = int(os.environ.get("PACELINE_WORKERS", "1"))
SCHEME = sys.argv[1] if len(sys.argv) > 1 else "bsp"
MODE = sys.argv[2] if len(sys.argv) > 2 else ""
torch.set_num_threads(1)


def report(**found: Any) -> None:
    """Prints what this worker's run gave, as one line that `benchmarks/cases.py` judges."""
    print(json.dumps(found), flush=True)


def small_net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))


def mini_batches(steps: int, size: int = 8) -> tuple[Tensor, Tensor]:
    """Returns mini-batches of four inputs and their classes, by step and worker: those of two workers."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(steps, 2, size, 4, generator=generator)
    return x, torch.randint(0, 2, (steps, 2, size), generator=generator)


def joint(step: Tensor) -> Tensor:
    """Returns the mini-batches of all workers of a step as one, which one process trains."""
    return step[:WORKERS].flatten(0, 1)


def random_data(size: int, inputs: int = 3) -> TensorDataset:
    torch.manual_seed(1)
    return TensorDataset(torch.randn(size, inputs), torch.randint(0, 2, (size,)))


def off(model: nn.Module, plain: nn.Module) -> float:
    """Returns how far the weights are from those of the plain loop, relative to their length."""
    mine, right = (torch.cat([p.detach().flatten() for p in m.parameters()]) for m in (model, plain))
    return float((mine - right).norm() / right.norm())
