"""Fixtures of this folder."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from paceline.engine.data import mnist
from tests.engine.data.files import idx_bytes

TRAIN, TEST = 20, 5


IMAGES, LABELS, TEST_IMAGES, TEST_LABELS = mnist._FILES


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tiny data set in the shape of MNIST, half of it compressed."""
    random = np.random.default_rng(0)
    for images, labels, n in ((IMAGES, LABELS, TRAIN), (TEST_IMAGES, TEST_LABELS, TEST)):
        pixels = random.integers(0, 256, (n, 28, 28), dtype=np.uint8)
        (tmp_path / f"{images}.gz").write_bytes(gzip.compress(idx_bytes(pixels)))
        (tmp_path / labels).write_bytes(idx_bytes(np.arange(n, dtype=np.uint8) % 10))
    return tmp_path
