"""Files of data sets as tests write them."""

from __future__ import annotations

import struct

import numpy as np

from paceline.engine.data import mnist
from paceline.engine.data.dataset import Splits


def assert_usable(splits: Splits, shape: tuple[int, int, int]) -> None:
    for part in (splits.train, splits.test):
        assert part.shape == shape
        assert len(part) == len(part.x) == len(part.y)
        assert int(part.y.min()) >= 0
        assert int(part.y.max()) < part.classes == 10


TRAIN, TEST = 20, 5


IMAGES, LABELS, TEST_IMAGES, TEST_LABELS = mnist._FILES


def idx_bytes(array: np.ndarray) -> bytes:
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()
