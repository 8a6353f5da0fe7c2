"""To which process of a server each worker of a simulation is connected, while servers are replaced.

    a server has a successor             workers stay connected to it, alive or not
    the successor calls a worker         its connection to the former one is over: that is a loss (`OutgoingCalls`)
    the coordinator says it is back      the same, where the call has not come yet

What a worker sends before goes to the former server, as over TCP. Which incarnation of a server counts is decided in
`paceline.core.fault_tolerance.peer_incarnations`, and what is sent again in `paceline.core.parties.outgoing_calls`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from paceline.core.fault_tolerance.peer_incarnations import PeerIncarnations
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
        self._peers: dict[tuple[str, int], PeerIncarnations[int]] = {}  # of worker processes: servers by number
        self._met: dict[tuple[int, int], SimulatedProcess] = {}  # servers by number and incarnation

    def of(self, party: SimulatedProcess, to: SimulatedProcess) -> SimulatedProcess:
        """Returns the process to which `party` has a connection as to the server whose present one is `to`."""
        peers = self._peers.get(party.process)
        met = None if peers is None else peers.met(to.me)
        return to if met is None or met == to.incarnation else self._met[to.me, met]

    def has_successor(self, former: SimulatedProcess) -> None:
        """Notes that the workers do not know yet who is in the place of the server `former`."""
        self._met[former.me, former.incarnation] = former
        there = [party.process for party in self._sim.world.workers]
        self._peers = {process: self._peers.get(process, PeerIncarnations()) for process in there}
        for peers in self._peers.values():
            if peers.met(former.me) is None:
                peers.meets(former.me, former.incarnation)

    def is_called(self, party: SimulatedProcess, successor: SimulatedProcess) -> None:
        """A later incarnation of a server has connected to `party`. A call that comes late changes nothing."""
        peers = self._peers.get(party.process)
        if peers is None or (before := peers.met(successor.me)) is None:
            return
        if peers.meets(successor.me, successor.incarnation):
            self._met[successor.me, successor.incarnation] = successor  # it may be lost before it is restored
            self._stops_hearing(party, successor)
            self._members.calls.lost(party, self._met[successor.me, before])
