"""Notices of who has come and gone, where no message is lost: one event at each party that reacts to it.

The coordinator's machine says who is told (`paceline.core.coordination.elasticity`); this file says when they hear it.
A notice takes the time of an empty message, and each party hears notices in the order in which they were said.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from paceline.core.coordination.party import Party, worker
from paceline.core.coordinator.machine import CoordinatorMachine
from paceline.core.fault_tolerance.membership import MembershipState
from paceline.core.role import Role
from paceline.sim.kernel.processes import SimulatedProcess

if TYPE_CHECKING:
    from paceline.sim.faulted_driver import FaultedDriver

Hear = Callable[[SimulatedProcess, int], None]
"""Lets the role of a party hear of a worker, by its rank."""


class LosslessNotices:
    """Brings what `machine` announces to the parties of `sim`."""

    def __init__(self, sim: FaultedDriver, machine: CoordinatorMachine) -> None:
        self._sim, self._members = sim, machine.run.members

    def announce(self, who: SimulatedProcess, to: tuple[Party, ...], hear: Hear) -> dict[Party, float]:
        """Tells servers, and those of the workers `to` whose role reacts to it; returns when each of them hears it.

        A worker whose role does not react need not be told, and so is not among them.
        """
        world, curious = self._sim.world, self._curious()
        told: dict[Party, float] = {}
        workers = [curious[other.index] for other in to if other.kind == "worker"] if curious else []
        for party in (*world.servers, *world.means, *workers):
            if party is not who and party.here:
                told[party.who] = self.hears_later(party, who, hear)  # a server's roles share a card
        return told

    def hears_later(self, party: SimulatedProcess, who: SimulatedProcess, hear: Hear) -> float:
        """Lets `party` hear of `who` when the notice has come over the network; returns that time in seconds.

        A loss is told by the coordinator. All else travels from the card of the worker itself, as its Left or Hello
        does. Each party hears in the order in which it was told (`told_at`), whatever the way.
        """
        lost = self._members.state(worker(who.me)) is MembershipState.LOST
        nic = self._sim.world.control if lost else who.nic
        party.told_at = max(self._sim.network.arrival(self._sim.now, nic, party.nic, 0), party.told_at)
        if self._sim.sharing is None:
            self._sim.heap.push(party.told_at, hear, party, who.me)
        else:
            self._sim.heap.push(party.told_at, self._sim.sharing.in_turn, party, lambda *_: hear(party, who.me))
        return party.told_at

    def _curious(self) -> list[SimulatedProcess]:
        """Returns the workers if their role reacts to changes of membership; otherwise nobody need tell them."""
        box = type(self._sim.world.workers[0].role)
        deaf = box.on_worker_left is Role.on_worker_left and box.on_worker_joined is Role.on_worker_joined
        return [] if deaf else self._sim.world.workers
