"""Computes the loss of named models: of a class a sample, or of the next token at every place of a sequence."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy


def mean_loss(logits: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Returns the mean cross-entropy of `logits` for samples `x` with labels `y`, int64 [n].

    logits [n, classes] answer with a class a sample; logits [n, t, vocabulary] with the next token at each place of
    `x`, int [n, t], of which y is the one after the last.
    """
    if logits.dim() == 2:
        return cross_entropy(logits, y)
    return cross_entropy(logits.flatten(0, 1), next_tokens(x, y).flatten())


def next_tokens(x: Tensor, y: Tensor) -> Tensor:
    """Returns the target of each place, int64 [n, t]: the token at the next one, and `y` for the last."""
    return torch.cat([x[:, 1:].to(torch.int64), y.unsqueeze(1)], dim=1)
