"""Counts how many exchanges each worker has finished, and knows the slowest and the fastest in O(1)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class Clocks(dict[int, int]):
    """The clock of every rank is read as in a dict, and changed by the methods below alone.

    `low` and `high` are the smallest and the largest clock. Clocks only grow, so the minimum is found by moving a
    pointer over the clock values that some rank has: O(1) amortised however many workers there are. When nobody is
    left, both stay where they were.
    """

    __slots__ = ("_at", "high", "low")

    def __init__(self, ranks: Iterable[int]) -> None:
        super().__init__(dict.fromkeys(ranks, 0))
        self._at: dict[int, dict[int, None]] = {0: dict.fromkeys(self)}  # clock -> its ranks, in order of arrival
        self.low = self.high = 0

    def slowest(self) -> list[int]:
        """Returns the ranks at `low`, in order of arrival there; none when nobody is left."""
        return list(self._at.get(self.low, ()))

    def last_of_slowest(self) -> int:
        """Returns that rank at `low` that arrived there last; O(1)."""
        return next(reversed(self._at[self.low]))

    def tick(self, rank: int, clock: int) -> bool:
        """Sets the clock of `rank`. Returns True when `low` moved. Raises ValueError when it would run backwards."""
        old, at = self[rank], self._at
        if clock < old:
            raise ValueError(f"the clock of worker {rank} cannot go from {old} back to {clock}")
        self[rank] = clock
        there = at[old]
        del there[rank]
        if clock in at:
            at[clock][rank] = None
        else:
            at[clock] = {rank: None}
            if clock > self.high:
                self.high = clock
        # The minimum can have moved only if the last rank has left the old value.
        return not there and self._nobody_is_at(old)

    def add(self, rank: int) -> None:
        """Adds a newcomer, whose clock is that of the slowest: it must not hold back those that are ahead of it."""
        self[rank] = self.low
        self._at.setdefault(self.low, {})[rank] = None

    def drop(self, rank: int) -> bool:
        """Forgets `rank`. Returns True when `low` moved."""
        old = self.pop(rank)
        there = self._at[old]
        del there[rank]
        if there:
            return False
        moved = self._nobody_is_at(old)
        if old == self.high and self:
            self.high = max(self._at)
        return moved

    def _nobody_is_at(self, clock: int) -> bool:
        """The last rank at `clock` has moved on or left. Returns True when `low` moved."""
        at = self._at
        del at[clock]
        if clock != self.low or not at:
            return False
        for low in range(self.low + 1, self.low + 1 + len(at)):
            if low in at:
                self.low = low
                return True
        self.low = min(at)  # the gap is wider than there are clocks, so counting up would take longer than a minimum
        return True


def among_others(tables: dict[str, Any]) -> dict[str, Any]:
    """Returns `tables` for a shard that goes back together with all others: its clocks are the workers' own.

    Shards that kept as many updates may have kept those of different workers, and so differ on their clocks, and on how
    far they have shifted those of newcomers. Were that to last, two workers could wait for one another, each at a
    different shard. After a rollback every worker pulls, and tells all shards its own clock (`Pull.last`). So shards
    that count by those agree when all have pulled.
    """
    shift = dict(tables.get("shift", ()))
    clocks = [[rank, clock - (shift.get(rank) or 0)] for rank, clock in tables.get("clocks", ())]
    # What a newcomer that has not pushed yet calls its clock is not known; its first push tells.
    new = [[rank, None] for rank, known in shift.items() if known is None]
    return {**tables, "clocks": clocks, "shift": new, "together": True}
