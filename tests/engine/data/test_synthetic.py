"""Synthetic data can be learned, and has the size that was asked for."""

from __future__ import annotations

import pytest
import torch

from paceline.core.errors import ConfigError
from paceline.engine.data import load
from paceline.engine.specs import DataRecipe
from tests.engine.data.files import assert_usable


def test_synthetic_data_has_the_asked_size_and_can_be_learned() -> None:
    splits = load(DataRecipe(name="synthetic", samples=4000))
    assert_usable(splits, (1, 28, 28))
    assert (len(splits.train), len(splits.test)) == (4000, 1000)
    x, y = splits.train.x.flatten(1), splits.train.y
    means = torch.stack([x[y == label].mean(0) for label in range(10)])
    guess = torch.cdist(splits.test.x.flatten(1), means).argmin(1)
    assert float((guess == splits.test.y).float().mean()) > 0.9


@pytest.mark.parametrize("samples", [0, -1, 10**9])
def test_an_impossible_amount_of_synthetic_data_is_refused(samples: int) -> None:
    with pytest.raises(ConfigError, match="samples"):
        load(DataRecipe(name="synthetic", samples=samples))
