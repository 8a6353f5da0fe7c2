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
        self._noted: list[tuple[int, slice, Tensor]] = []  # of which vector, which of its numbers, and what they were

    def note(self) -> None:
        """Notes a sample of the weights as they are now."""
        self.begin()
        for i, v in enumerate(self._numbers()):
            self._note(i, 0, len(v))

    def begin(self) -> None:
        """Begins a sample of weights that arrive in parts: `note_part` notes each."""
        self._turns = (self._turns + TURN) % 1.0
        self._noted = []

    def note_part(self, start: int, stop: int) -> None:
        """Notes the sample in the part of the only vector that has just arrived."""
        self._note(0, start, stop)

    @property
    def changed(self) -> bool:
        """Returns True if a number of the sample was changed since it was noted, by more than rounding."""
        vectors = self._numbers()
        return any(_differ(noted, vectors[i][part]) for i, part, noted in self._noted)

    def _note(self, i: int, start: int, stop: int) -> None:
        vectors = self._numbers()
        stride = max(1, len(vectors[i]) // max(1, SAMPLES // len(vectors)))
        first = int(self._turns * stride)
        part = slice(first + stride * max(0, -(-(start - first) // stride)), stop, stride)
        if part.start < stop:
            self._noted.append((i, part, vectors[i][part].clone()))


def _differ(before: Tensor, now: Tensor) -> bool:
    if torch.equal(before, now):  # nearly always; an empty one is
        return False
    rounding = ROUNDING * torch.finfo(before.dtype).eps
    before, now = before.float(), now.float()
    bound = rounding * (before.abs() + before.square().mean().sqrt())
    # A weight that was not finite before says nothing.
    return bool((((now - before).abs() > bound) | (now.isfinite() != before.isfinite())).any())
