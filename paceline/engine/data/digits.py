"""Loads 1,797 handwritten digits of 8x8 pixels, which come with the package: nothing is downloaded.

`digits_uci/SOURCE.md` gives their source and licence.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from paceline.engine.data.dataset import Dataset, Splits

FILE = Path(__file__).parent / "digits_uci" / "digits.csv.gz"
MEAN, STD = 0.3053, 0.3761  # of the pixels scaled to 0..1
TRAIN_SAMPLES = 1437


def load_digits() -> tuple[Tensor, Tensor]:
    """Returns the pictures, float32 [1797, 1, 8, 8] with values 0 to 1, and their labels 0 to 9, int64 [1797].

    They are the digits of `sklearn.datasets.load_digits`, in the same order. Source: UCI Machine Learning Repository,
    doi 10.24432/C50P49.
    """
    with gzip.open(FILE) as file:
        rows = np.loadtxt(file, delimiter=",", dtype=np.float32)
    return torch.tensor(rows[:, :-1]).reshape(-1, 1, 8, 8).div_(16), torch.tensor(rows[:, -1], dtype=torch.int64)


def load() -> Splits:
    """Returns 1437 training and 360 test pictures, float32 [n, 1, 8, 8]; the same split on every machine."""
    images, labels = load_digits()
    # RandomState, because numpy promises its numbers never change; two splits in one job would leak test samples.
    order = torch.tensor(np.random.RandomState(0).permutation(len(labels)))
    x, y = images[order].sub_(MEAN).div_(STD), labels[order]
    cut = TRAIN_SAMPLES
    return Splits(train=Dataset(x[:cut], y[:cut], 10), test=Dataset(x[cut:], y[cut:], 10))
