"""Loads scikit-learn's bundled handwritten digits: 1797 pictures of 8x8; no files and no network are needed."""

from __future__ import annotations

import gzip
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from paceline.core.errors import ConfigError
from paceline.engine.data.dataset import Dataset, Splits

MEAN, STD = 0.3053, 0.3761  # of the pixels scaled to 0..1
TRAIN_SAMPLES = 1437


def load() -> Splits:
    """Returns 1437 training and 360 test pictures, float32 [n, 1, 8, 8]; the same split on every machine."""
    pixels, labels = bundled()
    # RandomState, because numpy promises its numbers never change; two splits in one job would leak test samples.
    order = np.random.RandomState(0).permutation(len(labels))
    x = torch.tensor(pixels[order], dtype=torch.float32).reshape(-1, 1, 8, 8)
    x = x.div_(16).sub_(MEAN).div_(STD)
    y = torch.tensor(labels[order], dtype=torch.int64)
    cut = TRAIN_SAMPLES
    return Splits(train=Dataset(x[:cut], y[:cut], 10), test=Dataset(x[cut:], y[cut:], 10))


def bundled() -> tuple[np.ndarray[tuple[int, int], np.dtype[np.float64]], np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Returns pixels 0 to 16 [n, 64] and labels [n], as `sklearn.datasets.load_digits` has them.

    They are read from its file: importing scikit-learn would take each process of a run two seconds.
    """
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise ConfigError("--data digits is scikit-learn's: pip install scikit-learn")
    with gzip.open(Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz") as file:
        rows = np.loadtxt(file, delimiter=",")
    return rows[:, :-1], rows[:, -1].astype(np.int64)
