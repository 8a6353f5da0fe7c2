"""The coordinator of a simulation whose messages may be lost, and whose processes may be cut off and yet run.

    at a party                                        at the coordinator (`paceline.core.coordinator.machine`)
    it is silent for `suspect_after_s`                evicts it: WorkerLeft to all others
    it was evicted, and still runs: a zombie          drops its messages, and tells it; it ends, and starts again
    WorkerLeft: it fences the lost incarnation
    WorkerJoined: its role hears of it; Aware         lets the newcomer train when all have answered
    a new process starts: Hello                       Roster
    Roster: it fences those that are lost; Ready      WorkerJoined to all others; Go when all know
    a worker leaves: Left, when the others have       WorkerLeft to all others
    taken all that it sent (`leavers.py`)
    WorkerLeft with a view: Aware                     lets the drained worker exit when all have answered
    it may exit: its process ends when all that the   WorkerLeft, lost, to all others
    others sent it is handled

A fence means that the receiver takes nothing more of that incarnation; a live process closes the connection instead.
Who is heard is not simulated by messages: a process counts as heard while it lives and no fault silences it. The
coordinator itself does not fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from paceline.core.coordination import control_messages as control
from paceline.core.coordination import loop_messages
from paceline.core.coordination.decisions import Action, PartyJoined, RunFailure, StartTimer, StartTraining
from paceline.core.coordination.lifecycle import RunPhase
from paceline.core.coordination.party import EVALUATOR, Party, worker
from paceline.core.effects import Piece, Reply, Tell
from paceline.core.fault_tolerance.membership import MembershipState
from paceline.core.parties.lifecycle import AwaitTaken, SendLast
from paceline.core.role import Role, RoleContext
from paceline.sim.faults.coordination.heartbeats import SimulatedHeartbeats
from paceline.sim.faults.coordination.leave_checks import LeaveChecks
from paceline.sim.faults.coordination.members import ASKED, Members, RunLost
from paceline.sim.faults.coordination.newcomers import SimulatedNewcomers
from paceline.sim.faults.coordination.supervisor import SimulatedSupervisor
from paceline.sim.faults.links.lossy_links import LossyLinks
from paceline.sim.faults.parties.bring_up import SimulatedBringUp
from paceline.sim.faults.parties.incoming_calls import SimulatedIncomingCalls
from paceline.sim.faults.parties.leavers import LOOK_AGAIN_S, SimulatedLeavers
from paceline.sim.faults.parties.open_calls import SimulatedCalls
from paceline.sim.faults.parties.party_orders import SimulatedOrders
from paceline.sim.faults.parties.run_end import SimulatedRunEnd
from paceline.sim.faults.servers.recoverable_server import can_be_replaced
from paceline.sim.faults.servers.server_recovery import Servers
from paceline.sim.kernel.processes import Incarnation, SimulatedProcess

if TYPE_CHECKING:
    from paceline.sim.cluster.model import Hazards
    from paceline.sim.faulted_driver import FaultedDriver
    from paceline.sim.messaging import WireCodec


class LossyMembers(Members):
    """Does what `Members` does, over lossy links: a party knows what has reached it."""

    streams: LossyLinks
    calls: SimulatedCalls
    incoming: SimulatedIncomingCalls
    supervisor: SimulatedSupervisor | None = None

    def __init__(self, sim: FaultedDriver, hazards: Hazards, passage: WireCodec | None) -> None:
        self.calls = SimulatedCalls(sim, self.connection)
        self.incoming = SimulatedIncomingCalls(sim, self)
        self.streams = LossyLinks(sim, hazards, passage, self.calls, self.learns_it_is_fenced, self._sent_in_vain)
        place = RoleContext(me=0, workers=sim.world.ranks, w=None, update=lambda w, g, samples: w)
        self.control = SimulatedProcess("control plane", Role(sim.scheme, place), sim.world.control, 0.0)
        self._joining = SimulatedNewcomers(sim, self)
        self._heartbeats = SimulatedHeartbeats(sim, self)
        self.orders = SimulatedOrders(sim, self, self.streams)
        self.leavers = SimulatedLeavers(sim, self, self.streams, self.calls, self._says_it_left)
        self._left_cleanly: set[tuple[str, int]] = set()  # processes
        self.streams.has_left = lambda party: party.process in self._left_cleanly
        self._leaving = LeaveChecks(sim, self, self.control)
        self._lease: control.Lease | None = None
        if hazards.servers_keep != "all" and can_be_replaced(sim.scheme, sim.cluster.servers):
            copied = hazards.servers_keep == "replica"
            begun = not (sim.wish and sim.wish.starts)
            self.servers = Servers(sim, self, self.control, hazards.snapshot_every_s, copied=copied, begun=begun)
            self.streams.loses = self.servers.crash
        super().__init__(sim, self.servers.snapshots if self.servers else None)
        if sim.wish:
            self.ends = SimulatedRunEnd(sim, self, self.machine, sim.wish)
            if sim.wish.starts:
                self.bring_up = SimulatedBringUp(sim, self, sim.wish.starts)
            else:
                self.machine.ending.begin()
            if sim.wish.upgrades:
                self.supervisor = SimulatedSupervisor(sim, self, sim.wish.upgrades)
            self._carry_out()

    # ---- decisions are carried out -------------------------------------------------------------------------
    def carry_out_decisions(self) -> None:
        """Carries out what the coordinator's parts have decided."""
        self._carry_out()

    def fails(self, cause: str) -> None:
        """Ends the run as failed."""
        raise RunLost(cause)

    def _act(self, action: Action) -> None:
        if self.ends:
            self.ends.decided(action)
        match action:
            case StartTimer(seconds=seconds, timer=timer, number=number):
                self._heartbeats.start(seconds, timer, number)
            case StartTraining(not_started=ranks) if self.bring_up:
                self.bring_up.begins_training()
                for rank in ranks:
                    self._own_roles_hear(self.hears_gone, rank)
                self.machine.begin_training()
            case PartyJoined(who=who, hello=hello) if self.supervisor:
                self.supervisor.joined(who, hello.incarnation)
            case RunFailure(cause=cause) if self.supervisor:
                raise RunLost(self.supervisor.why_absent(cause))
            case _ if not (self.servers and self.servers.carries_out(action)):
                super()._act(action)

    def _own_roles_hear(self, hear: Callable[[SimulatedProcess, int], None], rank: int) -> None:
        world = self._sim.world
        for party in (world.peers, world.coordinator):
            if party and hear == self.hears_gone and self._members.state(worker(rank)) is MembershipState.LOST:
                self.orders.stops_hearing(party, world.workers[rank])
            if party:
                hear(party, rank)

    @property
    def present_servers(self) -> Sequence[SimulatedProcess]:
        """Returns the servers' processes of the moment; one of them may not have been restored yet."""
        return [s.party for s in self.servers.servers] if self.servers else self._sim.world.servers

    def silent(self, names: Iterable[str], for_s: float) -> None:
        self._heartbeats.silent(names, for_s)

    def connection_lost(self, who: Party) -> None:
        self._heartbeats.connection_lost(who)

    def watch_connections(self, over: Callable[[], bool], gone: Callable[[SimulatedProcess], None]) -> None:
        """Reports whose connection has broken, until `over`."""
        self._heartbeats.watch_connections(over, gone)

    def watch(self) -> None:
        """Looks for silent processes again, now that there is somebody to watch."""
        self._heartbeats.watch()

    def counts(self, src: SimulatedProcess) -> bool:
        """Returns True if the coordinator listens to that process; a live one closes the connection otherwise."""
        if self.bring_up and self.bring_up.began_s is None:
            return self.bring_up.is_connected(src)
        return self.machine.hears(src.who, src.incarnation)

    # ---- messages of the control plane ---------------------------------------------------------------------
    def _send(self, to: tuple[Party, ...], message: Any) -> None:
        if not self.over and isinstance(message, control.WorkerLeft | control.Exit):
            self._leaving.sent(to, message, [*self._roster.servers, *sorted(self._roster.training)])
        if isinstance(message, control.Lease):
            self._lease = message
            return
        for who in to:
            newcomer = self.newcomers.get(who.index) if who.kind == "worker" else None
            if newcomer and isinstance(message, control.Go):
                self._joining.enters_when_quiet(newcomer)
            elif newcomer and isinstance(message, control.Stop):  # also one that is not let in
                self.streams.send(self.control, newcomer, 0, self._hears, (newcomer, message))
            elif process := self.process_of(who):
                self.streams.send(self.control, process, 0, self._hears, (process, message))

    def process_of(self, who: Party) -> SimulatedProcess | None:
        """Returns the process to which the coordinator has a connection; None for a worker that is gone."""
        if who.kind == "server":
            return self.present_servers[who.index]
        if who == EVALUATOR:  # it hears Exit also when it comes too late
            there = self.bring_up.evaluators if self.bring_up else ()
            return next((party for party in there if party.hears and (self.over or self.counts(party))), None)
        party = self.newcomers.get(who.index) or self._sim.world.workers[who.index]
        return party if self.counts(party) else None

    def leases_to(self, party: SimulatedProcess, want: control.Want) -> Piece:
        """Returns the next lease of a worker, which is there at once: no simulated worker waits for its samples."""
        self._told(worker(party.me), want)
        lease, self._lease = self._lease, None
        assert lease is not None
        return lease.epoch, lease.start, lease.stop

    def tell(self, src: SimulatedProcess, message: Any) -> None:
        """Sends a message of a party to the coordinator."""
        self.streams.send(src, self.control, 0, self._is_told, (self.control, src, message))

    def _tells(self, rank: int, said: loop_messages.OwnResult) -> None:
        self.tell(self._sim.world.workers[rank], said)

    def _is_told(self, _control: SimulatedProcess, src: SimulatedProcess, message: Any) -> None:
        """Handles a message of a party as the live coordinator does."""
        who = src.who
        if not (src.hears if isinstance(message, control.Hello) else self.counts(src)):
            return
        if self.supervisor and isinstance(message, control.Hello) and not self.supervisor.lets_in(src):
            return
        if self.bring_up and isinstance(message, control.Hello) and not self.counts(src):
            self.bring_up.oracle.came(src.process)
        if isinstance(message, control.Left):
            self._left_cleanly.add(src.process)
        self._told(who, message)
        if src in self._lost and isinstance(message, control.Left):  # its connection ends right behind that
            self._lost.discard(src)
            self.streams.give_up(self.control, src)
            if self.ends:
                self.reports_lost(src, "its process ended")
            else:
                self.reports_end_of_former(src)
        if self._sim.leasing:
            self._sim.leasing.heard(message)

    def _hears(self, party: SimulatedProcess, message: Any) -> None:
        """Handles a message of the coordinator at a party."""
        if self.bring_up:
            self.bring_up.oracle.heard(party.process)
        self._leaving.drains.heard(party, message)
        if isinstance(message, control.WorkerLeft) and not message.lost:
            self._knows_of_leave(party, self._sim.world.workers[message.rank])
        self.orders.told(party, message)

    def _knows_of_leave(self, party: SimulatedProcess, left: SimulatedProcess) -> None:
        """Tells the invariants that a worker has heard who has left; a newcomer without a role has sent nothing."""
        if self._sim.invariants and party in self._sim.world.workers:
            self._sim.invariants.deliveries.knows_of_leave(party, left, self.streams.last_sent(party, left))

    def own_thread(self, party: SimulatedProcess, message: Any) -> None:
        """Does at a party what takes its time; a newcomer's Plan needs none."""
        if self.bring_up and self.bring_up.own_thread(party, message):
            return
        match message:
            case control.Roster():
                self._joining.meets(party, message)
            case control.Go() if self.servers:
                self.servers.begin(party)
            case control.Finish() if self.ends:
                self.ends.finishes(party)
            case loop_messages.Drain() if party.here:
                self._sim.leave(party.me)
            case _:
                pass

    def worker_of(self, src: SimulatedProcess, rank: int) -> SimulatedProcess:
        """Returns the process of the incarnation that `src` was told of: it may be a newcomer without a role yet, or
        dead."""
        present = self._sim.world.workers[rank]
        return self._joining.processes.get((present.name, self._told_incarnation(src, rank)), present)

    def connection(self, src: SimulatedProcess, to: SimulatedProcess) -> SimulatedProcess:
        """Returns the process that messages of `src` to the present process `to` reach: a worker may be connected to a
        former server still."""
        return self.servers.connections.of(src, to) if self.servers and to.kind == "server" else to

    def _told_incarnation(self, src: SimulatedProcess, rank: int) -> int:
        if src.kind == "coordinator":
            return self._members.incarnation(worker(rank))
        return self.orders.known(src).incarnations.get(rank, 0)

    @property
    def living(self) -> list[tuple[str, int]]:
        """Returns all processes of workers that run."""
        return [process for process, party in self._joining.processes.items() if party.hears]

    def process(self, name: str, incarnation: int) -> SimulatedProcess:
        """Returns the process of that incarnation of a worker."""
        return self._joining.processes[name, incarnation]

    def _sent_in_vain(self, dst: SimulatedProcess, act: Callable[..., None], args: tuple[Any, ...]) -> None:
        """Handles a message to a process known to be dead."""
        if act is self._sim.messaging.asked:
            self.calls.is_not_sent(args[1], dst)

    # ---- lost and left -------------------------------------------------------------------------------------
    def leave(self, incarnation: Incarnation) -> None:
        """Ends an incarnation that leaves: it says so when the others have taken all that it sent them.

        A zombie is out of the membership already, so nobody is told.
        """
        if not incarnation.party.here:
            self.stays(incarnation.rank)
            self.end(incarnation.party)
            if self.supervisor:
                self.supervisor.ended(incarnation.party, "it was evicted")
            return
        party, drained = incarnation.party, incarnation.rank in self.draining
        if drained:
            self._leaving.drains.begins(party)
        for action in self.orders.lifecycle(party).leaves(drained=drained):
            match action:
                case SendLast():
                    self._sends_its_last(incarnation)
                case AwaitTaken(by_servers=by_servers):
                    self.leavers.await_taken(party, [of.who for of in self._sim.world.servers] if by_servers else ())

    def _declines_as_it_leaves(self, party: SimulatedProcess) -> None:
        """Declines the calls that wait at a worker that leaves: the callers hear that behind its last messages."""
        self.incoming.leaves(party)

    def _says_it_left(self, party: SimulatedProcess) -> None:
        self._leaving.says_it_left(party)
        drained = self._leaving.drains.began(party)
        self.orders.says(party, self.orders.lifecycle(party).has_left(self.ending or ASKED, drained=drained))

    def crash(self, rank: int) -> None:
        """Crashes the process of worker `rank`, or that which is to take its place; its silence is noticed.

        All messages that it had not delivered are lost, also those with which it leaves.
        """
        party, newcomer = self._sim.world.workers[rank], self.newcomers.get(rank)
        if newcomer:
            newcomer.hears = False
            self.streams.forget(newcomer)
        elif not party.here and party.hears and self._sim.incarnations[rank].alive:  # a zombie
            self.end(party)
        elif self._dies(party) or self._dies_leaving(party):
            self.streams.forget(party)
        gone = newcomer or party
        if self.supervisor and not gone.hears:
            self.supervisor.ended(gone, "its process was killed")

    def _dies_leaving(self, party: SimulatedProcess) -> bool:
        """Ends the process of a worker that leaves and has not said so; returns True if it was one."""
        if not party.hears or worker(party.me) not in self._roster.training or not self.counts(party):
            return False
        party.hears = False
        self._lost.add(party)
        if self._sim.invariants:
            self._sim.invariants.crashed(party.me)
        self._sim.heap.push(self._sim.now + LOOK_AGAIN_S, self.streams.died, party)
        return True

    def expel(self, rank: int, reason: str) -> None:
        party = self._sim.world.workers[rank]
        super().expel(rank, reason)
        if not party.hears:
            self.streams.forget(party)

    def _is_cut_off(self, who: Party) -> None:
        """Ends the part that a worker takes, before anybody is told, so that no call is opened at it meanwhile."""
        party = self._sim.world.workers[who.index]
        if who.index in self.newcomers:
            return  # nobody asks a newcomer
        if party not in self._lost and self._sim.invariants:
            self._sim.invariants.crashed(who.index)
        party.here = False
        self._lost.discard(party)
        self.incoming.of(party).leave()  # callers fail what waits at it when they are told that it is lost

    def _closes(self, who: Party, incarnation: int) -> None:
        """Closes the connection to a process that was evicted: it ends once it learns that, if it still runs."""
        if who == EVALUATOR and self.bring_up and self.bring_up.evaluator:
            self.bring_up.evaluator.closes(incarnation)
            return
        party = self._joining.processes[str(who), incarnation]
        if self.newcomers.get(who.index) is party:
            del self.newcomers[who.index]
        if self.supervisor:
            self.supervisor.lost(who, incarnation)
        if party.hears:
            self.streams.send(self.control, party, 0, self.learns_it_is_fenced, (party,))
        else:
            self.streams.give_up(self.control, party)

    def learns_it_is_fenced(self, party: SimulatedProcess) -> None:
        """Ends a process that runs although it was declared dead, and starts another one in its place."""
        if self.servers and self.servers.learns_it_is_lost(party):
            return
        if not party.hears or party.kind != "worker" or self.counts(party):
            return
        if party.process in self._left_cleanly:  # it stays for what others still send to it
            self.streams.give_up(party, self.control)
            return
        self.end(party)
        if self.supervisor:
            self.supervisor.ended(party, "it was evicted")
        else:
            self._sim.join(party.me)

    def end(self, party: SimulatedProcess) -> None:
        """Ends a process for good: nothing that it has sent is sent again, and nothing is sent to it any more."""
        if self._sim.incarnations[party.me].party is party:
            self._sim.incarnations[party.me].end()
        party.hears = False
        self.streams.forget(party)
        self.streams.give_up(self.control, party)

    # ---- the end of a run ----------------------------------------------------------------------------------
    @property
    def over(self) -> bool:
        """Returns True once everybody was told that the run is over."""
        return self.machine.phase is RunPhase.OVER

    def exits(self, party: SimulatedProcess) -> None:
        """Ends the process of a party that may exit: its connections are closed."""
        party.hears = party.hears and party.kind != "evaluator"
        if party.kind == "worker":
            self.end(party)
        for other in (*self._sim.world.others, *self._sim.world.workers):
            if other.process == party.process:
                other.hears = False
        self.streams.closed(party)

    def begins(self, party: SimulatedProcess, later_s: float = 0.0) -> None:
        self._leaving.drains.enters(party.me)
        super().begins(party, later_s)

    def exits_drained(self, party: SimulatedProcess) -> None:
        """Ends the process of a worker that may exit though the run goes on, when it has handled what comes to it."""
        self._leaving.drains.exits(party)
        if self.ends:
            self.ends.gone(party)
        for action in self.orders.lifecycle(party).ends_early():
            if isinstance(action, AwaitTaken):
                self.leavers.await_taken(party, then=self._drained_ends)

    def _drained_ends(self, party: SimulatedProcess) -> None:
        """Ends the process of a drained worker; its connection to the coordinator ends with it."""
        self._leaving.ends(party)
        self.end(party)
        self.machine.lost(party.who, "its process ended")
        self._carry_out()
        self._leaving.drains.ended(party, self._roster.training)

    def ends_newcomer(self, party: SimulatedProcess) -> bool:
        """Ends the process of a newcomer that is told to stop before it trains; returns False if `party` is none."""
        return self._joining.stops(party)

    def join(self, rank: int) -> None:
        """Starts a new process of worker `rank`, unless the run's supervisor does that."""
        if not self.supervisor:
            self.starts(rank)

    def starts(self, rank: int) -> None:
        """Starts a new process of worker `rank`, which says Hello."""
        self._joining.join(rank)

    def has_left(self, party: SimulatedProcess) -> bool:
        """Returns True for a worker that has left training; its process stays until it may exit."""
        return self._members.state(party.who) is MembershipState.LEFT

    def ended(self, party: SimulatedProcess) -> None:
        """Reports the end of a process, as its supervisor does."""
        if self.newcomers.get(party.me) is party:
            self._joining.ends_early(party)
        elif self.counts(party):
            if self.ends:
                self.ends.gone(party)
            self.machine.lost(party.who, "its process ended")
            self._carry_out()

    @property
    def newcomers(self) -> dict[int, SimulatedProcess]:
        """Returns, by rank, processes that do not train yet."""
        return self._joining.waiting

    # ---- servers that are lost and replaced ----------------------------------------------------------------
    def lost_processes(self) -> Iterable[SimulatedProcess]:
        """Returns the incarnations of workers that were evicted: they are never told where a new process is."""
        return [p for p in self._joining.processes.values() if self._members.burnt(worker(p.me), p.incarnation)]

    def hears_gone(self, party: SimulatedProcess, rank: int) -> None:
        """Lets `party` hear that worker `rank` is gone: what waits for a copy at a server hears it with the role."""
        if self.servers:
            self.servers.knows(party, rank)
        self.incoming.of(party).gone(rank)
        super().hears_gone(party, rank)

    def hears_came(self, party: SimulatedProcess, rank: int) -> None:
        """Lets `party` hear that worker `rank` joins."""
        self.incoming.of(party).came(rank)
        super().hears_came(party, rank)

    def _held(self, party: SimulatedProcess, effects: Iterable[Tell | Reply]) -> Iterable[Tell | Reply]:
        """Returns the effects of a server that may leave before its copy knows them."""
        return self.servers.hold(party, effects) if self.servers else effects

    def after_replicated(self, party: SimulatedProcess, act: Callable[[], object]) -> None:
        """Calls `act` once the copy of that server knows what it knows, so that its successor would know it too."""
        if self.servers:
            self.servers.after_replicated(party, act)
        else:
            act()
