"""Holds the calls of workers to one process that are not answered yet.

a worker's call        input                                               then
none                   it comes (`take`)                                   OPEN, and known by its number
OPEN                   the role answers that worker (`oldest`)             answered, if it is the oldest of that worker
OPEN, answered         it comes again, since its caller sent it again      known (`had`): dropped, it is answered once
OPEN, answered         the worker has gone, or joined again                dropped, and not known any more
OPEN, answered         another server view begins (`begin_server_view`)    dropped, and not known any more: it may come
                                                                           again
OPEN                   this process leaves (`leave`)                       declined
OPEN                   its role raises an exception (`withdraw`)           declined; its caller has a strike
none                   it comes when this process has left (`take`)        declined

`gone` and `came` say that a worker has gone or joined. An answer to a worker that has gone is dropped, and so is every
answer once this process has left. Any other answer without an open call is a `ProtocolError`.

Live processes keep the calls of others here (`paceline.live.node`), and so do simulated ones where messages may be lost
(`paceline.sim.faults.parties.incoming_calls`).
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable
from typing import Generic, TypeVar

from paceline.core.coordination.party import Party
from paceline.core.errors import ProtocolError

Box = TypeVar("Box", bound=Hashable)
"""Stands for one of the roles of a process."""
Of = TypeVar("Of")
"""What a driver keeps of a call."""

LAST_MAX = 8
"""Calls of a worker to a slice that are known when they come again; a worker waits for fewer at a time."""


class IncomingCalls(Generic[Box, Of]):
    """Holds the calls of workers to the roles of process `me`. Its owner lets one thread in at a time, but for `had`.

    A call has the number that its caller gave it (`outgoing_calls.py`).
    """

    def __init__(self, me: Party) -> None:
        self._me = me
        self._calls: dict[tuple[Box, int], deque[Of]] = defaultdict(deque)  # by role and rank, the oldest first
        self._last: dict[tuple[int, int], deque[int]] = {}  # the numbers of the last calls, by rank and slice
        self._gone: set[int] = set()
        self._left = False  # this process has

    def had(self, rank: int, slice: int, number: int) -> bool:
        """Returns True for a call that came before: it is open, or its answer is on the way. Any thread may ask.

        It was sent again: its caller was told that this server takes the place of a lost one, and had called this
        server already.
        """
        return number in self._last.get((rank, slice), ())

    def take(self, role: Box, rank: int, slice: int, number: int, call: Of) -> bool:
        """Opens a call of worker `rank` to `role`; returns False for one to be declined, since this process has left.

        slice: the part of the model that the call is for. number: see `had`.
        """
        if self._left:
            return False
        last = self._last.get((rank, slice))
        if last is None:
            last = self._last[rank, slice] = deque(maxlen=LAST_MAX)
        last.append(number)
        self._calls[role, rank].append(call)
        return True

    def oldest(self, role: Box, rank: int, answer: object) -> Of | None:
        """Takes out the oldest call of worker `rank`, to answer it; None for an answer that nobody waits for any more.

        Raises ProtocolError, which names `answer`, where a worker that is there has no open call.
        """
        calls = self._calls.get((role, rank))
        if calls:
            return calls.popleft()
        if self._left or rank in self._gone:
            return None
        raise ProtocolError(f"{self._me} answers worker {rank}, which has asked nothing: {answer!r}")

    def withdraw(self, role: Box, rank: int, call: Of) -> bool:
        """Takes out a call that its role could not handle; returns True if it was open, and has to be declined."""
        calls = self._calls.get((role, rank))
        if not calls or call not in calls:
            return False
        calls.remove(call)
        return True

    def is_open(self, role: Box, rank: int, call: Of) -> bool:
        """Returns True for a call that is not answered yet."""
        return call in self._calls.get((role, rank), ())

    def gone(self, rank: int) -> None:
        """Notes that worker `rank` has left or was lost: it waits for no answer."""
        self._gone.add(rank)
        self._forget(rank)

    def came(self, rank: int) -> None:
        """Notes that worker `rank` joins. Its numbers begin anew."""
        self._gone.discard(rank)
        self._forget(rank)

    def _forget(self, rank: int) -> None:
        for key in [key for key in self._last if key[0] == rank]:
            del self._last[key]
        for role, caller in [key for key in self._calls if key[1] == rank]:
            del self._calls[role, caller]

    def begin_server_view(self) -> None:
        """Drops all calls: the servers go back to an earlier state, or this one becomes what a lost one was."""
        self._last.clear()
        self._calls.clear()

    def leave(self) -> list[tuple[int, Of]]:
        """Notes that this process has left; returns rank and call of all that are open, which are to be declined."""
        self._left = True
        calls, self._calls = self._calls, defaultdict(deque)
        return [(rank, call) for (_, rank), open_calls in calls.items() for call in open_calls]

    def __len__(self) -> int:
        return sum(map(len, self._calls.values()))
