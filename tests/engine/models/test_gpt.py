"""GPT: published sizes, causality, a loss at the start that says it knows nothing, and that it learns."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from paceline.core.errors import ConfigError
from paceline.engine.models.gpt import gpt


def test_gpt2_small_has_its_published_parameters() -> None:
    with torch.device("meta"):
        model = gpt(50_257, 768, 12, 12, 1024)
    assert sum(p.numel() for p in model.parameters()) == 124_439_808


def test_a_token_does_not_see_those_after_it() -> None:
    torch.manual_seed(0)
    model = gpt(11, 16, 2, 4, 8)
    tokens = torch.randint(11, (2, 8))
    changed = tokens.clone()
    changed[:, 5] = (changed[:, 5] + 1) % 11
    before, after = model(tokens), model(changed)
    assert before.shape == (2, 8, 11)
    assert torch.allclose(before[:, :5], after[:, :5], atol=1e-6)
    assert not torch.allclose(before[:, 5:], after[:, 5:], atol=1e-6)


def test_it_begins_with_even_odds_and_learns_a_sequence() -> None:
    torch.manual_seed(0)
    model = gpt(16, 32, 1, 2, 8)
    tokens = (torch.arange(9) + torch.arange(16)[:, None]) % 16  # each token is one more than that before it
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(60):
        loss = cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        losses.append(float(loss.detach()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[0] == pytest.approx(math.log(16), abs=0.1)
    assert losses[-1] < 0.1


@pytest.mark.parametrize(
    ("sizes", "says"), [((0, 8, 1, 1, 8), "each must be 1 or more"), ((9, 8, 1, 3, 8), "multiple of the heads")]
)
def test_sizes_that_make_no_network_are_refused(sizes: tuple[int, int, int, int, int], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        gpt(*sizes)


def test_more_tokens_than_the_context_are_refused() -> None:
    with pytest.raises(ValueError, match="the context is 4"):
        gpt(5, 4, 1, 1, 4)(torch.zeros(1, 5, dtype=torch.int64))
