"""Which network and data a run's settings mean; tests/runtime/runs has the loop itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from paceline.config import build
from paceline.core.errors import ConfigError
from paceline.engine.data.dataset import Dataset, Splits
from paceline.runtime.worker.train_loop import build_model, data_recipe


def tokens() -> Splits:
    """Sequences of nine tokens; the largest, 40, is in the test set."""
    train = Dataset(torch.randint(40, (8, 9)), torch.zeros(8, dtype=torch.int64), 3)
    return Splits(train=train, test=Dataset(torch.full((2, 9), 40), torch.zeros(2, dtype=torch.int64), 3))


def test_an_lstm_has_a_word_for_every_token_of_both_parts() -> None:
    splits = tokens()
    model = build_model(build({"model": {"name": "lstm", "width": 0.1}}), splits)
    assert model(splits.test.x).shape == (2, 3)


def test_networks_for_pictures_do_not_read_tokens() -> None:
    with pytest.raises(ConfigError, match="--model lenet takes pictures"):
        build_model(build({"model": {"name": "lenet"}}), tokens())


def test_caffe_s_networks_begin_with_its_weights_where_a_mean_file_leaves_pixels(tmp_path: Path) -> None:
    np.save(tmp_path / "mean.npy", np.zeros(3))
    pictures = Dataset(torch.randn(2, 3, 32, 32), torch.zeros(2, dtype=torch.int64), 10)
    values = {"model": {"name": "cifar10-quick"}, "data": {"name": "lmdb", "mean_file": str(tmp_path / "mean.npy")}}
    pixels, plain = (
        build_model(build(one), Splits(train=pictures, test=pictures)) for one in (values, {"model": values["model"]})
    )
    assert float(next(pixels.parameters()).detach().std()) < 2e-4
    assert float(next(plain.parameters()).detach().std()) > 0.1


def test_the_recipe_has_all_that_is_said_about_pictures() -> None:
    config = build({"data": {"name": "cifar10", "resize": 40, "augment": "alexnet"}})
    assert (data_recipe(config).resize, data_recipe(config).augment) == (40, "alexnet")
