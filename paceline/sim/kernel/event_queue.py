"""The queue of future events: ordered by virtual time, and by insertion where times are equal.

`Simulation` is the only one who takes events out; everybody else puts them in.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Any

Act = Callable[..., None]
Event = tuple[float, int, Act, tuple[Any, ...]]
"""Its time, its number, the act and its arguments; the first argument is whose event it is."""
QueuedEvent = tuple[float, int, Act, Any, Any, Any]
"""An event as the queue keeps it: time, number, and an act with its three arguments. One tuple is made in place of two,
and a call of three arguments is quicker than one of a tuple. An act with another number of arguments is kept as `_call`
of that act."""

FEW, MANY, BETWEEN = 16, 256, 64
"""Events a stretch has on average: where it is too short, where it is too long, and what it is made for."""
PER_S_MIN, PER_S_MAX = 1e-6, 1e6
SEEN_MIN = 1024
"""Events, at least, that are looked at before the length of the stretches is changed."""


def _call(act: Act, args: tuple[Any, ...], _: None) -> None:
    """Carries out an event whose act has another number of arguments than three."""
    act(*args)


def _event(entry: QueuedEvent) -> Event:
    """Returns the event that `entry` stands for."""
    at, number, act, *args = entry
    return (at, number, args[0], args[1]) if act is _call else (at, number, act, tuple(args))


def _entry(event: Event) -> QueuedEvent:
    """Returns what the queue keeps for `event`."""
    at, number, act, args = event
    return (at, number, act, *args) if len(args) == 3 else (at, number, _call, act, args, None)


class Heap:
    """Events at virtual times; the same pushes give the same order on every machine.

    One heap of all there is would be passed through from top to bottom for every event, and with thousands of workers
    that costs more than the event. So time is cut into stretches, `per_s` a second. What lies in a later stretch waits
    there in no order; when a stretch is `reached` its events are sorted, the next one last, and they are `due`. `soon`
    is a heap of what comes into the stretch after that. Nothing but the cost depends on where the cuts are.
    """

    __slots__ = (
        "_counted",
        "_number",
        "_order",
        "_seen",
        "_seen_enough",
        "_stretches",
        "due",
        "per_s",
        "reached",
        "soon",
    )

    def __init__(self) -> None:
        self.soon: list[QueuedEvent] = []
        self.due: list[QueuedEvent] = []
        self._number = 0
        self.per_s, self.reached = 16.0, -1
        self._stretches: dict[int, list[QueuedEvent]] = {}
        self._order: list[int] = []  # a heap of the stretches that have events
        self._seen = self._counted = 0  # events, and the stretches they were in, since the last look
        self._seen_enough = SEEN_MIN  # for the next

    def __len__(self) -> int:
        return len(self.soon) + len(self.due) + sum(map(len, self._stretches.values()))

    def __iter__(self) -> Iterator[Event]:
        """Yields every event, in no order."""
        return map(_event, self._entries())

    def _entries(self) -> Iterator[QueuedEvent]:
        return itertools.chain(self.soon, self.due, *self._stretches.values())

    def push(self, at: float, act: Act, *args: Any) -> None:
        """Schedules `act(*args)` at `at` seconds of virtual time. Equal times keep the order of the calls."""
        if len(args) == 3:
            self.put(at, act, *args)
        else:
            self.put(at, _call, act, args, None)

    def put(self, at: float, act: Act, a: Any, b: Any, c: Any) -> None:
        """Schedules `act(a, b, c)` at `at` seconds. Like `push`, without packing the arguments: the driver calls it for
        every message and every step."""
        self._number = number = self._number + 1
        stretch = int(at * self.per_s)
        # The stretch is already sorted, or is over. Its remaining events are few, so a small heap beside them suffices.
        if stretch <= self.reached:
            heappush(self.soon, (at, number, act, a, b, c))
        elif (waiting := self._stretches.get(stretch)) is not None:
            waiting.append((at, number, act, a, b, c))
        else:
            self._stretches[stretch] = [(at, number, act, a, b, c)]
            heappush(self._order, stretch)

    def put_back(self, entry: QueuedEvent) -> None:
        """Returns an event that was taken out and shall be taken out again, with its number and so its place in the
        order."""
        heappush(self.soon, entry)

    def reach(self) -> bool:
        """Makes the events of the next stretch `due`, and returns True; returns False if no event is left.

        The driver calls this when both `soon` and `due` are empty.
        """
        if not self._order:
            return False
        self._seen += len(self._stretches[self._order[0]])
        self._counted += 1
        if self._seen >= self._seen_enough:
            self._fit()
        self.reached = heappop(self._order)
        # In place: the driver holds on to the list.
        self.due[:] = sorted(self._stretches.pop(self.reached), reverse=True)
        return True

    def _fit(self) -> None:
        """Makes the stretches longer or shorter if they held too few or too many events on average since the
        last look."""
        mean = self._seen / self._counted
        per_s = min(max(self.per_s * mean / BETWEEN, PER_S_MIN), PER_S_MAX)
        if not FEW <= mean <= MANY and per_s != self.per_s:
            self.per_s = per_s
            self._spread(list(self._entries()))
        # Who touches every event does it at most once for as many.
        self._seen, self._counted, self._seen_enough = 0, 0, max(SEEN_MIN, len(self))

    def _spread(self, entries: list[QueuedEvent]) -> None:
        """Distributes `entries` over stretches of the present length, as if none had been reached yet."""
        self.soon.clear()
        self.due.clear()
        self._stretches.clear()
        self._order.clear()
        self.reached = -1
        for entry in entries:
            self._stretches.setdefault(int(entry[0] * self.per_s), []).append(entry)
        self._order.extend(sorted(self._stretches))

    def change(self, new_time: Callable[[Event], float | None]) -> None:
        """Moves every event to the time that `new_time` returns for it, and drops it where that is None.

        This is O(all events), so only faults use it: a pause delays the events of a host, a lost party loses its
        messages.
        """
        timed = [(new_time(event), event) for event in self]
        self._spread([_entry((at, *event[1:])) for at, event in timed if at is not None])
