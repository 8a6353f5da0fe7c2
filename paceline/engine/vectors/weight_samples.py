"""Finds weights that somebody has changed, by their numbers.

torch's counts of writes (`_version`) do not tell. They grow where a loop perturbs weights and restores them, as
sharpness-aware minimisation does, and they stay where it writes to `p.data`.

A sample is looked at, of other numbers each time. So it costs little, and what changes weights in every step, as
clipping does, is found within a few steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

SAMPLES = 1024
"""Numbers that are looked at."""
ROUNDING = 8.0
"""A change by so many units in the last place is one of rounding: `p.add_(e)` and then `p.sub_(e)` gives `p` but for
one or two. A number that is small beside the others may be off by as many units of theirs."""
TURN = 0.618
"""The part of a stride by which the samples move on, so that a few turns are spread well over all numbers."""


class WeightSamples:
    """Samples the weights that `numbers` returns, as vectors."""

    def __init__(self, numbers: Callable[[], Sequence[Tensor]]) -> None:
        self._numbers = numbers
        self._turns = 0.0
        self._noted: list[Tensor] = []

    def note(self) -> None:
        """Notes a sample of the weights as they are now."""
        self._turns = (self._turns + TURN) % 1.0
        self._noted = [sample.clone() for sample in self._taken()]

    @property
    def changed(self) -> bool:
        """Returns True if a number of the sample was changed since `note`, by more than rounding."""
        return any(_differ(noted, now) for noted, now in zip(self._noted, self._taken(), strict=True))

    def _taken(self) -> list[Tensor]:
        vectors = self._numbers()
        each = max(1, SAMPLES // len(vectors))
        strides = [max(1, len(v) // each) for v in vectors]
        return [v[int(self._turns * stride) :: stride] for v, stride in zip(vectors, strides, strict=True)]


def _differ(before: Tensor, now: Tensor) -> bool:
    if torch.equal(before, now):  # nearly always; an empty one is
        return False
    rounding = ROUNDING * torch.finfo(before.dtype).eps
    before, now = before.float(), now.float()
    bound = rounding * (before.abs() + before.square().mean().sqrt())
    # A weight that was not finite before says nothing.
    return bool((((now - before).abs() > bound) | (now.isfinite() != before.isfinite())).any())
