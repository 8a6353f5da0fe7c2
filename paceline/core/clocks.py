"""How many exchanges each worker has finished; the slowest and the fastest of them in O(1)."""

from __future__ import annotations

from collections.abc import Iterable


class Clocks:
    """Clock of every rank; `low` and `high` are the smallest and the largest.

    Clocks only grow, so the minimum is found by moving a finger over the clock values that somebody has: O(1)
    amortised however many workers there are. When nobody is left, both stay where they were.
    """

    def __init__(self, ranks: Iterable[int]) -> None:
        self._of = dict.fromkeys(ranks, 0)
        self._at: dict[int, dict[int, None]] = {
            0: dict.fromkeys(self._of)
        }  # clock -> the ranks that have it, in order of arrival
        self.low = self.high = 0

    def __getitem__(self, rank: int) -> int:
        return self._of[rank]

    def __contains__(self, rank: int) -> bool:
        return rank in self._of

    def __len__(self) -> int:
        return len(self._of)

    def ranks(self) -> tuple[int, ...]:
        return tuple(self._of)

    def slowest(self) -> list[int]:
        """The ranks at `low`, in order of arrival there; nobody when nobody is left."""
        return list(self._at.get(self.low, ()))

    def last_of_slowest(self) -> int:
        """Of the ranks at `low`, the one that arrived there last; O(1)."""
        return next(reversed(self._at[self.low]))

    def tick(self, rank: int, clock: int) -> bool:
        """Set the clock of `rank`; True when `low` moved. Raises ValueError when it would run backwards."""
        old = self._of[rank]
        if clock < old:
            raise ValueError(f"the clock of worker {rank} cannot go from {old} back to {clock}")
        self._of[rank] = clock
        self._take_away(rank, old)
        self._at.setdefault(clock, {})[rank] = None
        if clock > self.high:
            self.high = clock
        return self._raise_low()

    def add(self, rank: int) -> None:
        """A newcomer starts where the slowest are."""
        self._of[rank] = self.low
        self._at.setdefault(self.low, {})[rank] = None

    def drop(self, rank: int) -> bool:
        """Forget `rank`; True when `low` moved."""
        self._take_away(rank, self._of.pop(rank))
        if self._at and self.high not in self._at:
            self.high = max(self._at)
        return self._raise_low()

    def _take_away(self, rank: int, clock: int) -> None:
        there = self._at[clock]
        del there[rank]
        if not there:
            del self._at[clock]

    def _raise_low(self) -> bool:
        if self.low in self._at or not self._at:
            return False
        while self.low not in self._at:
            self.low += 1
        return True
