"""scikit-learn's bundled handwritten digits: 1797 pictures of 8x8, no files and no network needed."""

from __future__ import annotations

import numpy as np
import torch

from paceline.engine.data.dataset import Dataset, Splits

MEAN, STD = 0.3053, 0.3761  # of the pixels scaled to 0..1
TRAIN_SAMPLES = 1437


def load() -> Splits:
    """1437 training and 360 test pictures, float32 [n, 1, 8, 8]; the same split on every machine."""
    from sklearn.datasets import load_digits  # takes a second, so only those who want it pay

    pixels, labels = load_digits(return_X_y=True)
    # RandomState, because numpy promises its numbers never change; two splits in one job would leak test samples.
    order = np.random.RandomState(0).permutation(len(labels))
    x = torch.tensor(pixels[order], dtype=torch.float32).reshape(-1, 1, 8, 8)
    x = x.div_(16).sub_(MEAN).div_(STD)
    y = torch.tensor(labels[order], dtype=torch.int64)
    cut = TRAIN_SAMPLES
    return Splits(train=Dataset(x[:cut], y[:cut], 10), test=Dataset(x[cut:], y[cut:], 10))
