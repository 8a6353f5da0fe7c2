"""Holds the calls of one process that are not answered yet.

an outgoing call   input                                              then
a role's, new      asked in a server view that is over (`open`)       fails with Undone, unless it goes to a worker
a role's, new      the run is over for this process (`open`)          fails with what has ended it
OPEN               its answer (`answered`)                            closed
closed, failed     another answer (`answered`)                        ignored, if that may happen; else ProtocolError
OPEN               it cannot be sent (`close`)                        fails, unless it `waits_for` a successor
OPEN               the other party is lost (`lost`)                   fails; a late answer is ignored
OPEN               a server is lost that will be replaced (`retries`) stays open; the server `is_away`
OPEN               that server is restored from a copy                the same call is sent again (`asked_again`)
OPEN               servers went back to a snapshot (`void`)           fails with Undone; late answers are ignored
OPEN               the run is over for this process (`close_all`)     fails; from then on it is not sent again
any, past roles    it is put after either (`open`)                    OPEN
any                the coordinator is lost: `retries` ends            no call waits for a server's successor any more

Live processes keep all their calls here (`paceline.live.node.message_sender`), and so do simulated ones where messages
may be lost (`paceline.sim.faults.parties.open_calls`): those of roles, and the questions of a worker that leaves.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection
from typing import Generic, TypeVar

from paceline.core.coordination.party import Party
from paceline.core.errors import ProtocolError, Undone
from paceline.core.parties.server_view import is_undone

Of = TypeVar("Of")
"""What a driver keeps of a call."""


class OutgoingCalls(Generic[Of]):
    """Holds the calls of process `me` to others, by number. Its owner lets one thread in at a time.

    retries: calls to a lost server stay open, because another process will take its place.
    server_view: the present one; it grows whenever the servers go back. over: what has ended the run for this process.
    """

    def __init__(self, me: Party, *, retries: bool = False) -> None:
        self._me, self.retries = me, retries
        self._ids = itertools.count(1)
        self._calls: dict[int, tuple[Party, Of]] = {}
        self._away: set[Party] = set()  # lost servers of which nobody has said yet that they are restored
        self._void = 0  # a call below this number that is not open is void
        self.server_view = 0
        self.over: BaseException | None = None

    @property
    def unanswered(self) -> list[Of]:
        """Returns the open calls, oldest first."""
        return [call for _, call in self._calls.values()]

    def open(self, to: Party, call: Of, asked_in: int | None) -> int:
        """Opens a call to `to` and returns its number, which its answer will name.

        asked_in: the server view in which a role asks; None for a question past the roles, which may be put at any
        time. Raises Undone if that view is over, since servers would drop the call, and `over` once the run is.
        """
        if asked_in is not None:
            if self.over is not None:
                raise self.over
            if is_undone(asked_in, self.server_view, self._me, to):
                raise Undone("a server was replaced")
        number = next(self._ids)
        self._calls[number] = to, call
        return number

    def find(self, number: int) -> Of | None:
        """Returns an open call, or None."""
        call = self._calls.get(number)
        return call[1] if call else None

    def close(self, number: int) -> Of | None:
        """Returns an open call and forgets it; None where it is not open."""
        call = self._calls.pop(number, None)
        return call[1] if call else None

    def answered(self, number: int, by: Party) -> Of | None:
        """Closes the call that `by` has answered, and returns it; None for an answer that comes too late to matter.

        Raises ProtocolError for an answer to a call that was never made, or that nothing has made void.
        """
        call = self.close(number)
        if call is None and not (self.over or self.is_void(number)):
            raise ProtocolError(f"{by} answered a question that {self._me} did not ask")
        return call

    def close_all(self, why: BaseException) -> list[Of]:
        """Forgets all calls, and returns them: `why` has ended the run for this process. Answers may still arrive."""
        self.over = self.over or why
        return self._closed(list(self._calls))

    def waits_for(self, who: Party) -> bool:
        """Returns True if calls to `who` stay open while it is lost, since it will be replaced."""
        return self.retries and who.kind == "server"

    def lost(self, who: Party) -> list[Of]:
        """Closes the calls that `who` will not answer any more, and returns them.

        The coordinator may count as lost who only hung, so its answers can still arrive; they are void.
        """
        if self.waits_for(who):
            self._away.add(who)
            return []
        self._void = next(self._ids)
        return self._closed([number for number, (to, _) in self._calls.items() if to == who])

    def void(self, server_view: int) -> list[Of]:
        """Closes all calls to servers, and returns them, since that view begins; answers that still arrive are void."""
        self.server_view = server_view
        self._away.clear()
        self._void = next(self._ids)
        return self._closed([number for number, (to, _) in self._calls.items() if to.kind == "server"])

    def _closed(self, numbers: list[int]) -> list[Of]:
        return [self._calls.pop(number)[1] for number in numbers]

    def asked_again(self, whom: Collection[Party]) -> list[tuple[int, Party, Of]]:
        """Returns the calls to send again, oldest first: those to `whom` that are not answered.

        An answer may then arrive twice.
        """
        self._away.difference_update(whom)
        self._void = next(self._ids)
        return [(number, to, call) for number, (to, call) in self._calls.items() if to in whom]

    def is_away(self, who: Party) -> bool:
        """Returns True for a lost server until its calls are sent again or void.

        Its successor may be connected already. What it is asked now it would answer before those calls have come.
        """
        return self.retries and who in self._away

    def is_void(self, number: int) -> bool:
        """Returns True for a call from before a loss, or before servers went back: its answer counts no more."""
        return number < self._void
