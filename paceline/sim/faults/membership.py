"""Membership without lost messages: workers leave, crash, are expelled, join and rejoin.

    state     input                                  then                                            next
    HERE      leave                                  its role sends its last messages; all are told  LEFT
    HERE      crash                                  its process ends; nobody knows                  CRASHED
    CRASHED   silent for `suspect_after_s`           all are told; calls to it fail                  LOST
    HERE      expel                                  crash and loss at once; it may not rejoin       LOST
    LEFT,     join                                   all are told; a new incarnation begins          HERE
    LOST
    CRASHED   join                                   the loss is told first                          HERE

`confirmed_membership.py` is the same where messages may be lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from paceline.core.effects import Reply, Tell
from paceline.core.paramserver.gated_server import ClockedServer
from paceline.core.role import Role
from paceline.core.trace import MemberChange
from paceline.sim.cluster.network import Nic
from paceline.sim.kernel.event_queue import Event
from paceline.sim.kernel.processes import Incarnation, PendingCall, SimulatedProcess

if TYPE_CHECKING:
    from paceline.sim.faults.lossy_links import LossyLinks
    from paceline.sim.faults.server_recovery import Servers
    from paceline.sim.simulation import Simulation


class Members:
    """Ends and begins the incarnations of the workers of `sim`.

    leaving: ranks that leave at their next step. banned: ranks that were expelled and may not rejoin.
    """

    streams: LossyLinks | None = None  # a cluster without hazards loses no message

    def __init__(self, sim: Simulation) -> None:
        self.leaving: set[int] = set()
        self.banned: set[int] = set()
        self._sim = sim
        self._lost: set[SimulatedProcess] = set()  # crashed, and the others do not know yet
        self.servers: Servers | None = None  # set if servers can be lost with their state

    # ---- left and lost -------------------------------------------------------------------------------------
    def leave(self, incarnation: Incarnation) -> None:
        """Ends an incarnation cleanly: its role sends its last messages, and tells the others itself."""
        sim, party = self._sim, incarnation.party
        self.leaving.discard(incarnation.rank)
        incarnation.end()
        sim.messaging.say_all(party, party.role.leave(sim.now + party.skew_s))
        party.here = False
        if sim.invariants and sim.invariants.mass:
            sim.invariants.mass.left(party)
        self._note(party, "left", "asked to")
        self._is_gone(party, party.nic)

    def crash(self, rank: int) -> None:
        """Ends the process of worker `rank`; the others are told after `suspect_after_s` seconds of silence."""
        party = self._sim.world.workers[rank]
        if not party.here:
            return
        self._sim.incarnations[rank].end()
        party.here = party.hears = False
        self._lost.add(party)
        if self._sim.invariants:
            self._sim.invariants.crashed(rank)
        self._sim.heap.push(self._sim.now + self._sim.cluster.suspect_after_s, self._suspect, party)

    def expel(self, rank: int, reason: str) -> None:
        """Crashes worker `rank` and declares it lost in one go. It may not rejoin."""
        party = self._sim.world.workers[rank]
        if party.here:
            self.banned.add(rank)
            self.crash(rank)
            self._evict(party, reason)

    def suspect(self, rank: int) -> None:
        """Does nothing: without lost messages, silence of a process that lives is no reason to declare it lost."""

    def _suspect(self, party: SimulatedProcess) -> None:
        """Declares a crashed worker lost, unless it rejoined meanwhile."""
        if party in self._lost:
            self._evict(party, f"silent for {self._sim.cluster.suspect_after_s:g} s")

    def _evict(self, party: SimulatedProcess, reason: str) -> None:
        """Drops what the lost worker had on its way, fails calls to it, and tells everybody."""
        self._lost.discard(party)
        self._fence(party)
        self._note(party, "lost", reason)
        self._is_gone(party, self._sim.world.control)

    def _fence(self, party: SimulatedProcess) -> None:
        """Drops what the lost worker had on its way: it could not be told from what its next incarnation sends."""

        def unless_its_own(event: Event) -> float | None:
            at, _, _, args = event
            sender = args[1] if len(args) > 1 else None
            if isinstance(sender, PendingCall):
                sender = sender.incarnation.party
            return None if sender is party else at

        self._sim.heap.change(unless_its_own)

    def _is_gone(self, party: SimulatedProcess, nic: Nic) -> None:
        """Fails the calls that wait at the worker that is gone, and announces it from card `nic`."""
        for calls in party.open.values():
            for call in calls:
                self._sim.heap.push(self._sim.now, self._sim.messaging.lost, call, party.name)
        party.open.clear()
        self._announce(party, nic, self.hears_gone)

    def asked_in_vain(self, party: SimulatedProcess, call: PendingCall) -> None:
        """Handles a call to a worker that is absent: it waits until a crash is noticed, or fails at once after a clean
        leave."""
        if party in self._lost:
            party.admit(call)
        else:
            self._sim.messaging.lost(call, party.name)

    # ---- coming --------------------------------------------------------------------------------------------
    def absent_at_first(self, rank: int) -> None:
        """Marks worker `rank` as absent from the beginning of the run; everybody knows it without a message."""
        sim, world = self._sim, self._sim.world
        sim.incarnations[rank].end()
        world.workers[rank].here = world.workers[rank].hears = False
        for party in [*world.others, *([world.peers] if world.peers else []), *world.workers]:
            if party.here:
                self.hears_gone(party, rank)

    def join(self, rank: int) -> None:
        """Lets worker `rank` join: everybody is told first, and it enters when the last one has heard.

        This does nothing for a worker that is present. One that crashed unnoticed is declared lost first.
        """
        self.leaving.discard(rank)
        party = self._sim.world.workers[rank]
        if party in self._lost:
            self._evict(party, "came back")
        elif party.here:
            return
        known_at = self._announce(party, party.nic, self.hears_came)
        self._sim.heap.push(known_at, self._enter, party)

    def _enter(self, old: SimulatedProcess) -> None:
        """Begins the new incarnation. Everybody knows of it, so every round that begins from here on counts it.

        It starts when the weights have travelled to it from the coordinator's card.
        """
        sim, rank = self._sim, old.me
        if sim.world.workers[rank] is not old:
            return
        party = sim.world.newcomer(rank)
        if sim.invariants:
            sim.invariants.watch(party)
            if not any(other.here for other in sim.world.workers if other is not party):
                sim.invariants.begins_anew()
        self._note(party, "joined", "")
        arrived = sim.network.arrival(sim.now, sim.world.control, party.nic, party.role.w.nbytes)
        incarnation = sim.begin(party, sim.incarnations[rank].number + 1, arrived)
        incarnation.fresh = True
        sim.incarnations[rank] = incarnation

    # ---- how the others hear of it -------------------------------------------------------------------------
    def _announce(self, who: SimulatedProcess, nic: Nic, hear: Callable[[SimulatedProcess, int], None]) -> float:
        """Tells everybody concerned about `who`, over the network; returns the virtual time at which the last one
        hears.

        Each party hears of membership changes in the order in which they were announced (`told_at`), whatever their
        way.
        """
        sim, last = self._sim, self._sim.now
        if sim.world.peers:
            hear(sim.world.peers, who.me)
        for party in [*sim.world.others, *self._curious()]:
            if party is not who and party.here:
                at = sim.network.arrival(sim.now, nic, party.nic, 0)
                party.told_at = max(at, party.told_at)
                last = max(last, party.told_at)
                sim.heap.push(party.told_at, hear, party, who.me)
        return last

    def _curious(self) -> list[SimulatedProcess]:
        """Returns the workers if their role reacts to changes of membership; otherwise nobody need tell them."""
        box = type(self._sim.world.workers[0].role)
        deaf = box.on_worker_left is Role.on_worker_left and box.on_worker_joined is Role.on_worker_joined
        return [] if deaf else self._sim.world.workers

    def hears_gone(self, party: SimulatedProcess, rank: int) -> None:
        """Lets the role of `party` hear that worker `rank` is gone, and sends what it yields."""
        party.open.pop(rank, None)
        effects: Iterable[Tell | Reply] = party.role.on_worker_left(self._sim.now + party.skew_s, rank)
        if self._sim.invariants:
            self._sim.invariants.gone(party, rank)
            effects = self._sim.invariants.answering(party, effects)
        self._sim.messaging.say_all(party, self._held(party, effects))
        if self._sim.lender and party is self._sim.world.servers[0] and isinstance(party.role, ClockedServer):
            # Of the leased samples of that worker, only those in the open round may still enter the model; the others
            # are free again.
            self._sim.lender.gone(rank, party.role.pending(rank))

    def hears_came(self, party: SimulatedProcess, rank: int) -> None:
        """Lets the role of `party` hear that worker `rank` joins, and sends what it yields."""
        effects: Iterable[Tell | Reply] = party.role.on_worker_joined(self._sim.now + party.skew_s, rank)
        if self._sim.invariants:
            self._sim.invariants.came(party, rank)
            effects = self._sim.invariants.answering(party, effects)
        self._sim.messaging.say_all(party, self._held(party, effects))

    def _held(self, party: SimulatedProcess, effects: Iterable[Tell | Reply]) -> Iterable[Tell | Reply]:
        """Returns those of the effects that may leave at once: here all of them."""
        return effects

    def _note(self, party: SimulatedProcess, event: str, reason: str) -> None:
        if self._sim.trace:
            self._sim.trace(MemberChange(at=self._sim.now + party.skew_s, party=party.name, event=event, reason=reason))
