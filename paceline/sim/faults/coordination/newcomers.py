"""Newcomers of a simulation whose messages may be lost: a new process says Hello, meets the others, and enters.

    its process starts                  Hello
    Roster                              it fences those that are lost; Ready
    Go                                  its role begins, once what a worker that left had sent has arrived
    it dies, or is told to stop         its end is reported; another one may come

The coordinator's machine decides when all know of a newcomer (`paceline.core.coordination.elasticity`), and
`paceline.core.parties` what it does with Roster and Go. Which process is started, and when, the cluster's faults say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.party import worker
from paceline.core.fault_tolerance.membership import MembershipState
from paceline.sim.faults.parties.bring_up import MODEL, hello_of
from paceline.sim.faults.parties.leavers import LOOK_AGAIN_S
from paceline.sim.kernel.processes import SimulatedProcess

if TYPE_CHECKING:
    from paceline.sim.faulted_driver import AdmittingMembers, FaultedDriver


class SimulatedNewcomers:
    """Lets workers join `sim`.

    waiting    by rank: processes that do not train yet
    processes  of workers, those that are over too, by name and incarnation
    """

    def __init__(self, sim: FaultedDriver, members: AdmittingMembers) -> None:
        self._sim, self._members = sim, members
        self.waiting: dict[int, SimulatedProcess] = {}
        self.processes = {party.process: party for party in sim.world.workers}

    def join(self, rank: int) -> None:
        """Starts a new process of worker `rank`, which says Hello.

        This does nothing for a worker that is present, that already joins, or that may not come again. A zombie joins
        later, when it has learnt of its eviction.
        """
        members, sim = self._members, self._sim
        if members.ending:
            return  # nobody joins any more
        if members.ends_now(rank):
            sim.heap.push(sim.now + LOOK_AGAIN_S, self.join, rank)
            return
        members.stays(rank)
        party, newcomer = sim.world.workers[rank], self.waiting.get(rank)
        if newcomer and not newcomer.hears:
            self.ends_early(newcomer)
        banned = worker(rank) in members.machine.run.roster.banned  # it was drained since somebody wanted it to join
        if party.here or sim.incarnations[rank].alive or rank in self.waiting or banned:
            return
        if members.is_missed(party):
            members.reports_lost(party, "came back")
        if worker(rank) in members.machine.run.roster.training:  # it leaves, and has not said so yet
            sim.heap.push(sim.now + LOOK_AGAIN_S, self.join, rank)
            return
        left = members.machine.run.members.state(worker(rank)) is MembershipState.LEFT
        if members.ends and (members.over or left):
            return  # who has left stays until everybody may exit
        members.reports_end_of_former(party)
        last = max(incarnation for name, incarnation in self.processes if name == party.name)
        newcomer = self.waiting[rank] = sim.world.next_worker(rank, last + 1)
        self.processes[newcomer.process] = newcomer
        members.tell(newcomer, hello_of(newcomer.incarnation))
        members.watch()

    def ends_early(self, newcomer: SimulatedProcess) -> None:
        """Reports the end of a process that died before it trained."""
        if not self._members.counts(newcomer):  # it has not said Hello, or waits for servers that are being replaced
            del self.waiting[newcomer.me]
        self._members.reports_lost(newcomer, "its process ended")

    def stops(self, party: SimulatedProcess) -> bool:
        """Ends the process of a newcomer that is told to stop before it trains; returns False if `party` is none."""
        if self.waiting.get(party.me) is not party:
            return False
        party.hears = False
        self._members.streams.closed(party)
        self.ends_early(party)
        return True

    def meets(self, party: SimulatedProcess, roster: control.Roster) -> None:
        """Lets a party meet the others of the roster. A worker is ready then: all train the same model."""
        own = {party.me} if party.kind == "worker" else set()
        for rank in set(roster.lost) - own if roster.incarnations else ():
            # A newcomer that came before this one takes part already; of its earlier incarnations nothing is heard.
            last = roster.incarnations[rank] - (rank in roster.joining)
            if dead := self.processes.get((self._sim.world.workers[rank].name, last)):
                self._members.orders.stops_hearing(party, dead)
        if party.kind == "worker":
            self._members.tell(party, MODEL)

    def enters_when_quiet(self, newcomer: SimulatedProcess) -> None:
        """Begins the new incarnation of a worker that everybody expects.

        What a worker that left cleanly has sent arrives first, and who has left and come meanwhile: a live newcomer
        hears that before Go. Where it begins anew, so does what all have sent that leave just now, and the losses that
        the servers have not heard of. Its role hears what the process has heard before.
        """
        rank, world, members = newcomer.me, self._sim.world, self._members
        if self.waiting.get(rank) is not newcomer or not newcomer.hears:
            return  # it was lost meanwhile, or has died and will be missed
        old = world.workers[rank]
        behind = (old.hears and not members.streams.quiet(old)) or self._has_not_heard_all(newcomer)
        if behind or self._finds_only_the_gone(rank):
            self._sim.heap.push(self._sim.now + LOOK_AGAIN_S, self.enters_when_quiet, newcomer)
            return
        members.end(old)
        del self.waiting[rank]
        if members.servers and self._sim.invariants:
            self._sim.invariants.enters(rank, members.servers.kept_recounts())
        members.begins(world.newcomer(rank, newcomer), members.ends.begins_later_s(newcomer) if members.ends else 0.0)
        if members.servers:
            members.servers.snapshots.keep_on()
        members.orders.enter(newcomer)

    def _has_not_heard_all(self, newcomer: SimulatedProcess) -> bool:
        """Returns True if something of the coordinator is under way to a newcomer, other than its Plan."""
        coming = self._members.streams.unheard(self._members.control, newcomer)
        return any(not isinstance(args[-1], control.Plan) for args in coming)

    def _finds_only_the_gone(self, rank: int) -> bool:
        """Returns True if nobody is here to take over from, and somebody counts as here.

        To the coordinator somebody does who is about to go: a live newcomer takes over from that one, or finds that it
        is gone. To a server somebody does whose loss it has not heard of, and the mean that that one waits for would be
        one of the newcomer's. No live run goes on without a worker.
        """
        others = [party for party in self._sim.world.workers if party.me != rank and party.me not in self.waiting]
        if any(party.here for party in others):
            return False
        training = self._members.machine.run.roster.training
        told = self._members.streams.settled(self._members.control, ("server",))
        return any(worker(party.me) in training for party in others) or not told
