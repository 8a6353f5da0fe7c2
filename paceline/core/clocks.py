"""How many exchanges each worker has finished, and the slowest of them in O(1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


class Clocks:
    """Clock of every rank; `low` is the minimum.

    Clocks only grow, so the minimum is found by moving a finger over a histogram of clock values: O(1) amortised
    however many workers there are. When nobody is left, `low` stays where it was.
    """

    def __init__(self, ranks: Iterable[int]) -> None:
        self._of = dict.fromkeys(ranks, 0)
        self._histogram = Counter({0: len(self._of)})
        self.low = 0

    def __getitem__(self, rank: int) -> int:
        return self._of[rank]

    def __contains__(self, rank: int) -> bool:
        return rank in self._of

    def __len__(self) -> int:
        return len(self._of)

    def ranks(self) -> tuple[int, ...]:
        return tuple(self._of)

    def slowest(self) -> list[int]:
        """The ranks at `low`; O(workers), meant for reasons and logs."""
        return [rank for rank, clock in self._of.items() if clock == self.low]

    def tick(self, rank: int, clock: int) -> bool:
        """Set the clock of `rank`; True when `low` moved. Raises ValueError when it would run backwards."""
        old = self._of[rank]
        if clock < old:
            raise ValueError(f"the clock of worker {rank} cannot go from {old} back to {clock}")
        self._of[rank] = clock
        self._histogram[clock] += 1
        return self._remove(old)

    def drop(self, rank: int) -> bool:
        """Forget `rank`; True when `low` moved."""
        return self._remove(self._of.pop(rank))

    def _remove(self, clock: int) -> bool:
        self._histogram[clock] -= 1
        if not self._histogram[clock]:
            del self._histogram[clock]
        before = self.low
        while self._of and self.low not in self._histogram:
            self.low += 1
        return self.low > before
