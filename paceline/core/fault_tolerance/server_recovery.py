"""Which servers go back, and to what, when some are lost: one copy, or the newest snapshot, all together.

    state       input                                                          next
    WHOLE       lost, servers copy what they answer to the next one            COPY: the lost ones, from their copies
    WHOLE       lost, they do not; or two neighbours are lost together         SNAPSHOT: all servers, in a new view
    COPY        lost: the neighbour of one that is away                        SNAPSHOT
    COPY        failed: the keeper of a copy has not all of it, being new      SNAPSHOT
    COPY        prepared by each that is away                                  WHOLE
    SNAPSHOT    prepared by all                                                WHOLE

WHOLE is an empty `away`; `rolled_back` tells SNAPSHOT from COPY. Each loss and each failure is followed by an order
with a new number (`order`), and no answer to an earlier one counts. All go back together so that the model is of one
piece.

Nothing here knows a clock or a connection: live (`paceline.live.coordinator.server_recovery`) and simulated runs are
driven by the same.
"""

from __future__ import annotations


class Replacing:
    """Of one run. Servers are numbers. `number`: of the last order; `server_view`: the one that counts.

    away: who is lost and not back yet. rolled_back: do all go back to the snapshot this time?
    """

    def __init__(self, servers: int) -> None:
        self._count = servers
        self.away: set[int] = set()
        self.number = self.server_view = 0
        self.rolled_back = False
        self._prepared: set[int] = set()

    def lost(self, server: int, *, copied: bool) -> None:
        """`copied`: do servers copy what they answer?"""
        self.away.add(server)
        self.rolled_back = (
            self.rolled_back or not copied or any(self._keeper_of(other) in self.away for other in self.away)
        )

    def _keeper_of(self, server: int) -> int:
        return (server + 1) % self._count

    def order(self, number: int) -> None:
        """From now on this order counts, and none before it."""
        self.number = number
        self._prepared.clear()
        self.server_view = number if self.rolled_back else self.server_view

    def concerned(self) -> list[int]:
        """Returns whom the order is for."""
        return [server for server in range(self._count) if self.rolled_back or server in self.away]

    def source(self, server: int) -> int | None:
        """Which server has what `server` is to be; None for the snapshot."""
        return None if self.rolled_back else self._keeper_of(server)

    def prepared(self, server: int, number: int) -> bool:
        """It is what the order says. True when all are."""
        if not self.counts(number):
            return False
        self._prepared.add(server)
        return not self.missing()

    def failed(self, number: int) -> bool:
        """A keeper has not all of it, being new itself. True when that sends all to the snapshot, by another order."""
        if self.counts(number):
            self.rolled_back = True
        return self.counts(number)

    def counts(self, number: int) -> bool:
        """Is it of the present order?"""
        return bool(self.away) and number == self.number

    def missing(self) -> list[int]:
        """Returns who is not prepared yet."""
        return [server for server in self.concerned() if server not in self._prepared]

    def done(self) -> None:
        """All are there, and have been told."""
        self.away.clear()
        self.rolled_back = False
