"""Parameters that backward did not reach are known."""

from __future__ import annotations

import torch
from torch import nn

from paceline.engine.model.flat_model import FlatModel
from tests.engine.model.test_flat_model import backward, small


def test_what_backward_did_not_reach_is_unused_until_it_does() -> None:
    module = small()
    model = FlatModel(module)
    model.zero_grad()
    backward(module)
    assert model.gradient() is not None
    assert model.unused() == ()
    model.zero_grad()
    assert model.unused() == ((0, len(model)),)
    module[3](torch.ones(1, 7)).sum().backward()
    model.gradient()
    assert model.unused() == ((0, len(model) - 21),)
    module[0].bias.grad = torch.ones(7)  # put there by somebody
    module[3].weight.grad = None
    model.gradient()
    assert model.unused() == ((0, 35), (42, len(model)))
    model.zero_grad()
    nn.utils.clip_grad_norm_(module.parameters(), 0.1)
    model.gradient()
    assert model.unused() == ((0, len(model)),)
    model.show_unused()
    assert all(p.grad is None for p in module.parameters())
