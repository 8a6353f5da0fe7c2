"""The coordinator of a simulation whose messages may be lost, and whose processes may be cut off and yet run.

    at a party                                        at the coordinator (`paceline.core.coordinator.machine`)
    it is silent for `suspect_after_s`                evicts it: WorkerLeft to all others
    it was evicted, and still runs: a zombie          drops its messages, and tells it; it ends, and starts again
    WorkerLeft: it fences the lost incarnation
    WorkerJoined: its role hears of it; Aware         lets the newcomer train when all have answered
    a new process starts: Hello                       Roster
    Roster: it fences those that are lost; Ready      WorkerJoined to all others; Go when all know
    a worker leaves: Left, when the other workers     WorkerLeft to all others
    have taken in all that it told them

A fence means that the receiver takes nothing more of that incarnation; a live process closes the connection instead.
Who is heard is not simulated by messages: a process counts as heard while it lives and no fault silences it. The
coordinator itself does not fail.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.decisions import Action, StartTimer, StartTraining, Timer
from paceline.core.coordination.lifecycle import RunPhase
from paceline.core.coordination.party import EVALUATOR, Party, worker
from paceline.core.effects import Piece, Reply, Tell
from paceline.core.fault_tolerance.membership import HERE, MembershipState
from paceline.core.parties.lifecycle import AwaitTaken, SendLast
from paceline.core.role import Role, RoleContext
from paceline.sim.faults.bring_up import MODEL, SimulatedBringUp, hello_of
from paceline.sim.faults.coordination import ASKED, Members
from paceline.sim.faults.lossy_links import LossyLinks
from paceline.sim.faults.party_orders import SimulatedOrders
from paceline.sim.faults.run_end import SimulatedRunEnd
from paceline.sim.faults.server_recovery import Servers, can_be_replaced
from paceline.sim.kernel.processes import Incarnation, SimulatedProcess

if TYPE_CHECKING:
    from paceline.sim.cluster.model import Hazards
    from paceline.sim.faulted_driver import FaultedDriver
    from paceline.sim.messaging import WireCodec

LOOK_AGAIN_S = 0.2
"""Seconds between two looks whether the last messages of a worker that leaves have arrived."""


class LossyMembers(Members):
    """Does what `Members` does, over lossy links: a party knows what has reached it."""

    streams: LossyLinks

    def __init__(self, sim: FaultedDriver, hazards: Hazards, passage: WireCodec | None) -> None:
        self.streams = LossyLinks(sim, hazards, passage, self.learns_it_is_fenced, self._sent_in_vain)
        place = RoleContext(me=0, workers=sim.world.ranks, w=None, update=lambda w, g, samples: w)
        self.control = SimulatedProcess("control plane", Role(sim.scheme, place), sim.world.control, 0.0)
        self._processes = {party.process: party for party in sim.world.workers}  # of workers, those that are over too
        self.newcomers: dict[int, SimulatedProcess] = {}  # by rank: processes that do not train yet
        self.orders = SimulatedOrders(sim, self, self.streams)
        self._left_cleanly: set[tuple[str, int]] = set()  # processes
        self._silent_until: dict[str, float] = {}
        self._watching = False
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
            self._carry_out()

    # ---- decisions are carried out -------------------------------------------------------------------------
    def carry_out_decisions(self) -> None:
        """Carries out what the coordinator's parts have decided."""
        self._carry_out()

    def _act(self, action: Action) -> None:
        if self.ends:
            self.ends.decided(action)
        match action:
            case StartTimer(seconds=seconds, timer=timer, number=number):
                self._start(seconds, timer, number)
            case StartTraining(not_started=ranks) if self.bring_up:
                self.bring_up.begins_training()
                for rank in ranks:
                    self._own_roles_hear(self.hears_gone, rank)
                self.machine.begin_training()
            case _ if not (self.servers and self.servers.carries_out(action)):
                super()._act(action)

    def _own_roles_hear(self, hear: Callable[[SimulatedProcess, int], None], rank: int) -> None:
        world = self._sim.world
        for party in (world.peers, world.coordinator):
            if party and hear == self.hears_gone and self._members.state(worker(rank)) is MembershipState.LOST:
                self.orders.stops_hearing(party, world.workers[rank])
            if party:
                hear(party, rank)

    def _start(self, seconds: float, timer: Timer, number: int) -> None:
        """Starts a timer. That which looks for the silent ends when nobody is left to be watched (`_watch`)."""
        self._watching = self._watching or timer is Timer.MEMBERS
        due = self._sim.now + seconds
        if self.ends and not self.bring_up:
            due = self.ends.clock.shows(self.machine.run.now() + seconds)
        self._sim.heap.push(max(due, self._sim.now), self._rings, timer, number)

    def _rings(self, timer: Timer, number: int) -> None:
        if timer is Timer.MEMBERS:
            self._watching = False
            if not (self._roster.training or self.newcomers or (self.servers and self.servers.any_is_away)):
                return
        if timer in (Timer.MEMBERS, Timer.EVALUATOR):
            self._hears_from_all()
        self.machine.rang(timer, number)
        self._carry_out()

    def _watch(self) -> None:
        """Looks for silent processes again, now that there is somebody to watch."""
        if not self._watching:
            self._rings(Timer.MEMBERS, 0)

    def _hears_from_all(self) -> None:
        """Notes everybody as heard that lives and that no fault silences."""
        now = self._sim.now
        for party in self._connected():
            silent = not party.hears or self._silent_until.get(party.name, 0.0) > now
            if self.counts(party) and not (silent and self._may_be_missed(party)):
                who = party.who
                if self.ends:
                    self.ends.progressed(party)
                    continue
                self.machine.heard(who, now)
                if party.kind == "worker":  # a step may take any time here
                    self._members.progressed(now, who, 0, waits=True, step_s=math.inf)

    def _may_be_missed(self, party: SimulatedProcess) -> bool:
        """Returns False for a server that comes back as it was, or without which the run would end."""
        if party.kind != "server":
            return True
        return self.servers is not None and (not party.hears or self.machine.survives(party.who))

    def _connected(self) -> Sequence[SimulatedProcess]:
        """Returns the processes of the moment; some of them may be dead, or lost."""
        others = (*self._present_servers(), *(self.bring_up.evaluators if self.bring_up else ()))
        return (*self._sim.world.workers, *self.newcomers.values(), *others)

    def _present_servers(self) -> Sequence[SimulatedProcess]:
        return [s.party for s in self.servers.servers] if self.servers else self._sim.world.servers

    def silent(self, names: Iterable[str], for_s: float) -> None:
        """Lets nothing be heard of these processes for `for_s` seconds."""
        for name in names:
            self._silent_until[name] = max(self._sim.now + for_s, self._silent_until.get(name, 0.0))

    def connection_lost(self, who: Party) -> None:
        """Reports that the connection to a process has broken: it counts as failed, though it may still run.

        Nothing happens to a server that comes back as it was, or without which the run would end.
        """
        party = self._process_of(who)
        starts = self.bring_up is not None and self.bring_up.lost(who)
        if party and party.hears and self._may_be_missed(party) and (starts or self._members.state(who) in HERE):
            self._is_gone(who, "its connection was reset")

    def counts(self, src: SimulatedProcess) -> bool:
        """Returns True if the coordinator listens to that process; a live one closes the connection otherwise."""
        if self.bring_up and self.bring_up.began_s is None:
            return self.bring_up.is_connected(src)
        return self.machine.hears(src.who, src.incarnation)

    # ---- messages of the control plane ---------------------------------------------------------------------
    def _send(self, to: tuple[Party, ...], message: Any) -> None:
        if isinstance(message, control.Lease):
            self._lease = message
            return
        for who in to:
            newcomer = self.newcomers.get(who.index) if who.kind == "worker" else None
            if newcomer and isinstance(message, control.Go):
                self._enters_when_quiet(newcomer)
            elif newcomer and isinstance(message, control.Stop):  # also one that is not let in
                self.streams.send(self.control, newcomer, 0, self._hears, (newcomer, message))
            elif process := self._process_of(who):
                self.streams.send(self.control, process, 0, self._hears, (process, message))

    def _process_of(self, who: Party) -> SimulatedProcess | None:
        """Returns the process to which the coordinator has a connection; None for a worker that is gone."""
        if who.kind == "server":
            return self._present_servers()[who.index]
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

    def _is_told(self, _control: SimulatedProcess, src: SimulatedProcess, message: Any) -> None:
        """Handles a message of a party as the live coordinator does."""
        who = src.who
        if not (src.hears if isinstance(message, control.Hello) else self.counts(src)):
            return
        if self.bring_up and isinstance(message, control.Hello) and not self.counts(src):
            self.bring_up.oracle.came(src.process)
        if isinstance(message, control.Left):
            self._left_cleanly.add(src.process)
        self._told(who, message)
        if isinstance(message, control.Restored) and self._sim.leasing:
            self._sim.leasing.restored()

    def _hears(self, party: SimulatedProcess, message: Any) -> None:
        """Handles a message of the coordinator at a party."""
        if self.bring_up:
            self.bring_up.oracle.heard(party.process)
        self.orders.told(party, message)

    def own_thread(self, party: SimulatedProcess, message: Any) -> None:
        """Does at a party what takes its time; a newcomer's Plan needs none."""
        if self.bring_up and self.bring_up.own_thread(party, message):
            return
        match message:
            case control.Roster():
                self._meets(party, message)
            case control.Go() if self.servers:
                self.servers.begin(party)
            case control.Finish() if self.ends:
                self.ends.finishes(party)
            case _:
                pass

    def worker_of(self, src: SimulatedProcess, rank: int) -> SimulatedProcess:
        """Returns the process of the incarnation that `src` was told of: it may be a newcomer without a role yet."""
        present, newcomer = self._sim.world.workers[rank], self.newcomers.get(rank)
        if newcomer and self._told_incarnation(src, rank) == newcomer.incarnation:
            return newcomer
        return present

    def _told_incarnation(self, src: SimulatedProcess, rank: int) -> int:
        if src.kind == "coordinator":
            return self._members.incarnation(worker(rank))
        return self.orders.known(src).incarnations.get(rank, 0)

    @property
    def living(self) -> list[tuple[str, int]]:
        """Returns all processes of workers that run."""
        return [process for process, party in self._processes.items() if party.hears]

    def process(self, name: str, incarnation: int) -> SimulatedProcess:
        """Returns the process of that incarnation of a worker."""
        return self._processes[name, incarnation]

    def _sent_in_vain(self, dst: SimulatedProcess, act: Callable[..., None], args: tuple[Any, ...]) -> None:
        """Handles a message to a process known to be dead: a call fails at once."""
        if act is self._sim.messaging.asked:
            self._sim.heap.push(self._sim.now, self._sim.messaging.lost, args[1], dst.name)

    # ---- lost and left -------------------------------------------------------------------------------------
    def leave(self, incarnation: Incarnation) -> None:
        """Ends an incarnation that leaves: it says so when the workers have taken in all that it told them.

        A zombie is out of the membership already, so nobody is told.
        """
        if not incarnation.party.here:
            self.leaving.discard(incarnation.rank)
            self._end(incarnation.party)
            return
        for action in self.orders.lifecycle(incarnation.party).leaves():
            match action:
                case SendLast():
                    self._sends_its_last(incarnation)
                case AwaitTaken():
                    self._leaves_when_settled(incarnation.party)

    def _leaves_when_settled(self, party: SimulatedProcess) -> None:
        # A live worker waits for other workers and servers. What its role told the coordinator's is before Left on the
        # same connection; here these are two streams.
        if not self.streams.settled(party, ("worker", "server", "coordinator")):
            self._sim.heap.push(self._sim.now + LOOK_AGAIN_S, self._leaves_when_settled, party)
        elif party.hears:
            self.orders.says(party, self.orders.lifecycle(party).has_left(ASKED))

    def crash(self, rank: int) -> None:
        """Crashes the process of worker `rank`, or that which is to take its place; its silence is noticed.

        All messages that it had not delivered are lost.
        """
        party, newcomer = self._sim.world.workers[rank], self.newcomers.get(rank)
        if newcomer:
            newcomer.hears = False
            self.streams.forget(newcomer)
        elif not party.here and party.hears and self._sim.incarnations[rank].alive:  # a zombie
            self._end(party)
        elif self._dies(party):
            self.streams.forget(party)

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
        self._declines(party)

    def _closes(self, who: Party, incarnation: int) -> None:
        """Closes the connection to a process that was evicted: it ends once it learns that, if it still runs."""
        if who == EVALUATOR and self.bring_up and self.bring_up.evaluator:
            self.bring_up.evaluator.closes(incarnation)
            return
        party = self._processes[str(who), incarnation]
        if self.newcomers.get(who.index) is party:
            del self.newcomers[who.index]
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
        self._end(party)
        self._sim.join(party.me)

    def _end(self, party: SimulatedProcess) -> None:
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

    def watch_connections(self, over: Callable[[], bool], gone: Callable[[SimulatedProcess], None]) -> None:
        """Reports whose connection has broken, until `over`: for phases in which nobody looks for the silent."""
        self._sim.heap.push(self._sim.now + self._sim.cluster.suspect_after_s, self._looks_at_connections, over, gone)

    def _looks_at_connections(self, over: Callable[[], bool], gone: Callable[[SimulatedProcess], None]) -> None:
        if over():
            return
        self.watch_connections(over, gone)
        for party in self._connected():
            if not party.hears and self.counts(party) and self._may_be_missed(party):
                gone(party)
                self._is_gone(party.who, "its process ended")

    def _is_gone(self, who: Party, why: str) -> None:
        self.machine.lost(who, why)
        self._carry_out()

    def exits(self, party: SimulatedProcess) -> None:
        """Ends the process of a party that may exit: its connections are closed."""
        party.hears = party.hears and party.kind != "evaluator"
        if party.kind == "worker":
            self._end(party)
        for other in (*self._sim.world.others, *self._sim.world.workers):
            if other.process == party.process:
                other.hears = False
        self.streams.closed(party)

    def ends_newcomer(self, party: SimulatedProcess) -> bool:
        """Ends the process of a newcomer that is told to stop before it trains; returns False if `party` is none."""
        if self.newcomers.get(party.me) is not party:
            return False
        party.hears = False
        self.streams.closed(party)
        self._ends_early(party)
        return True

    # ---- joining -------------------------------------------------------------------------------------------
    def join(self, rank: int) -> None:
        """Starts a new process of worker `rank`, which says Hello.

        This does nothing for a worker that is present or that already joins. A zombie joins later, when it has learnt
        of its eviction.
        """
        self.leaving.discard(rank)
        party, newcomer = self._sim.world.workers[rank], self.newcomers.get(rank)
        if newcomer and not newcomer.hears:
            self._ends_early(newcomer)
        if party.here or self._sim.incarnations[rank].alive or rank in self.newcomers:
            return
        if party in self._lost:
            self._reports_lost(party, "came back")
        if worker(rank) in self._roster.training:  # it leaves, and has not said so yet
            self._sim.heap.push(self._sim.now + LOOK_AGAIN_S, self.join, rank)
            return
        if self.ends and (self.over or self._members.state(worker(rank)) is MembershipState.LEFT):
            return  # who has left stays until everybody may exit
        self._its_process_has_ended(party)
        last = max(incarnation for name, incarnation in self._processes if name == party.name)
        newcomer = self.newcomers[rank] = self._sim.world.next_worker(rank, last + 1)
        self._processes[newcomer.process] = newcomer
        self.tell(newcomer, hello_of(newcomer.incarnation))
        self._watch()

    def _ends_early(self, newcomer: SimulatedProcess) -> None:
        """Reports the end of a process that died before it trained."""
        if self.counts(newcomer):
            self._reports_lost(newcomer, "its process ended")
        else:  # it has not said Hello
            del self.newcomers[newcomer.me]

    def _meets(self, party: SimulatedProcess, roster: control.Roster) -> None:
        """Meets the others of the roster. A worker is ready then: all train the same model."""
        own = {party.me} if party.kind == "worker" else set()
        for rank in set(roster.lost) - own if roster.incarnations else ():
            # A newcomer that came before this one takes part already; of its earlier incarnations nothing is heard.
            last = roster.incarnations[rank] - (rank in roster.joining)
            if dead := self._processes.get((self._sim.world.workers[rank].name, last)):
                self.orders.stops_hearing(party, dead)
        if party.kind == "worker":
            self.tell(party, MODEL)

    def _enters_when_quiet(self, newcomer: SimulatedProcess) -> None:
        """Begins the new incarnation of a worker that everybody expects.

        What a worker that left cleanly has sent arrives first. Its role hears what the process has heard before.
        """
        rank, world = newcomer.me, self._sim.world
        if self.newcomers.get(rank) is not newcomer or not newcomer.hears:
            return  # it was lost meanwhile, or has died and will be missed
        old = world.workers[rank]
        if old.hears and not self.streams.quiet(old):
            self._sim.heap.push(self._sim.now + LOOK_AGAIN_S, self._enters_when_quiet, newcomer)
            return
        self._end(old)
        del self.newcomers[rank]
        if self.servers and self._sim.invariants:
            self._sim.invariants.enters(rank, self.servers.kept_recounts())
        self._begins(world.newcomer(rank, newcomer), self.ends.begins_later_s(newcomer) if self.ends else 0.0)
        if self.servers:
            self.servers.snapshots.keep_on()
        self.orders.enter(newcomer)

    # ---- servers that are lost and replaced ----------------------------------------------------------------
    def lost_processes(self) -> Iterable[SimulatedProcess]:
        """Returns the incarnations of workers that were evicted: they are never told where a new process is."""
        return [p for p in self._processes.values() if self._members.burnt(worker(p.me), p.incarnation)]

    def hears_gone(self, party: SimulatedProcess, rank: int) -> None:
        """Lets `party` hear that worker `rank` is gone: what waits for a copy at a server hears it with the role."""
        if self.servers:
            self.servers.knows(party, rank)
        super().hears_gone(party, rank)

    def _held(self, party: SimulatedProcess, effects: Iterable[Tell | Reply]) -> Iterable[Tell | Reply]:
        """Returns the effects of a server that may leave before its copy knows them."""
        return self.servers.hold(party, effects) if self.servers else effects

    def after_replicated(self, party: SimulatedProcess, act: Callable[[], object]) -> None:
        """Calls `act` once the copy of that server knows what it knows, so that its successor would know it too."""
        if self.servers:
            self.servers.after_replicated(party, act)
        else:
            act()
