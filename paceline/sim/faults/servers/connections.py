"""To which process of a server each worker of a simulation is connected, while servers are replaced.

    a server has a successor             workers stay connected to it, alive or not
    the successor calls a worker         its connection to the former one is over: that is a loss (`OutgoingCalls`)
    the coordinator says it is back      the same, where the call has not come yet

What a worker sends before goes to the former server, as over TCP; `paceline.core.parties.outgoing_calls` decides what
is sent again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from paceline.sim.kernel.processes import SimulatedProcess

if TYPE_CHECKING:
    from paceline.sim.faulted_driver import FaultedDriver, LossyFaultedMembers


class ServerConnections:
    """Knows the connections of workers to former servers; all others are to the present ones.

    stops_hearing   called with a worker and the successor of all whom it takes nothing of any more
    """

    def __init__(
        self,
        sim: FaultedDriver,
        members: LossyFaultedMembers,
        stops_hearing: Callable[[SimulatedProcess, SimulatedProcess], None],
    ) -> None:
        self._sim, self._members, self._stops_hearing = sim, members, stops_hearing
        self._former: dict[tuple[tuple[str, int], int], SimulatedProcess] = {}  # by process and number of the server

    def of(self, party: SimulatedProcess, to: SimulatedProcess) -> SimulatedProcess:
        """Returns the process to which `party` has a connection as to the server whose present one is `to`."""
        return self._former.get((party.process, to.me), to)

    def has_successor(self, former: SimulatedProcess) -> None:
        """Notes that the workers do not know yet who is in the place of the server `former`."""
        there = {party.process for party in self._sim.world.workers}
        self._former = {key: old for key, old in self._former.items() if key[0] in there}
        for process in there:
            self._former.setdefault((process, former.me), former)

    def is_called(self, party: SimulatedProcess, successor: SimulatedProcess) -> None:
        """A later incarnation of a server has connected to `party`. A call that comes late changes nothing."""
        before = self._former.get((party.process, successor.me))
        if before is None or before.incarnation >= successor.incarnation:
            return
        if self._sim.world.servers[successor.me] is successor:
            del self._former[party.process, successor.me]
        else:  # it is lost by now, and has a successor of its own
            self._former[party.process, successor.me] = successor
        self._stops_hearing(party, successor)
        self._members.calls.lost(party, before)
