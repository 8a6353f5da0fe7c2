"""Checks leaves and drains against the oracles, which know only what was sent and heard."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from paceline.core.coordination.party import Party
from paceline.sim.checking.oracles.views import Drains
from paceline.sim.kernel.processes import SimulatedProcess

if TYPE_CHECKING:
    from paceline.sim.faulted_driver import FaultedDriver, LossyFaultedMembers


class LeaveChecks:
    """Tells the oracles who leaves, and what the others had of it then. `drains`: those of drained workers."""

    def __init__(self, sim: FaultedDriver, members: LossyFaultedMembers, coordinator: SimulatedProcess) -> None:
        self._sim, self._members, self._coordinator = sim, members, coordinator
        self.drains = Drains(sim.invariants.broken if sim.invariants else AssertionError, ends=sim.wish is not None)

    def sent(self, to: Collection[Party], message: Any, take_part: Collection[Party]) -> None:
        """Notes a WorkerLeft or an Exit that the coordinator sends. `take_part`: servers, and workers that train."""
        there = map(self._members.process_of, take_part)
        self.drains.sent(to, message, [party for party in there if party and self._members.counts(party)])

    def says_it_left(self, party: SimulatedProcess) -> None:
        """Checks that the others have taken what `party` sent, also servers that were lost since."""
        if self._sim.invariants:
            streams, calls = self._members.streams, self._members.calls
            sent = [(dst, number) for dst, number in streams.sent_by(party) if self._is_waited_for(party, dst)]
            self._sim.invariants.deliveries.left(party, [*sent, *calls.sent_by(party)])

    def _is_waited_for(self, party: SimulatedProcess, dst: SimulatedProcess) -> bool:
        """Returns False for the coordinator, and for a worker that has left and come back since, as `party` knows.

        The process that had left has ended then. A simulated one stays, so that what it is sent is not lost; a live
        one cannot take it any more.
        """
        if dst is self._coordinator:
            return False
        return dst.kind != "worker" or self._members.worker_of(party, dst.me) is dst

    def ends(self, party: SimulatedProcess) -> None:
        """Checks the same for a drained worker whose process ends, and that it has taken what workers sent it."""
        self.says_it_left(party)
        if self._sim.invariants:
            workers = self._sim.world.workers
            there = [other for other in workers if other.hears and self._members.counts(other)]
            sent = [one for one in self._members.streams.sent_to(party) if one[0] in there]
            self._sim.invariants.deliveries.ended(party, sent, there)
