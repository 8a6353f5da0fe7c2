"""The loss of named models."""

import torch
from torch.nn.functional import cross_entropy

from paceline.engine.model.loss import mean_loss


def test_a_class_a_sample_is_cross_entropy() -> None:
    logits, y = torch.randn(3, 5), torch.tensor([0, 4, 2])
    assert mean_loss(logits, torch.zeros(3, 1), y) == cross_entropy(logits, y)


def test_a_sequence_is_judged_at_every_place_by_the_token_at_the_next() -> None:
    x, y = torch.tensor([[0, 1, 2]], dtype=torch.int32), torch.tensor([3])
    logits = torch.full((1, 3, 4), -20.0)
    for place, token in enumerate((1, 2, 3)):
        logits[0, place, token] = 20.0
    assert mean_loss(logits, x, y) < 1e-6
    assert mean_loss(logits.flip(1), x, y) > 10
