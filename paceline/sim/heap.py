"""What happens next: events in the order of their times, and of their making where times are equal."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import Any


class Heap:
    """Events at virtual times; the same pushes give the same order on every machine."""

    def __init__(self) -> None:
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._made = 0

    def __len__(self) -> int:
        return len(self._events)

    def push(self, at: float, act: Callable[..., None], *args: Any) -> None:
        """`act(*args)` shall happen at `at` seconds."""
        self._made += 1
        heapq.heappush(self._events, (at, self._made, act, args))

    def pop(self, until: float = math.inf) -> tuple[float, int, Callable[..., None], tuple[Any, ...]] | None:
        """The next event: its time, its number, the act and its arguments; None when there is none by `until`."""
        events = self._events
        return heapq.heappop(events) if events and events[0][0] <= until else None
