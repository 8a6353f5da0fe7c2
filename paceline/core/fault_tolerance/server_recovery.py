"""Decides which servers go back, and to what, when some fail: one copy, or the newest snapshot, all together.

    state       input                                                          next
    WHOLE       lost, servers copy what they answer to the next one            COPY: the lost ones, from their copies
    WHOLE       lost, they do not; or two neighbours are lost together         SNAPSHOT: all servers, in a new view
    COPY        lost: the neighbour of one that is away                        SNAPSHOT
    COPY        failed: the keeper of a copy has not all of it, being new      SNAPSHOT
    COPY        prepared by each that is away                                  WHOLE
    SNAPSHOT    prepared by all                                                WHOLE

WHOLE is an empty `away`; `rolled_back` tells SNAPSHOT from COPY. Each loss and each failure is followed by an order
with a new number (`order`), and no answer to an earlier one counts. All go back together, because slices of different
moments do not make one model.

Nothing here knows a clock or a connection: live (`paceline.core.coordination.server_recovery`) and simulated runs are
driven by the same code.
"""

from __future__ import annotations


class Replacing:
    """The recovery of one run's servers, which are numbers from 0.

    number: of the last order. server_view: the view that counts; it changes only when all go back to a snapshot.
    away: who is lost and not back yet. rolled_back: True if all go back to the snapshot this time.
    """

    def __init__(self, servers: int) -> None:
        self._count = servers
        self.away: set[int] = set()
        self.number = self.server_view = 0
        self.rolled_back = False
        self._prepared: set[int] = set()

    def lost(self, server: int, *, copied: bool) -> None:
        """Notes that `server` failed. `copied`: servers copy what they answer to the next server."""
        self.away.add(server)
        self.rolled_back = (
            self.rolled_back or not copied or any(self._keeper_of(other) in self.away for other in self.away)
        )

    def _keeper_of(self, server: int) -> int:
        """Returns the server that keeps the copies of `server`."""
        return (server + 1) % self._count

    def order(self, number: int) -> None:
        """Makes this order the one that counts, and none before it."""
        self.number = number
        self._prepared.clear()
        self.server_view = number if self.rolled_back else self.server_view

    def concerned(self) -> list[int]:
        """Returns whom the order is for."""
        return [server for server in range(self._count) if self.rolled_back or server in self.away]

    def source(self, server: int) -> int | None:
        """Returns which server has the copy of what `server` is to be; None for the snapshot."""
        return None if self.rolled_back else self._keeper_of(server)

    def prepared(self, server: int, number: int) -> bool:
        """`server` has done what the order says. Returns True when all have."""
        if not self.counts(number):
            return False
        self._prepared.add(server)
        return not self.missing()

    def failed(self, number: int) -> bool:
        """The keeper of a copy has not all of it, being new itself. Returns True if that sends all to the snapshot.

        The caller then gives another order.
        """
        if self.counts(number):
            self.rolled_back = True
        return self.counts(number)

    def counts(self, number: int) -> bool:
        """Returns True if an answer to order `number` belongs to the present order."""
        return bool(self.away) and number == self.number

    def missing(self) -> list[int]:
        """Returns who is not prepared yet."""
        return [server for server in self.concerned() if server not in self._prepared]

    def done(self) -> None:
        """All servers are back and have been told: the state is WHOLE again."""
        self.away.clear()
        self.rolled_back = False
