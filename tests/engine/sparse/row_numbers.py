"""Numbers of rows."""

from __future__ import annotations

import torch
from torch import Tensor


def at(*rows: int) -> Tensor:
    return torch.tensor(rows, dtype=torch.int64)
