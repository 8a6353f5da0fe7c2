"""Pictures of one size: what is asked for, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from paceline.core.errors import ConfigError
from paceline.engine.data import load
from paceline.engine.data.dataset import Dataset, Splits
from paceline.engine.data.formats.pictures import Pixels, gathered, normalised, resized
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


def test_pictures_that_do_not_fit_into_memory_are_refused_before_they_are_read() -> None:
    def endless() -> Iterator[tuple[np.ndarray, int]]:
        while True:
            yield np.zeros((3, 1000, 1000), np.uint8), 0

    with pytest.raises(ConfigError, match=r"10,000,000 pictures of 3 x 1000 x 1000 take 1396\d\d.* GiB in memory"):
        gathered(endless(), 10_000_000, Path("folder"))


def test_labels_that_are_none_are_refused() -> None:
    with pytest.raises(ConfigError, match="picture 1 has label -1"):
        gathered([(np.zeros((1, 2, 2), np.uint8), label) for label in (0, -1)], 2, Path("folder"))


def test_the_parts_must_have_one_size_and_the_mean_too() -> None:
    def pixels(*shape: int) -> Pixels:
        return Pixels(torch.zeros(2, *shape, dtype=torch.uint8), torch.zeros(2, dtype=torch.int64))

    with pytest.raises(ConfigError, match="to train are 3 x 4 x 4, those to test 3 x 4 x 5"):
        normalised(pixels(3, 4, 4), pixels(3, 4, 5), None)
    with pytest.raises(ConfigError, match="a mean of 3 x 2 x 2 for pictures of 3 x 4 x 4"):
        normalised(pixels(3, 4, 4), pixels(3, 4, 4), torch.zeros(3, 2, 2))


def test_samples_that_are_no_pictures_are_refused() -> None:
    with pytest.raises(ConfigError, match="--resize 8: samples are float32"):
        resized(of(torch.randn(2, 5)), 8)
