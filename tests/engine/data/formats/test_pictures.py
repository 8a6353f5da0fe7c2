"""Pictures of one size: what is asked for, and what is refused."""

from __future__ import annotations

import pytest
import torch

from paceline.core.errors import ConfigError
from paceline.engine.data import load
from paceline.engine.data.dataset import Dataset, Splits
from paceline.engine.data.formats.pictures import resized
from paceline.engine.specs import DataRecipe


def of(x: torch.Tensor) -> Splits:
    data = Dataset(x, torch.zeros(len(x), dtype=torch.int64), 1)
    return Splits(train=data, test=data)


def test_a_named_data_set_has_the_size_asked_for_and_the_same_labels() -> None:
    plain, large = load(DataRecipe(name="digits")), load(DataRecipe(name="digits", resize=12))
    assert large.train.x.shape == (len(plain.train), 1, 12, 12)
    assert large.test.x.shape == (len(plain.test), 1, 12, 12)
    assert torch.equal(large.train.y, plain.train.y)


def test_what_is_made_smaller_is_averaged() -> None:
    board = (torch.arange(8)[:, None] + torch.arange(8)) % 2
    small = resized(of(board.float().expand(3, 1, 8, 8)), 2).train.x
    assert small.shape == (3, 1, 2, 2)
    assert torch.allclose(small, torch.full_like(small, 0.5), atol=0.05)


def test_pictures_of_that_size_are_left_alone() -> None:
    splits = of(torch.randn(2, 1, 5, 5))
    assert resized(splits, 5).train is splits.train


def test_samples_that_are_no_pictures_are_refused() -> None:
    with pytest.raises(ConfigError, match="--resize 8: samples are float32"):
        resized(of(torch.randn(2, 5)), 8)
