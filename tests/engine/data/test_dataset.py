"""Tensors of a data set: shapes are checked, and nothing is copied."""

from __future__ import annotations

import pytest
import torch

from paceline.engine.data import load
from paceline.engine.data.dataset import Dataset
from paceline.engine.specs import DataRecipe


def test_a_dataset_of_the_wrong_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"x must be \[n, \.\.\.\]"):
        Dataset(torch.zeros(()), torch.zeros(3, dtype=torch.int64), 10)
    with pytest.raises(ValueError, match="float32 or integers, not torch.float64"):
        Dataset(torch.zeros(3, 1, 2, 2).double(), torch.zeros(3, dtype=torch.int64), 10)
    with pytest.raises(ValueError, match=r"int64 \[3\]"):
        Dataset(torch.zeros(3, 1, 2, 2), torch.zeros(2, dtype=torch.int64), 10)


def test_a_dataset_that_is_there_already_is_not_copied() -> None:
    data = load(DataRecipe(name="digits")).train
    assert data.to("cpu") is data
