"""Makes pictures of noise around one prototype per class: learnable, of any size, at no cost. For benchmarks."""

from __future__ import annotations

import numpy as np
import torch

from paceline.core.errors import ConfigError
from paceline.engine.data.dataset import Dataset, Splits

CLASSES = 10
SIDE = 28
SIGNAL = 0.15  # prototypes lie about 0.15 * sqrt(2 * 784) = 6 standard deviations of the noise apart: not trivial
SAMPLES_MAX = 10_000_000


def load(samples: int) -> Splits:
    """Returns `samples` training and a quarter as many test pictures, float32 [n, 1, 28, 28].

    Raises ConfigError unless 1 <= samples <= 10 million.
    """
    if not 1 <= samples <= SAMPLES_MAX:
        raise ConfigError(f"synthetic data of {samples} samples: give 1 to {SAMPLES_MAX}")
    # Frozen numbers where machines must agree. The noise need not agree, and comes from the faster generator.
    prototypes = np.random.RandomState(0).standard_normal((CLASSES, SIDE * SIDE)).astype(np.float32)
    return Splits(train=_draw(prototypes, samples, seed=1), test=_draw(prototypes, max(1, samples // 4), seed=2))


def _draw(prototypes: np.ndarray, n: int, seed: int) -> Dataset:
    labels = np.random.RandomState(seed).randint(0, CLASSES, n, dtype=np.int64)
    x = np.random.default_rng(seed).standard_normal((n, SIDE * SIDE), dtype=np.float32)
    for label, prototype in enumerate(prototypes):
        x[labels == label] += SIGNAL * prototype
    return Dataset(torch.from_numpy(x).reshape(n, 1, SIDE, SIDE), torch.from_numpy(labels), CLASSES)
