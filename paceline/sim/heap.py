"""What happens next: events in the order of their times, and of their making where times are equal."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator
from typing import Any

Event = tuple[float, int, Callable[..., None], tuple[Any, ...]]
"""Its time, its number, the act and its arguments; the first argument is whose event it is."""


class Heap:
    """Events at virtual times; the same pushes give the same order on every machine.

    `arrivals` is a heap of messages under way, `later` one of all else. Nearly everything there is to happen is work
    that ends in seconds; a message arrives at once, and in one heap with the work it would pass all of it twice.
    A driver may push to them without a call: `heappush(arrivals, (at, number(), act, args))`.
    """

    __slots__ = ("arrivals", "later", "number")

    def __init__(self) -> None:
        self.arrivals: list[Event] = []
        self.later: list[Event] = []
        self.number = itertools.count(1).__next__

    def __len__(self) -> int:
        return len(self.arrivals) + len(self.later)

    def __iter__(self) -> Iterator[Event]:
        """Every event, in no order."""
        return itertools.chain(self.arrivals, self.later)

    def push(self, at: float, act: Callable[..., None], *args: Any) -> None:
        """`act(*args)` shall happen at `at` seconds."""
        heapq.heappush(self.later, (at, self.number(), act, args))

    def change(self, new_time: Callable[[Event], float | None]) -> None:
        """Every event gets the time `new_time` says, and is dropped for None; O(all events), for faults only."""
        for events in (self.arrivals, self.later):
            timed = [(new_time(event), event) for event in events]
            # In place: the driver holds on to the lists.
            events[:] = [(at, *event[1:]) for at, event in timed if at is not None]
            heapq.heapify(events)
