"""The open round of a group: contributions on their way to one update."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from paceline.core.collective.mean_server import sum_of_two, weighted_mean
from paceline.core.effects import Data
from paceline.core.spans import Spans, common

MadeOf = Sequence[tuple[int, Data]]
"""Which samples of whom."""


class Round:
    """The contributions of one group that wait to become one update; `count` of them.

    `came`: of whom no more is expected; `refused`: those among them whose contribution does not count; `first`: whose
    came first; `data`: which samples of whom are in it, where they are leased; `unused`: what of the model none of them
    has used.
    """

    __slots__ = ("came", "count", "data", "first", "members", "refused", "samples", "sum", "unused")

    def __init__(self, members: Iterable[int]) -> None:
        self.members = set(members)
        self.reset()

    def reset(self) -> None:
        self.came: set[int] = set()
        self.refused: set[int] = set()
        self.count = self.first = 0
        self.samples = 0
        self.sum: Any = None  # None when there is none
        self.data: list[tuple[int, Data]] = []
        self.unused: Spans = ()

    def saw_unused(self, unused: Spans) -> None:
        """Of the contribution that is added next."""
        if unused or self.unused:
            self.unused = common(self.unused, unused) if self.count else unused

    def add(self, rank: int, g: Any, samples: int) -> None:
        if self.count == 1:
            self.sum = sum_of_two(self.first, self.sum * float(self.samples), rank, g * float(samples))
        elif self.count:
            self.sum = self.sum + g * float(samples)
        else:
            self.sum, self.first = g, rank
        self.samples += samples
        self.count += 1
        self.came.add(rank)

    def counted_samples(self) -> int:
        """Returns how many samples the update counts as trained, by which the schedule goes."""
        return self.samples

    def claimed(self, samples: int) -> int:
        """The same of a contribution that was refused, with `samples` behind it."""
        return samples

    def mean(self) -> Any:
        """Weighted by samples, so that unequal batches average as one large batch would; one alone is its own mean."""
        return self.sum if self.count == 1 else weighted_mean(self.sum, self.samples)

    @property
    def complete(self) -> bool:
        # The lengths decide all but the last arrivals, so that a push costs the same in a group of any size.
        return bool(self.came) and len(self.came) >= len(self.members) and self.members <= self.came
