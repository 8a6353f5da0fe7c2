"""Servers that are lost with all their state and replaced, as the recovery of a live run orders it.

    the coordinator decides (`Recovery`)      carried out here, at the server
    CloseConnection of a lost server          its process ends, once it is told; the next incarnation starts: Hello
    Restore, from its copy                    it asks the next server for the copy, becomes that, and says Prepared
    Restore, from the coordinator             it becomes what the newest snapshot says, and says Prepared
    the next server has no complete copy      Prepared, failed: the coordinator gives another order
    Go, Resume at a server                    it copies all to the next server again
    Resume at a worker                        it repeats its unanswered calls, or, if all went back, starts anew

`paceline.core.coordination.server_recovery` decides, and `paceline.core.fault_tolerance.replication` copies. What
differs from a live run: a snapshot and a copy travel as one message each, with the order or the answer to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from paceline.core.coordination import control_messages as control
from paceline.core.coordination import party as parties
from paceline.core.coordination.decisions import Action, BeginSnapshots, CloseConnection, SendMessage, SnapshotOrder
from paceline.core.coordination.party import COORDINATOR, Party
from paceline.core.effects import Data, Reply, Tell
from paceline.core.fault_tolerance.replication import Complete, Kept, SliceState
from paceline.core.fault_tolerance.server_replacement import why_not_copied
from paceline.core.fault_tolerance.snapshots import FORGET
from paceline.core.paramserver.clocks import among_others
from paceline.core.parties.orders import (
    BeginCopies,
    OrderAction,
    RepeatCalls,
    RolesHearJoined,
    RolesHearLeft,
    VoidCalls,
)
from paceline.core.parties.server_restore import (
    BecomeState,
    EnterServerView,
    FetchState,
    ForgetCaptures,
    ForgetCopies,
    ForgetResolved,
    MeetEverybody,
    ReplaceRoles,
    RestoreAction,
    ToCoordinator,
)
from paceline.sim.checking.oracles.contributions import ShardRecount
from paceline.sim.checking.oracles.recoveries import RecoveryOracle
from paceline.sim.faults.parties.bring_up import hello_of
from paceline.sim.faults.servers.connections import ServerConnections
from paceline.sim.faults.servers.recoverable_server import RecoverableServer
from paceline.sim.faults.servers.snapshots import UPDATE, WEIGHTS, SimulatedSnapshots, nbytes_of, recount_in
from paceline.sim.kernel.processes import SimulatedProcess

if TYPE_CHECKING:
    from paceline.sim.faulted_driver import FaultedDriver, LossyFaultedMembers
    from paceline.sim.faults.links.lossy_links import LossyLinks


RESTART_S = 1.0
"""Seconds after which a process that died before its Hello is started again."""


class Servers:
    """Carries out at the servers of `sim` what its coordinator orders. `control`: the process of the coordinator."""

    def __init__(
        self,
        sim: FaultedDriver,
        members: LossyFaultedMembers,
        control: SimulatedProcess,
        every_s: float,
        *,
        copied: bool,
        begun: bool,
    ) -> None:
        """`begun`: the run trains from the beginning; otherwise Go and BeginSnapshots say when it does."""
        world = sim.world
        self.sim, self._members, self._control = sim, members, control
        self.streams: LossyLinks = members.streams
        self.copied: bool = copied and len(world.servers) > 1 and not why_not_copied(sim.scheme)
        self.servers: list[RecoverableServer] = []
        self.servers = [RecoverableServer(self, *parties) for parties in zip(world.servers, world.means, strict=True)]
        self._all = {server.party.process: server for server in self.servers}
        self.connections = ServerConnections(sim, members, self._stops_hearing)
        self.snapshots = SimulatedSnapshots(self, control, every_s)
        self._oracle: RecoveryOracle | None = None
        if sim.invariants:
            self._oracle = RecoveryOracle(sim.invariants.broken, len(self.servers), copied=self.copied)
        for server in self.servers:
            self._listen(server)
            if begun:
                sim.heap.push(0.0, self._begin, server)
        if begun:
            self.snapshots.keep_on()

    @property
    def any_is_away(self) -> bool:
        """Returns True while a server does not run, or has not been restored."""
        return self._members.machine.recovery.under_way or not all(server.party.hears for server in self.servers)

    def _listen(self, server: RecoverableServer) -> None:
        """Wraps the server's `on`: replies are held for copies, and snapshots are taken. Invariants see it first."""
        on = server.party.on

        def held(now: float, src: int, message: Any) -> list[Tell | Reply]:
            may_go = server.hold(on(now, src, message))
            self.snapshots.look(server)
            return may_go

        server.party.on = held

    # ---- decisions are carried out -------------------------------------------------------------------------
    def carries_out(self, action: Action) -> bool:
        """Carries out what concerns servers; returns False for everything else."""
        match action:
            case SendMessage(to=to, message=control.Restore() as order):
                for who in to:
                    if self._oracle:
                        self._oracle.ordered(who.index, _keeper(order))
                    self._sends_order(self.servers[who.index], order)
            case BeginSnapshots():
                self.snapshots.keep_on()
            case SnapshotOrder.HOLD:
                self.snapshots.hold()
            case SnapshotOrder.RELEASE:
                self.snapshots.release()
            case SendMessage(message=control.Resume(rolled_back=rolled_back)):
                if self.sim.invariants:
                    self.sim.invariants.servers_are_back(self._members.machine.recovery.number, rolled_back=rolled_back)
                if self._oracle:
                    self._oracle.back(rolled_back=rolled_back)
                return False
            case CloseConnection(who=who, incarnation=incarnation) if who.kind == "server":
                if self._oracle:
                    self._oracle.lost(who.index)
                self._is_given_up(self.servers[who.index])
                if self._members.supervisor:
                    self._members.supervisor.lost(who, incarnation)
                else:
                    self.starts_next(who.index)
            case _:
                return False
        return True

    def begin(self, party: SimulatedProcess) -> None:
        """Starts copying at a server, which the coordinator has told Go."""
        if party.kind == "server":
            self._begin(self._all[party.process])

    def carry_out(self, party: SimulatedProcess, action: OrderAction) -> None:
        """Carries out what it means to `party` that all servers are restored."""
        match action:
            case BeginCopies(servers=servers):
                for dead in self._former(servers):
                    self._knows_of_loss(self._all[party.process], dead)
                self._begin(self._all[party.process])
            case RepeatCalls(servers=servers):
                self._repeats_calls(party, servers)
            case VoidCalls():
                self._servers_went_back(party, action)
            case _:
                pass  # no simulated worker tells a server numbers of its optimizer

    # ---- copies --------------------------------------------------------------------------------------------
    def _begin(self, server: RecoverableServer) -> None:
        """Starts copying to the next server: all servers are in place."""
        if self._oracle:
            self._oracle.copies(server.party.process)
        if server.copies:
            server.after = self.servers[(server.shard + 1) % len(self.servers)]
            server.copies.begin()

    def hears_copy(self, server: RecoverableServer, src: RecoverableServer, message: Any) -> None:
        """Handles a message of the copies at `server`."""
        assert server.copies is not None
        self._meets(server, src)
        if not isinstance(message, Kept):
            server.before = src
        for _ in server.copies.on(self.sim.now, src.shard, message):
            raise AssertionError("copies answer by what they tell")
        if self._oracle and isinstance(message, Complete):
            assert server.kept is not None
            self._oracle.keeps_copy(src.shard, server.kept.vectors)

    def _meets(self, server: RecoverableServer, src: RecoverableServer) -> None:
        """A later incarnation has connected to `server`: the connections of the earlier ones are over."""
        for other in list(self._all.values()):
            if other.shard == src.shard and other.party.incarnation < src.party.incarnation:
                self._knows_of_loss(server, other)

    def released(self, server: RecoverableServer, effects: Iterable[Tell | Reply]) -> None:
        """Sends effects that had waited for their copy; replies to workers that left meanwhile are dropped."""
        for effect in effects:
            server.held.pop(id(effect), None)
            if id(effect) in server.void and self.sim.invariants:
                who = server.party.name
                raise self.sim.invariants.broken(f"{who} sends an answer that it held for a worker that has gone")
            self.answers(server, effect)
            self.sim.messaging.say(server.party, effect)

    def answers(self, server: RecoverableServer, effect: Tell | Reply) -> None:
        """Tells the invariants that a reply leaves."""
        if self.sim.invariants and type(effect) is Reply:
            self.sim.invariants.answered(server.party, effect.to)
            if self._oracle:
                self._oracle.answers(server.party.process)

    def knows(self, party: SimulatedProcess, rank: int) -> None:
        """Lets a server's copies hear that worker `rank` has left; they need no notice of one that joins."""
        server = self._all.get(party.process)
        if server and server.party is party and server.copies:
            list(server.copies.on_worker_left(self.sim.now, rank))
            server.void |= {id: reply for id, reply in server.held.items() if reply.to == rank}

    def kept_recounts(self) -> Iterator[tuple[int, ShardRecount]]:
        """Yields, for every server whose state is wholly copied, its number and the recount that travelled with the
        copy."""
        for server in self.servers if not self._members.machine.recovery.under_way else ():
            keeper = self.servers[(server.shard + 1) % len(self.servers)]
            if kept := keeper.kept:
                yield server.shard, recount_in(kept)

    def after_replicated(self, party: SimulatedProcess, act: Callable[[], object]) -> None:
        """Calls `act` once the copy of that server knows what it knows now; at once for a party without copies."""
        server = self._all.get(party.process)
        if server and server.party is party and server.copies:
            server.copies.after_replicated(lambda: (act(), None)[1])
        else:
            act()

    def hold(self, party: SimulatedProcess, effects: Iterable[Tell | Reply]) -> Iterable[Tell | Reply]:
        """Returns the effects that may leave at once; the others wait until the next server has their copy."""
        server = next((server for server in self.servers if server.party is party), None)
        return server.hold(effects) if server else effects

    # ---- lost ----------------------------------------------------------------------------------------------
    def crash(self, party: SimulatedProcess) -> bool:
        """Crashes a server with all its state; returns False if `party` is no server.

        Nothing happens where the crash would end the run, since there is no copy and no snapshot yet.
        """
        server = self._all.get(party.process)
        if server is None:
            return False
        if server.lost and not party.hears:
            server = self.servers[party.me]  # the one that is in its place by now
        if server.party.hears and (server.lost or self._members.machine.survives(server.party.who)):
            self.streams.injected["server lost"] += 1
            self._die(server)
            supervised = self._members.supervisor is not None
            if not supervised and not server.lost and not self._members.counts(server.party):
                self.sim.heap.push(self.sim.now + RESTART_S, self._replaces, server)  # nobody waits to hear of it
        return True

    def dies(self, shard: int) -> None:
        """Ends the process of a server, whether or not the run survives that."""
        self._die(self.servers[shard])

    def _die(self, server: RecoverableServer) -> None:
        """Stops the processes of a server; what they sent and was not acknowledged is lost.

        Its host may be gone as well, so nobody notices. Neighbours learn of it when the next incarnation connects.
        """
        for party in server.parties:
            party.hears = False
        self.streams.forget(server.party)
        if server.lost:  # the coordinator has closed its connection
            self.streams.give_up(self._control, server.party)
        if self._members.supervisor:
            self._members.supervisor.ended(server.party, "its process was killed")

    def stops(self, party: SimulatedProcess) -> None:
        """Ends the process of a server."""
        self._die(self._all[party.process])

    def is_lost(self, party: SimulatedProcess) -> bool:
        """Returns True if the coordinator has given that incarnation of a server up, or has never heard of it."""
        return self._all[party.process].lost or not self._members.counts(party)

    def _replaces(self, server: RecoverableServer) -> None:
        self._is_given_up(server)
        self.starts_next(server.shard)

    def _is_given_up(self, server: RecoverableServer) -> None:
        """Counts with a server no more. One that still runs ends once it is told."""
        if self.sim.invariants:
            self.sim.invariants.forget_server(server.party)
        if server.party.hears:
            self.streams.send(self._control, server.party, 0, self._is_told_it_is_lost, (server.party,))
        else:
            self.streams.give_up(self._control, server.party)
        server.lost = True

    def starts_next(self, shard: int) -> None:
        """Starts the next incarnation of a server that was evicted, or that has ended before anybody heard of it."""
        server = self.servers[shard]
        if not server.lost:
            self._is_given_up(server)
        party, means = self.sim.world.next_server(server.party, server.means)
        made = self._all[party.process] = RecoverableServer(self, party, means)
        self.servers[server.shard] = made
        for dead in self._members.lost_processes():  # nobody tells them where the new process is
            self.streams.fence(party, dead)
        self._members.tell(party, hello_of(party.incarnation))

    def _is_told_it_is_lost(self, party: SimulatedProcess) -> None:
        self.learns_it_is_lost(party)

    def learns_it_is_lost(self, party: SimulatedProcess) -> bool:
        """Ends an evicted server that still runs; returns False if `party` is no server."""
        server = self._all.get(party.process)
        if server is None:
            return False
        if server.lost and party.hears:
            self._die(server)
        return True

    def _knows_of_loss(self, server: RecoverableServer, dead: RecoverableServer) -> None:
        """Lets `server` fence the `dead` incarnation; copies with that neighbour end. A second notice changes
        nothing."""
        if dead.party.incarnation <= server.lost_incarnations.get(dead.shard, -1):
            return
        server.lost_incarnations[dead.shard] = dead.party.incarnation
        self.streams.fence(server.party, dead.party)
        if server.copies and dead in (server.before, server.after):
            server.copies.lost(dead.shard)

    # ---- restored ------------------------------------------------------------------------------------------
    def _sends_order(self, server: RecoverableServer, order: control.Restore) -> None:
        """Sends an order to restore; what the coordinator's snapshot says of the server travels with it."""
        newest = self.snapshots.newest if _keeper(order) is None else None
        state = newest[server.shard] if newest else None
        nbytes = nbytes_of(state) if state else 0
        self.streams.send(self._control, server.party, nbytes, self._restore, (server, order, state))

    def _restore(self, server: RecoverableServer, order: control.Restore, state: SliceState | None) -> None:
        """Handles an order at `server`; `state`: what came with it, if it is to become what the snapshot says."""
        self._carry_out_restore(server, server.restoring.ordered(order), state)

    def _carry_out_restore(
        self, server: RecoverableServer, actions: Iterable[RestoreAction], state: SliceState | None = None
    ) -> None:
        """Carries out what an order to restore means to `server`."""
        party = server.party
        for action in actions:
            match action:
                case FetchState(order=order) if state:
                    self._has_fetched(server, order, state)
                case FetchState(order=order):
                    source = _keeper(order)
                    assert source is not None
                    keeper = self.servers[source]
                    self.streams.send(server.copier, keeper.copier, 0, self._asks_for_copy, (keeper, server, order))
                case BecomeState() as become:
                    assert state is not None
                    self._become(server, become, state)
                case MeetEverybody():
                    self._meet_all(server)
                case ToCoordinator(message=message):
                    if self._oracle and isinstance(message, control.Prepared) and message.failed:
                        self._oracle.has_no_copy()
                    self._members.tell(party, message)
                case RolesHearLeft(rank=rank):
                    self._members.hears_gone(party, rank)
                case RolesHearJoined(rank=rank):
                    self._members.hears_came(party, rank)

    def _asks_for_copy(self, keeper: RecoverableServer, server: RecoverableServer, order: control.Restore) -> None:
        """Answers a server that asks for its copy; without a complete copy the answer is empty and costs no bytes."""
        self._meets(keeper, server)
        if self._oracle:
            self._oracle.asked_for_copy(server.shard, keeper.shard)
        state = keeper.kept
        nbytes = nbytes_of(state) if state else 0
        self.streams.send(keeper.copier, server.copier, nbytes, self._has_fetched, (server, order, state))

    def _has_fetched(self, server: RecoverableServer, order: control.Restore, state: SliceState | None) -> None:
        """Handles the state that the order names, or None where the keeper has not all of it."""
        if not server.lost:
            self._carry_out_restore(server, server.restoring.fetched(order, complete=state is not None), state)

    def _become(self, server: RecoverableServer, become: BecomeState, state: SliceState) -> None:
        """Makes `server` the state that was kept; then it reports."""
        party, order, before = server.party, become.order, server.version
        for step in become.steps:
            match step:
                case ForgetCaptures():
                    server.wanted.want(FORGET)
                case ForgetResolved():
                    if self.sim.leasing:
                        self.sim.leasing.forgets_resolved(party)
                case ReplaceRoles(rolled_back=rolled_back):
                    self._takes(server, state, order.number, rolled_back=rolled_back)
                case ForgetCopies():
                    if server.copies:
                        server.copies.forget()
                    server.held.clear()
                    if self._oracle:
                        self._oracle.forgets_copies(party.process)
                case EnterServerView(server_view=view):
                    self.streams.server_views[party.process] = view
                    self._members.incoming.of(party).begin_server_view()
                    if self.sim.message_checks:
                        self.sim.message_checks.servers_went_back(party)
        done: Data | None = None
        if self.sim.leasing and not server.shard:
            self.sim.leasing.attach(party)
            done = tuple(party.role.done)  # type: ignore[attr-defined]
        departed = self._members.orders.known(party).departed
        became = server.restoring.became(order, departed, before=before, version=server.version, done=done)
        self._carry_out_restore(server, became)

    def _takes(self, server: RecoverableServer, state: SliceState, number: int, *, rolled_back: bool) -> None:
        """Replaces the role of a server by one in that state, by order `number`; the oracle goes back with it."""
        party, world = server.party, self.sim.world
        if (former := world.servers[server.shard]) is not party:
            self.connections.has_successor(former)
        # From a snapshot all servers go back together, and workers start anew. From a copy the others go on, so the
        # tables are kept as they are.
        tables = among_others(state.facts["tables"]) if rolled_back else state.facts["tables"]
        world.revive(party, state.vectors[WEIGHTS], state.vectors[UPDATE].value, tables)
        world.servers[server.shard], world.means[server.shard] = party, server.means
        if self.sim.invariants:
            self.sim.invariants.revived(party, recount_in(state), number, copied=not rolled_back)
        self._listen(server)

    def _meet_all(self, server: RecoverableServer) -> None:
        """Connects a new incarnation to all workers and servers, each of which then drops the former one."""
        for other in self.servers:
            if other is not server:
                self.streams.send(server.party, other.party, 0, self._meets, (other, server))
        for party in self.sim.world.workers:
            if party.here:
                self.streams.send(server.party, party, 0, self.connections.is_called, (party, server.party))

    def _former(self, replaced: Iterable[int]) -> list[RecoverableServer]:
        """Returns the incarnations before the present ones of the servers that were replaced.

        The present one may be lost by now, and its successor not restored; of that the coordinator tells later.
        """
        present = self.sim.world.servers
        return [
            old
            for old in self._all.values()
            if old.shard in replaced and old.party.incarnation < present[old.shard].incarnation
        ]

    def _stops_hearing(self, party: SimulatedProcess, successor: SimulatedProcess) -> None:
        """Lets `party` take nothing more of the incarnations of a server before `successor`."""
        for old in list(self._all.values()):
            if old.shard == successor.me and old.party.incarnation < successor.incarnation:
                self.streams.fence(party, old.party)

    def _knows_successors(self, party: SimulatedProcess, replaced: Iterable[int]) -> None:
        """The coordinator has said that these servers were replaced: their successors have called `party` by now."""
        for shard in replaced:
            present = self.sim.world.servers[shard]
            self._stops_hearing(party, present)  # a newcomer may have called a former one before it took part
            self.connections.is_called(party, present)

    def _repeats_calls(self, party: SimulatedProcess, replaced: Iterable[int]) -> None:
        """Sends what no incarnation of these servers has answered to the present ones.

        A present one may have been restored twice, since another server was lost meanwhile: it has dropped what it was
        asked between.
        """
        self._knows_successors(party, replaced)
        self._members.calls.sends_again(party, [parties.server(shard) for shard in replaced])

    def _servers_went_back(self, party: SimulatedProcess, void: VoidCalls) -> None:
        """Voids the calls of a worker to servers, which are in an earlier state, and lets its loop start anew."""
        self._knows_successors(party, void.servers)
        self.streams.server_views[party.process] = void.server_view
        self._members.orders.servers_went_back(party)
        if void.rolled_back:
            if self.sim.leasing:
                self.sim.leasing.on_rollback(party)
            incarnation = self.sim.incarnations[party.me]
            if incarnation.party is party and incarnation.alive:
                incarnation.start_anew()
            party.role.on_rollback()
        self._members.calls.servers_went_back(party, void.server_view)


def _keeper(order: control.Restore) -> int | None:
    """Returns the server whose copy the order names; None for the coordinator's snapshot."""
    return None if order.source == str(COORDINATOR) else Party.parse(order.source).index
