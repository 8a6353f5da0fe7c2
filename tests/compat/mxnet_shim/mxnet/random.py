"""The generator of random arrays is torch's."""

from __future__ import annotations

import torch


def seed(number: int) -> None:
    torch.manual_seed(int(number))
