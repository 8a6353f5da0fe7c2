"""A round holds the contributions of a group on their way to one update."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from paceline.core.effects import Data
from paceline.core.spans import Spans, common
from paceline.core.vector import sum_of_two, weighted_mean

MadeOf = Sequence[tuple[int, Data]]
"""By contribution: its rank, and the leased samples it is made of."""


class Round:
    """Holds the contributions of one group that wait to become one update; `count` of them.

    `came`: from whom no more is expected. `rejected`: those among them whose contribution the gradient check rejected,
    with how many samples it counts as trained and the leased ones. `first`: whose came first. `data`: which
    samples of whom are in it, where they are leased. `unused`: the spans of the model that none of them has used.
    """

    __slots__ = (
        "came",
        "count",
        "data",
        "first",
        "members",
        "rejected",
        "samples",
        "sum",
        "unused",
    )

    def __init__(self, members: Iterable[int]) -> None:
        self.members = set(members)
        self.reset()

    def reset(self) -> None:
        """Begins the next round, with the same members."""
        self.came: set[int] = set()
        self.rejected: dict[int, tuple[int, Data]] = {}
        self.count = self.first = 0
        self.samples = 0
        self.sum: Any = None  # None when there is none
        self.data: list[tuple[int, Data]] = []
        self.unused: Spans = ()

    def saw_unused(self, unused: Spans) -> None:
        """Takes in the unused spans of the contribution that is added next. It comes before `add`, which counts it."""
        if unused or self.unused:
            self.unused = common(self.unused, unused) if self.count else unused

    def add(self, rank: int, g: Any, samples: int) -> None:
        """Adds the mean gradient `g` over `samples` samples.

        The first is kept as it is, and weighted only when a second comes: a round of one costs no pass over the vector.
        """
        if self.count == 1:
            self.sum = sum_of_two(self.first, self.sum * float(self.samples), rank, g * float(samples))
        elif self.count:
            self.sum = self.sum + g * float(samples)
        else:
            self.sum, self.first = g, rank
        self.samples += samples
        self.count += 1
        self.came.add(rank)

    def reject(self, rank: int, samples: int, data: Data) -> None:
        """Takes note of a contribution that the gradient check rejected: no more is expected from `rank`."""
        self.came.add(rank)
        self.rejected[rank] = samples, data

    def counted_samples(self) -> int:
        """Returns how many samples the update counts as trained, by which the schedule goes."""
        return self.samples

    def claimed(self, samples: int) -> int:
        """Returns how many samples a rejected contribution counts as trained, with `samples` behind it."""
        return samples

    @property
    def samples_waiting(self) -> int:
        """Returns how many samples will count when the round is over, those of rejected contributions included."""
        return self.samples + sum(samples for samples, _ in self.rejected.values())

    def pending(self, rank: int) -> Data:
        """Returns the leased samples of what has come from `rank`."""
        accepted = [piece for src, data in self.data if src == rank for piece in data]
        return (*accepted, *self.rejected.get(rank, (0, ()))[1])

    def mean(self) -> Any:
        """Returns the mean weighted by samples, so that unequal batches average as one large batch would."""
        return self.sum if self.count == 1 else weighted_mean(self.sum, self.samples)

    @property
    def complete(self) -> bool:
        """Returns True if all members have come."""
        # The lengths decide all but the last arrivals, so that a push costs the same in a group of any size.
        return bool(self.came) and len(self.came) >= len(self.members) and self.members <= self.came
