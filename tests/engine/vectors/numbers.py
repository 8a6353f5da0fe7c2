"""Vectors of tests, and the numbers in them."""

from __future__ import annotations

import numpy as np
import torch

from paceline.engine.vectors.flat import Flat


def random_flat(length: int, seed: int = 0) -> Flat:
    return Flat.wrap(torch.randn(length, generator=torch.Generator().manual_seed(seed)))


def numbers_of(v: Flat) -> np.ndarray:
    return v.value().cpu().numpy()
