"""The coordinator of a simulation: the machine of live runs decides, and this file carries its decisions out.

    input                                          message to the machine         what it decides, carried out here
    a worker leaves                                Left                           everybody is told; a record
    its process has been dead so long              (`lost`)                       its calls fail; everybody is told
    it is expelled                                 (`expel`)                      the same; it may not rejoin
    a later incarnation starts                     Hello, Ready                   everybody is told
    everybody has heard of it                      Aware                          it begins to train

`paceline.core.coordinator.machine` says which decision follows from which input. What is said here is how long it
takes: without hazards no message is lost, so a notice is one event at each party that reacts to it (`notices.py`), and
its acknowledgement takes no time. `lossy_members.py` is the same where messages may be lost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from paceline.core.coordination import control_messages as control
from paceline.core.coordination import loop_messages
from paceline.core.coordination.decisions import (
    Action,
    CloseConnection,
    FailCallsTo,
    NotifyWorkerJoined,
    NotifyWorkerLeft,
    RunFailure,
    SendMessage,
    WriteRecord,
)
from paceline.core.coordination.lifecycle import RunRules, RunSize, StopRule
from paceline.core.coordination.party import COORDINATOR, Party, worker
from paceline.core.coordination.server_recovery import Snapshots
from paceline.core.coordinator.bring_up import PlanRequest
from paceline.core.coordinator.machine import CoordinatorMachine
from paceline.core.effects import Reply, Tell
from paceline.core.fault_tolerance.membership import MembershipState
from paceline.core.paramserver.gated_server import ClockedServer
from paceline.sim.faults.coordination.notices import Hear, LosslessNotices
from paceline.sim.faults.coordination.plan_and_strikes import SimulatedPlanner, SimulatedStrikes
from paceline.sim.faults.parties.bring_up import MODEL, hello_of
from paceline.sim.faults.parties.leavers import LOOK_AGAIN_S
from paceline.sim.kernel.event_queue import Event
from paceline.sim.kernel.processes import Incarnation, PendingCall, SimulatedProcess

if TYPE_CHECKING:
    from paceline.sim.faulted_driver import FaultedDriver
    from paceline.sim.faults.links.lossy_links import LossyLinks
    from paceline.sim.faults.parties.bring_up import SimulatedBringUp
    from paceline.sim.faults.parties.incoming_calls import SimulatedIncomingCalls
    from paceline.sim.faults.parties.open_calls import SimulatedCalls
    from paceline.sim.faults.parties.run_end import SimulatedRunEnd
    from paceline.sim.faults.servers.server_recovery import Servers

ASKED = "asked to"
"""The reason with which a simulated worker leaves."""


class RunLost(Exception):  # noqa: N818  names what happened
    """Is raised when the coordinator ends the run as failed, because of a loss that nothing can replace."""


class Members:
    """Drives the coordinator of `sim`, and ends and begins the incarnations of its workers.

    leaving: ranks that leave at their next step. draining: those of them whose process ends then. unhurried: those that
    leave since there is no more work, or the run ends. ending: why the run ends, "" while it goes on.
    """

    streams: LossyLinks | None = None  # a cluster without hazards loses no message
    calls: SimulatedCalls | None = None  # nor does it need to know which of them are answered
    incoming: SimulatedIncomingCalls | None = None
    servers: Servers | None = None  # set if servers can be lost with their state
    ends: SimulatedRunEnd | None = None  # set if this run is told to end
    bring_up: SimulatedBringUp | None = None  # set if this run is brought up
    supervisor: Any = None  # set if processes are started again as a live run's are (`supervisor.py`)

    def __init__(self, sim: FaultedDriver, snapshots: Snapshots | None = None) -> None:
        """`snapshots`: those from which lost servers are restored; None where servers keep what they acknowledged."""
        self.leaving, self.draining, self.unhurried = set[int](), set[int](), set[int]()
        self.ending, self._sim = "", sim
        self._lost: set[SimulatedProcess] = set()  # crashed, and the others do not know yet
        self._carrying_out = False
        wish = sim.wish
        # A step may take any time here, and no process hangs but where it is drawn (`run_end.py`). Without a wish the
        # run goes on when all have left, since whoever runs it may let them join again.
        rules = RunRules(
            stop=wish.rule if wish else StopRule(),
            dead_after_s=sim.cluster.suspect_after_s,
            stuck_after_s=wish.stuck_s if wish else math.inf,
            min_workers=1 if wish else 0,
            done=sim.resumed_done,
            own_results=sim.own_results,
        )
        hosts = [placement.host for placement in sim.cluster.worker_placements()]
        absent = {rank for rank, host in enumerate(hosts) if host.joins_at_s > 0}
        absent |= set(wish.starts.late if wish and wish.starts else ())
        absent |= {rank for rank, _ in wish.upgrades.late} if wish and wish.upgrades else set()
        evaluator = wish is not None and wish.starts is not None and wish.starts.evaluator_at_s is not None
        size = RunSize(sim.cluster.workers, sim.cluster.servers, evaluator, absent)
        planner = SimulatedPlanner(sim)
        self.machine = CoordinatorMachine(size, rules, planner, SimulatedStrikes(sim), snapshots, self._clock_of(sim))
        self._roster, self._members = self.machine.run.roster, self.machine.run.members
        self._notices = LosslessNotices(sim, self.machine)
        if wish and wish.starts:
            return
        copied = snapshots is not None and snapshots.copies
        request = PlanRequest(
            ready=[MODEL], workers=[], servers=[], replaced=snapshots is not None, copied=copied, not_started=0
        )
        self.machine.begin_in_training(MODEL, planner.plan(request))
        self._carry_out()

    def _clock_of(self, sim: FaultedDriver) -> Callable[[], float]:
        """Returns the coordinator's clock: virtual time, but where something else is drawn."""
        if sim.wish is None:
            return lambda: sim.now
        clock = sim.wish.clock
        return lambda: self.bring_up.now if self.bring_up else clock.reads(sim.now)

    @property
    def banned(self) -> set[int]:
        """Returns the ranks of workers that were expelled and may not rejoin."""
        return {who.index for who in self._roster.banned}

    def tells_result(self, rank: int, said: loop_messages.OwnResult) -> None:
        """Lets the coordinator hear what worker `rank` says of its own result, and first how far all are.

        Live workers report that by themselves, several times a second.
        """
        if not self._sim.world.workers[rank].here:
            return
        for other, steps in enumerate(self._sim.steps):
            self.machine.own_results.progressed(other, steps)
        self._tells(rank, said)

    def _tells(self, rank: int, said: loop_messages.OwnResult) -> None:
        """Tells it: without hazards at once."""
        self._told(worker(rank), said)

    def _told(self, who: Party, message: Any) -> None:
        """Hands the coordinator a message, and carries out what follows."""
        self.machine.told(who, message)
        self._carry_out()

    # ---- decisions are carried out -------------------------------------------------------------------------
    def _carry_out(self) -> None:
        """Carries out what was decided, in that order, and what follows from that afterwards."""
        if self._carrying_out:
            return
        self._carrying_out = True
        try:
            while decision := self.machine.decide.take():
                for action in decision.actions:
                    self._act(action)
        finally:
            self._carrying_out = False

    def _act(self, action: Action) -> None:
        """Carries out one action. Those that are left out concern parties that no simulation has."""
        match action:
            case SendMessage(to=to, message=message):
                self._send(to, message)
            case WriteRecord(record=record):
                if self._sim.trace:
                    self._sim.trace(record)
            case FailCallsTo(who=who) if who.kind == "worker":
                self._is_cut_off(who)
            case CloseConnection(who=who, incarnation=incarnation):
                self._closes(who, incarnation)
            case NotifyWorkerLeft(rank=rank):
                self._own_roles_hear(self.hears_gone, rank)
            case NotifyWorkerJoined(rank=rank):
                self._own_roles_hear(self.hears_came, rank)
            case RunFailure(cause=cause):
                raise RunLost(cause)
            case _:
                pass

    def _send(self, to: tuple[Party, ...], message: Any) -> None:
        """Sends a message of the control plane. A newcomer is ready at once, and begins when it is told to."""
        match message:
            case control.WorkerLeft(rank=rank):
                self._announce(rank, to, self.hears_gone)
            case control.WorkerJoined(rank=rank, view=view):
                self._announce(rank, to, self.hears_came, view)
            case loop_messages.Drain():
                self._sim.leave(to[0].index)
            case control.Roster():
                self._told(to[0], MODEL)
            case control.Go():
                self._enter(self._sim.world.workers[to[0].index])

    def _own_roles_hear(self, hear: Hear, rank: int) -> None:
        """Lets those hear who are no parties: the carrier of means among workers, and the scheme's role at the
        coordinator."""
        world = self._sim.world
        if world.peers:
            hear(world.peers, rank)
        if world.coordinator:
            self._notices.hears_later(world.coordinator, world.workers[rank], hear)

    # ---- left and lost -------------------------------------------------------------------------------------
    def leave(self, incarnation: Incarnation) -> None:
        """Ends an incarnation cleanly: its role sends its last messages, and all are told."""
        party = incarnation.party
        self._sends_its_last(incarnation)
        if self._sim.sharing is None:
            self._left(party)
        else:
            self._sim.sharing.in_turn(party, lambda *_: self._left(party))

    def ends_now(self, rank: int) -> bool:
        """Returns True for a worker that makes its last exchange; its next incarnation can only begin after that."""
        incarnation = self._sim.incarnations[rank]
        return incarnation.alive and incarnation.ends

    def stays(self, rank: int) -> None:
        """Forgets that worker `rank` was asked to leave, unless the run ends."""
        if self.ends is None or not self.ends.stopped(self._sim.world.workers[rank]):
            self.leaving.discard(rank)
        self.draining.discard(rank)

    def _sends_its_last(self, incarnation: Incarnation) -> None:
        """Ends a loop, lets its role send its last messages, and declines the calls that wait for it."""
        sim, party = self._sim, incarnation.party
        self.stays(incarnation.rank)
        incarnation.end()
        sim.messaging.say_all(party, party.role.leave(sim.now + party.skew_s))
        party.here = False
        if sim.invariants and sim.invariants.mass:
            sim.invariants.mass.left(party)
        self._declines_as_it_leaves(party)

    def _left(self, party: SimulatedProcess) -> None:
        """Tells the coordinator that a worker has left."""
        self._told(worker(party.me), control.Left(reason=self.ending or ASKED))

    def crash(self, rank: int) -> None:
        """Ends the process of worker `rank`; the others are told after `suspect_after_s` seconds of silence."""
        party = self._sim.world.workers[rank]
        if self._dies(party):
            self._sim.heap.push(self._sim.now + self._sim.cluster.suspect_after_s, self._suspect, party)

    def _dies(self, party: SimulatedProcess) -> bool:
        """Ends the process of a worker that is present, and returns True if it was."""
        if not party.here:
            return False
        self._sim.incarnations[party.me].end()
        party.here = party.hears = False
        self._lost.add(party)
        if self._sim.invariants:
            self._sim.invariants.crashed(party.me)
        return True

    def expel(self, rank: int, reason: str) -> None:
        """Crashes worker `rank` and has it expelled in one go. It may not rejoin."""
        party = self._sim.world.workers[rank]
        if self._dies(party):
            self.machine.expel(rank, reason)
            self._carry_out()

    def silent(self, names: Iterable[str], for_s: float) -> None:
        """Does nothing: without hazards a process that lives is heard in the end, however late."""

    def stopped(self, party: SimulatedProcess) -> bool:
        """Returns True if that process was told that the run ends, or has not been told that it begins."""
        if self.bring_up is not None and self.bring_up.rests(party):
            return True
        return self.ends is not None and self.ends.stopped(party)

    @property
    def begin_s(self) -> float:
        """Returns when the loops of the workers begin; never, where each is told so."""
        return math.inf if self.bring_up else 0.0

    def restarted(self, ended: Incarnation) -> None:
        """Ends the step at which a worker hung that is restarted in place: its samples are free then."""
        if self.ends:
            self.ends.restarted(ended)

    def connection_lost(self, who: Party) -> None:
        """Does nothing: without hazards no connection breaks before its process ends."""

    def _suspect(self, party: SimulatedProcess) -> None:
        """Reports a crashed worker as lost, unless it rejoined meanwhile."""
        if party in self._lost:
            self.reports_lost(party, f"silent for {self._sim.cluster.suspect_after_s:g} s")

    def reports_lost(self, party: SimulatedProcess, why: str) -> None:
        """Reports a worker as lost to the coordinator."""
        self.machine.lost(worker(party.me), why)
        self._carry_out()

    def _is_cut_off(self, who: Party) -> None:
        """Drops what the lost worker had on its way, and fails the calls that wait at it."""
        party = self._sim.world.workers[who.index]
        self._lost.discard(party)
        self._fence(party)
        self._declines(party)

    def _closes(self, who: Party, incarnation: int) -> None:
        """Does nothing: without hazards only processes that have ended are lost."""

    def _fence(self, party: SimulatedProcess) -> None:
        """Drops what the lost worker had on its way: it could not be told from what its next incarnation sends."""

        def unless_its_own(event: Event) -> float | None:
            at, _, _, args = event
            sender = args[1] if len(args) > 1 else None
            if isinstance(sender, PendingCall):
                sender = sender.incarnation.party
            return None if sender is party else at

        self._sim.heap.change(unless_its_own)

    def _declines_as_it_leaves(self, party: SimulatedProcess) -> None:
        """Declines the calls that wait at a worker that leaves."""
        self._declines(party)

    def _declines(self, party: SimulatedProcess) -> None:
        """Fails the calls that wait at a worker that is gone."""
        for calls in party.open.values():
            for call in calls:
                self._sim.heap.push(self._sim.now, self._sim.messaging.lost, call, party.name)
        party.open.clear()

    def worker_of(self, src: SimulatedProcess, rank: int) -> SimulatedProcess:
        """Returns the process to which a message of `src` to worker `rank` goes."""
        return self._sim.world.workers[rank]

    def asked_in_vain(self, party: SimulatedProcess, call: PendingCall) -> None:
        """Handles a call to a worker that is absent: it waits until a crash is noticed, or fails at once after a clean
        leave."""
        if party in self._lost:
            party.admit(call)
        else:
            self._sim.messaging.lost(call, party.name)

    def is_missed(self, party: SimulatedProcess) -> bool:
        """Returns True if that worker has crashed and the coordinator does not know yet."""
        return party in self._lost

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
        """Starts a new incarnation of worker `rank`: all are told first, and it trains when the last one has heard.

        This does nothing for a worker that is present. One that crashed unnoticed is reported as lost first.
        """
        if self.ending:
            return  # nobody joins any more
        if self.ends_now(rank):
            self._sim.heap.push(self._sim.now + LOOK_AGAIN_S, self.join, rank)
            return
        self.stays(rank)
        party = self._sim.world.workers[rank]
        if party in self._lost:
            self.reports_lost(party, "came back")
        elif party.here or self._members.state(worker(rank)) in (MembershipState.JOINING, MembershipState.ANNOUNCED):
            return
        self.reports_end_of_former(party)
        self._told(worker(rank), hello_of(party.incarnation + 1))

    def reports_end_of_former(self, party: SimulatedProcess) -> None:
        """Reports the end of the process of a worker that had left; the coordinator lets no other one in before."""
        if worker(party.me) not in self._roster.lost:
            # No simulated model is lost with the worker that left last.
            self.machine.run.state.holder = COORDINATOR
            self.reports_lost(party, "its process ended")

    def _enter(self, old: SimulatedProcess) -> None:
        """Begins the new incarnation. Everybody knows of it, so every round that begins from here on counts it."""
        self.begins(self._sim.world.newcomer(old.me))

    def begins(self, party: SimulatedProcess, later_s: float = 0.0) -> None:
        """Starts the loop of a newcomer when the weights have travelled to it from the coordinator's card, or later."""
        sim, rank = self._sim, party.me
        begins_anew = not any(other.here for other in sim.world.workers if other is not party)
        for carrier in (*sim.world.means, sim.world.peers) if begins_anew else ():
            if carrier:
                carrier.role.forget_former()  # type: ignore[attr-defined]
        if sim.invariants:
            sim.invariants.watch(party)
            if begins_anew:
                sim.invariants.begins_anew()
        arrived = sim.network.arrival(sim.now, sim.world.control, party.nic, party.role.w.nbytes)
        incarnation = sim.begin(party, sim.incarnations[rank].number + 1, arrived + later_s)
        incarnation.fresh = True
        sim.incarnations[rank] = incarnation

    # ---- how the others hear of it -------------------------------------------------------------------------
    def _announce(self, rank: int, to: tuple[Party, ...], hear: Hear, view: int | None = None) -> None:
        """Tells the others of worker `rank`. `view`: what all of `to` acknowledge; others at once."""
        told = self._notices.announce(self._sim.world.workers[rank], to, hear)
        if view is None:
            return
        for other in to:
            if other in told:
                self._sim.heap.push(told[other], self._told, other, control.Aware(view=view))
            else:
                self.machine.acknowledged(other, view)

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
        if self._sim.message_checks:
            self._sim.message_checks.came(party, rank)
        effects: Iterable[Tell | Reply] = party.role.on_worker_joined(self._sim.now + party.skew_s, rank)
        if self._sim.invariants:
            self._sim.invariants.came(party, rank)
            effects = self._sim.invariants.answering(party, effects)
        self._sim.messaging.say_all(party, self._held(party, effects))

    def _held(self, party: SimulatedProcess, effects: Iterable[Tell | Reply]) -> Iterable[Tell | Reply]:
        """Returns those of the effects that may leave at once: here all of them."""
        return effects
