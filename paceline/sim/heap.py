"""What happens next: events in the order of their times, and of their making where times are equal."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Any

Event = tuple[float, int, Callable[..., None], tuple[Any, ...]]
"""Its time, its number, the act and its arguments; the first argument is whose event it is."""


class Heap:
    """Events at virtual times; the same pushes give the same order on every machine.

    The next event is `heappop(events)`. A driver may also push without a call: `heappush(events, (at, number(), act,
    args))`.
    """

    __slots__ = ("events", "number")

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.number = itertools.count(1).__next__

    def __len__(self) -> int:
        return len(self.events)

    def push(self, at: float, act: Callable[..., None], *args: Any) -> None:
        """`act(*args)` shall happen at `at` seconds."""
        heapq.heappush(self.events, (at, self.number(), act, args))

    def change(self, new_time: Callable[[Event], float | None]) -> None:
        """Every event gets the time `new_time` says, and is dropped for None; O(all events), for faults only."""
        timed = [(new_time(event), event) for event in self.events]
        # In place: the driver holds on to the list.
        self.events[:] = [(at, *event[1:]) for at, event in timed if at is not None]
        heapq.heapify(self.events)
