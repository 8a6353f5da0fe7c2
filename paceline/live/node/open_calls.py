"""What a process keeps of the calls that are not answered yet: those it has made, and those that others made to it.

What becomes of an outgoing call is decided in `paceline.core.parties.outgoing_calls`: its answer closes it, a loss or a
server that went back fails it, and it is sent again where a lost server was replaced by its copy.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from typing import NamedTuple

from paceline.core.role import Role
from paceline.live.protocol.pending_reply import PendingReply


class OpenCall(NamedTuple):
    """Names what a call is for: the answer is part `part` of `pending`."""

    pending: PendingReply
    part: int


LAST_MAX = 8
"""Calls of a worker to a slice that are known again when they come again; a worker waits for fewer at a time."""


class IncomingCalls:
    """Holds the calls of others to the roles of one process, by role and rank, the oldest first.

    Its owner lets one thread in at a time, but for `had`.
    """

    def __init__(self) -> None:
        self._calls: dict[tuple[Role, int], deque[int]] = defaultdict(deque)
        self._away: set[int] = set()
        # The numbers of the last calls, by rank and slice.
        self._last: dict[tuple[int, int], deque[int]] = defaultdict(lambda: deque(maxlen=LAST_MAX))

    def had(self, rank: int, slice: int, id: int) -> bool:
        """Returns True for a call that came before: it is open, or its answer is on the way. Any thread may ask.

        It was sent again: its caller was told that this server takes the place of a lost one, and had called this
        server already.
        """
        return id in self._last.get((rank, slice), ())

    def take(self, role: Role, rank: int, slice: int, id: int) -> None:
        """Notes a call of worker `rank` to a slice."""
        self._last[rank, slice].append(id)
        self._calls[role, rank].append(id)

    def oldest(self, role: Role, rank: int) -> int | None:
        """Takes out the number of the oldest call, to answer it; None if there is none."""
        calls = self._calls.get((role, rank))
        return calls.popleft() if calls else None

    def away(self, rank: int) -> bool:
        """Returns True if that worker has left or was lost, so that it gets no answers."""
        return rank in self._away

    def came(self, rank: int) -> None:
        self._away.discard(rank)
        self._forget(rank)

    def gone(self, rank: int) -> None:
        """Notes that this worker waits for no answer any more."""
        self._away.add(rank)
        self._forget(rank)
        for key in [key for key in self._calls if key[1] == rank]:
            del self._calls[key]

    def _forget(self, rank: int) -> None:
        """Forgets the numbers of an incarnation that is over; those of the next one begin anew."""
        for key in [key for key in self._last if key[0] == rank]:
            del self._last[key]

    def clear(self) -> Iterator[tuple[int, int]]:
        """Drops all calls, which will not be answered, and yields rank and number of each."""
        self._last.clear()  # what was dropped may come again
        calls, self._calls = self._calls, defaultdict(deque)
        return ((rank, id) for (_, rank), ids in calls.items() for id in ids)

    def __len__(self) -> int:
        return sum(map(len, self._calls.values()))
