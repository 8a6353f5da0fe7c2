"""The LSTM classifier: of tokens, and of pictures row by row."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from paceline.core.errors import ConfigError
from paceline.engine.models import build_for_tokens
from paceline.engine.models.lstm import lstm, lstm_of_tokens
from paceline.engine.specs import ModelRecipe


def size(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def test_it_has_the_sizes_of_the_tutorial() -> None:
    # 10,000 words, 128 units, 2 classes; torch's LSTM has two biases where the tutorial has one
    assert size(lstm_of_tokens(10_000, 2, 1.0)) == 10_000 * 128 + 4 * (2 * 128 * 128 + 2 * 128) + 2 * 128 + 2


def test_it_learns_the_order_of_tokens() -> None:
    torch.manual_seed(0)
    x = torch.tensor([[0, 1, 2, 2], [1, 0, 2, 2], [2, 0, 1, 2], [2, 1, 0, 2]])  # is 0 before 1?
    y = torch.tensor([1, 0, 1, 0])
    model = build_for_tokens(ModelRecipe(name="lstm", width=0.25), 3, 2, seed=0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(80):
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
    assert torch.equal(model(x).argmax(1), y)


def test_a_picture_is_read_from_top_to_bottom() -> None:
    model = lstm((2, 5, 3), 4, 0.1)
    x = torch.randn(1, 2, 5, 3)
    assert model(x).shape == (1, 4)
    assert not torch.allclose(model(x), model(x.flip(2)))


def test_other_networks_do_not_read_tokens() -> None:
    with pytest.raises(ConfigError, match="mlp does not read tokens; there is lstm"):
        build_for_tokens(ModelRecipe(name="mlp"), 3, 2, seed=0)
