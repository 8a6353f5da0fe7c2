"""Servers that are lost with all their state and replaced, by the rules and the copies of a live run.

    state       input                                   then                                              next
    IN PLACE    it crashes                              nothing yet                                       CRASHED
    CRASHED     silent for `suspect_after_s`            evicted; a new incarnation; orders (`_order_all`) RESTORING
    IN PLACE    silent for so long, though it runs      evicted, too; it ends once it is told             RESTORING
    RESTORING   its copy, from the next server          it has the copy's state, and says so              PREPARED
    RESTORING   the newest snapshot (all servers)       all have the snapshot's state, and say so         PREPARED
    RESTORING   the next server has no complete copy    a new order, by the snapshot                      RESTORING
    PREPARED    all that were ordered are prepared      workers continue (`_resume`)                      IN PLACE
    any         another server is evicted               a new order, with a new number                    RESTORING

Workers then repeat their unanswered calls, or, if all went back to the snapshot, start anew from it; messages of the
earlier server view are dropped. `paceline.core.fault_tolerance.server_recovery` and `.replication` have the rules.

What differs from a live run: snapshots and states travel as one message, and the coordinator, which keeps the
snapshots, does not fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from paceline.core.effects import Reply, Tell
from paceline.core.errors import PeerLost
from paceline.core.fault_tolerance.replication import Copies, Kept, SliceState, mark_of
from paceline.core.fault_tolerance.server_recovery import Replacing
from paceline.core.message import size
from paceline.core.paramserver.gated_server import among_others
from paceline.core.role import Role, RoleContext
from paceline.core.scheme import Scheme
from paceline.core.trace import MemberChange
from paceline.sim.checking.oracles.contributions import ShardRecount
from paceline.sim.faults.snapshots import RECOUNT, UPDATE, WEIGHTS, SimulatedSnapshots, Snapshot, nbytes_of, state_of
from paceline.sim.kernel.processes import PendingCall, SimulatedProcess

if TYPE_CHECKING:
    from paceline.sim.faults.confirmed_membership import AckedMembership
    from paceline.sim.simulation import Simulation


class ServerLost(PeerLost):
    """Is raised when neither a copy nor a snapshot is left to restore a server from: the run is over."""


def can_be_replaced(scheme: Scheme, servers: int) -> bool:
    """Returns True if servers and workers of this scheme can go back to an earlier state."""
    box = scheme.server(servers)
    return box is not None and not scheme.uses_mean(servers) and box.goes_back and scheme.worker(servers).goes_back


@dataclass(frozen=True, slots=True)
class Order:
    """Orders a server to load its state from the snapshot, or else from the copy that server `keeper` has."""

    number: int
    server_view: int
    snapshot: Snapshot | None
    keeper: int


class RecoverableServer:
    """Holds one incarnation of a server: its role, its carrier of means, and what copies to and from its neighbours.

    wanted   number and version of the snapshot that it is to take, or None
    held     the call that each held-back reply answers, by the identity of the reply
    ordered  the number of the last order it has carried out
    copier   the process by which copies travel; None of its messages reaches a scheme's role
    """

    def __init__(self, whole: Servers, party: SimulatedProcess, means: SimulatedProcess) -> None:
        self.whole, self.party, self.means = whole, party, means
        self.shard, self.lost = party.me, False
        self.wanted: tuple[int, int] | None = None
        self.lost_incarnations: dict[int, int] = {}  # by shard: of others, the last one that it knows to be over
        self.held: dict[int, PendingCall] = {}  # by the answer to it that waits for a copy
        self.ordered = 0
        self.copies = self._copies() if whole.copied else None
        self.copier = SimulatedProcess(
            party.name, self.copies or Role(None, _nobody(party.me)), party.nic, party.skew_s
        )
        self.copier.incarnation, self.copier.process = party.incarnation, party.process
        self.after = self.before = self  # the incarnations of its neighbours that it knows

    @property
    def parties(self) -> tuple[SimulatedProcess, ...]:
        """Returns the three processes that live and die together: role, carrier of means, copier."""
        return self.party, self.means, self.copier

    @property
    def version(self) -> int:
        """Returns how many updates its role has applied; 0 for a role without a version."""
        return int(getattr(self.party.role, "version", 0))

    def _copies(self) -> Copies:
        """Returns the state machine of a live server's copies, with this server as its only slice."""
        count = len(self.whole.servers) or len(self.whole.sim.world.servers)
        return Copies(
            _nobody(self.shard),
            before=(self.shard - 1) % count,
            after=(self.shard + 1) % count,
            counts=(1, 1, 1),
            state_of=lambda at: state_of(self),
            mark_of=lambda at: mark_of(self.party.role),
            tell=self._tell,
            release=lambda role, effects: self.whole.released(self, effects),
        )

    def _tell(self, to: int, slice: int, message: Any) -> None:
        """Sends a message of the copies: an acknowledgement goes to the server before this one, a copy to the one
        after."""
        other = self.before if isinstance(message, Kept) else self.after
        self.whole.streams.send(self.copier, other.copier, size(message), self.whole.hears_copy, (other, self, message))

    def hold(self, effects: Iterable[Tell | Reply]) -> list[Tell | Reply]:
        """Returns the effects that may leave at once; the others wait until the next server has their copy."""
        effects = list(effects)
        now = self.copies.hold(0, self.party.role, effects) if self.copies else effects
        for effect in now:
            self.whole.answers(self, effect)
        # Replies that are held back leave `party.open` now, so that the next reply does not answer the same call.
        for reply in effects if not now else ():
            if type(reply) is Reply and (calls := self.party.open.get(reply.to)):
                self.held[id(reply)] = calls.pop(0)
        return now


def _nobody(shard: int) -> RoleContext:
    """Returns a context without model and workers, for roles that exist only to have copies."""
    return RoleContext(me=shard, workers=(), w=None, update=lambda w, g, samples: w)


class Servers:
    """Replaces the servers of `sim`. `control`: the process that gives the orders, in the coordinator's place."""

    def __init__(
        self, sim: Simulation, members: AckedMembership, control: SimulatedProcess, every_s: float, *, copied: bool
    ) -> None:
        world = sim.world
        self.sim, self.streams, self._members, self._control = sim, members.streams, members, control
        self.copied: bool = copied and len(world.servers) > 1 and not sim.scheme.answers_what_no_copy_has
        self.replacing = Replacing(len(world.servers))
        self.servers: list[RecoverableServer] = []
        self.servers = [RecoverableServer(self, *parties) for parties in zip(world.servers, world.means, strict=True)]
        self._all = {server.party.process: server for server in self.servers}
        self._former: list[SimulatedProcess] = []  # of those that are being replaced: incarnations that are over
        self._number = 0  # of the last order
        self.snapshots = SimulatedSnapshots(self, control, every_s)
        self._afterwards: list[Callable[[], None]] = []
        for server in self.servers:
            self._listen(server)
            sim.heap.push(0.0, self._begin, server, ())
        self.snapshots.keep_on()

    def _listen(self, server: RecoverableServer) -> None:
        """Wraps the server's `on`: replies are held for copies, and snapshots are taken. Invariants see it first."""
        on = server.party.on

        def held(now: float, src: int, message: Any) -> list[Tell | Reply]:
            may_go = server.hold(on(now, src, message))
            self.snapshots.look(server)
            return may_go

        server.party.on = held

    # ---- copies --------------------------------------------------------------------------------------------
    def _begin(self, server: RecoverableServer, former: tuple[SimulatedProcess, ...]) -> None:
        """Starts copying to the next server, once all servers are in place and the `former` incarnations are over."""
        for dead in former:
            self._knows_of_loss(server, self._all[dead.process])
        if server.copies:
            server.after = self.servers[(server.shard + 1) % len(self.servers)]
            server.copies.begin()

    def hears_copy(self, server: RecoverableServer, src: RecoverableServer, message: Any) -> None:
        """Handles a message of the copies at `server`. A message of a later incarnation of `src` proves the earlier one
        lost."""
        assert server.copies is not None
        # Who hears a later incarnation has lost the connection to the one before.
        for other in list(self._all.values()):
            if other.shard == src.shard and other.party.incarnation < src.party.incarnation:
                self._knows_of_loss(server, other)
        if not isinstance(message, Kept):
            server.before = src
        for _ in server.copies.on(self.sim.now, src.shard, message):
            raise AssertionError("copies answer by what they tell")

    def released(self, server: RecoverableServer, effects: Iterable[Tell | Reply]) -> None:
        """Sends effects that had waited for their copy; replies to workers that left meanwhile are dropped."""
        for effect in effects:
            call = server.held.pop(id(effect), None)
            self.answers(server, effect)
            if call is not None and type(effect) is Reply:
                self.sim.messaging.answer(server.party, call, effect.message)
            else:
                self.sim.messaging.say(server.party, effect)

    def answers(self, server: RecoverableServer, effect: Tell | Reply) -> None:
        """Tells the invariants that a reply leaves."""
        if self.sim.invariants and type(effect) is Reply:
            self.sim.invariants.answered(server.party, effect.to)

    def knows(self, party: SimulatedProcess, rank: int, *, here: bool) -> None:
        """Lets a server's copies hear that worker `rank` has left; they need no notice of one that joins."""
        server = self._all.get(party.process)
        if server and server.party is party and server.copies and not here:
            list(server.copies.on_worker_left(self.sim.now, rank))

    def kept_recounts(self) -> Iterator[tuple[int, ShardRecount]]:
        """Yields, for every server whose state is wholly copied, its number and the recount that travelled with the
        copy."""
        for server in self.servers if not self.replacing.away else ():
            keeper = self.servers[(server.shard + 1) % len(self.servers)]
            if keeper.copies and keeper.copies.complete:
                yield server.shard, keeper.copies.held[0].vectors[RECOUNT].value

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
        if not server.lost and party.hears and self._can_be_replaced():
            self.streams.injected["server lost"] += 1
            self._die(server)
            self.sim.heap.push(self.sim.now + self.sim.cluster.suspect_after_s, self._evict, server)
        return True

    def suspect(self, shard: int) -> None:
        """Evicts a server that was silent for `suspect_after_s`, whether or not it still runs."""
        if self._can_be_replaced():
            self._evict(self.servers[shard])

    def _can_be_replaced(self) -> bool:
        """Returns True if a lost server could be restored now: from its copy, or from a complete snapshot."""
        return self.copied or self.snapshots.newest is not None

    def _die(self, server: RecoverableServer) -> None:
        """Stops the processes of a server; what they sent and was not acknowledged is lost."""
        for party in server.parties:
            party.hears = False
        self.streams.forget(server.party)

    def _evict(self, server: RecoverableServer) -> None:
        """Declares a server lost, puts a successor in its place, and orders every server concerned to restore its
        state.

        The order of the steps matters: other servers learn of the loss before any restored state arrives, and joins
        under way are aborted before new orders are numbered.
        """
        if server.lost:
            return
        server.lost = True
        self._note(server, "lost", f"silent for {self.sim.cluster.suspect_after_s:g} s")
        self._former.append(server.party)
        # The lost server would never deliver its part of the snapshot that is being taken.
        self.snapshots.break_off()
        if self.sim.invariants:
            self.sim.invariants.forget_server(server.party)
        if self.sim.leasing:
            self.sim.leasing.server_lost(server.party)
        if server.party.hears:
            self.streams.send(self._control, server.party, 0, self._is_told_it_is_lost, (server.party,))
        self.servers[server.shard] = self._successor(server)
        for other in self.servers:
            if other.party.hears:
                self.streams.send(self._control, other.party, 0, self._hears_of_loss, (other, server))
        self.replacing.lost(server.shard, copied=self.copied)
        self._members.server_is_gone(server.parties)
        self._order_all()

    def _successor(self, lost: RecoverableServer) -> RecoverableServer:
        """Makes the next incarnation of the lost server, without state."""
        server, means = self.sim.world.next_server(lost.party, lost.means)
        made = self._all[server.process] = RecoverableServer(self, server, means)
        return made

    def _is_told_it_is_lost(self, party: SimulatedProcess) -> None:
        self.learns_it_is_lost(party)

    def learns_it_is_lost(self, party: SimulatedProcess) -> bool:
        """Ends an evicted server that still runs; returns False if `party` is no server."""
        server = self._all.get(party.process)
        if server is None:
            return False
        if server.lost and party.hears:
            self._die(server)
            self.streams.give_up(self._control, party)
        return True

    def _hears_of_loss(self, server: RecoverableServer, dead: RecoverableServer) -> None:
        self._knows_of_loss(server, dead)

    def _knows_of_loss(self, server: RecoverableServer, dead: RecoverableServer) -> None:
        """Lets `server` fence the `dead` incarnation; copies with that neighbour end. A second notice changes
        nothing."""
        if dead.shard in server.lost_incarnations and dead.party.incarnation <= server.lost_incarnations[dead.shard]:
            return
        server.lost_incarnations[dead.shard] = dead.party.incarnation
        self.streams.fence(server.party, dead.party)
        if server.copies and dead in (server.before, server.after):
            server.copies.lost(dead.shard)

    # ---- restored ------------------------------------------------------------------------------------------
    def _order_all(self) -> None:
        """Orders every server concerned to restore its state, under one new number: from copies, or all from the
        snapshot.

        Raises ServerLost if the servers must go back to a snapshot and there is none.
        """
        replacing = self.replacing
        if replacing.rolled_back and self.snapshots.newest is None:
            raise ServerLost("servers were lost with the copies of what they held, before the first snapshot")
        self._number += 1
        replacing.order(self._number)
        for shard in replacing.concerned():
            keeper, server = replacing.source(shard), self.servers[shard]
            snapshot = self.snapshots.newest if keeper is None else None
            order = Order(self._number, replacing.server_view, snapshot, keeper or 0)
            nbytes = nbytes_of(snapshot.states[shard]) if snapshot else 0
            self.streams.send(self._control, server.party, nbytes, self._restore, (server, order))

    def _restore(self, server: RecoverableServer, order: Order) -> None:
        """Carries out an order at `server`: it has the snapshot's state at hand, or asks the `keeper` for its copy."""
        if order.snapshot:
            self._become(server, order, order.snapshot.states[server.shard])
        else:
            keeper = self.servers[order.keeper]
            self.streams.send(server.copier, keeper.copier, 0, self._asks_for_copy, (keeper, server, order))

    def _asks_for_copy(self, keeper: RecoverableServer, server: RecoverableServer, order: Order) -> None:
        """Answers a server that asks for its copy; without a complete copy the answer is empty and costs no bytes."""
        state = keeper.copies.held[0] if keeper.copies and keeper.copies.complete else None
        nbytes = nbytes_of(state) if state else 0
        self.streams.send(keeper.copier, server.copier, nbytes, self._has_copy, (server, order, state))

    def _has_copy(self, server: RecoverableServer, order: Order, state: SliceState | None) -> None:
        """Restores `server` from the copy, or reports to the coordinator's place that there is none."""
        if state:
            self._become(server, order, state)
        else:
            self.streams.send(server.party, self._control, 0, self._failed, (self._control, order))

    def _become(self, server: RecoverableServer, order: Order, state: SliceState) -> None:
        """Makes `server` the state that was kept: role, oracle, copies, server view, and who takes part; then it
        reports.

        An order that is older than one already carried out is ignored: a second loss has overtaken it.
        """
        if server.lost or order.number < server.ordered:
            return
        party, world = server.party, self.sim.world
        before, server.ordered, server.wanted = server.version, order.number, None
        # From a snapshot all servers go back together, and workers start anew. From a copy the others go on, so the
        # tables are kept as they are.
        tables = among_others(state.facts["tables"]) if order.snapshot else state.facts["tables"]
        world.revive(server.party, state.vectors[WEIGHTS], state.vectors[UPDATE].value, tables)
        world.servers[server.shard], world.means[server.shard] = party, server.means
        if self.sim.invariants:
            self.sim.invariants.revived(
                party, state.vectors[RECOUNT].value, order.number, copied=order.snapshot is None
            )
        self._listen(server)
        if self.sim.leasing and not server.shard:
            self.sim.leasing.goes_back(party)
        if server.copies:
            server.copies.forget()
        self.streams.server_views[party.process] = order.server_view
        self._learns_who_is_here(server, anew=order.snapshot is not None)
        if party.incarnation:
            self._meet_all(server)
        prepared = (self._control, server, order.number, max(0, before - server.version))
        self.streams.send(party, self._control, 0, self._prepared, prepared)

    def _meet_all(self, server: RecoverableServer) -> None:
        """Introduces a new incarnation to all: it sets every fence, and sends one message to each worker and server."""
        for dead in self._members.fences():
            self.streams.fence(server.party, dead)
        workers = [party for party in self.sim.world.workers if party.here]
        for other in (*workers, *(other.party for other in self.servers if other is not server)):
            self.streams.send(server.party, other, 0, self._meets, (other,))

    def _learns_who_is_here(self, server: RecoverableServer, *, anew: bool) -> None:
        """Later incarnations of workers begin where the others are, whatever was known of former ones."""
        workers = self.sim.world.workers
        departed = [party for party in workers if not party.here and not self._members.is_missed(party)]
        returned = [party for party in workers if anew and party.incarnation]
        for party in dict.fromkeys((*departed, *returned)):
            self._members.hears_gone(server.party, party.me)
        for party in returned:
            if party not in departed:
                self._members.hears_came(server.party, party.me)

    def _meets(self, party: SimulatedProcess) -> None:
        """It has heard of the new incarnation, and nothing of an earlier one from here on."""

    def _failed(self, control: SimulatedProcess, order: Order) -> None:
        """Handles a copy that does not exist: the rules fall back to the snapshot, and new orders are given."""
        if self.replacing.failed(order.number):
            self._order_all()

    def _prepared(self, control: SimulatedProcess, server: RecoverableServer, number: int, undone: int) -> None:
        """Notes that a server carried out its order; the last one lets training go on. `undone`: updates it went back
        by."""
        if server is not self.servers[server.shard]:
            return
        if self.sim.leasing:
            self.sim.leasing.is_back(server.party)
        if self.replacing.prepared(server.shard, number):
            self._go_on()

    def _go_on(self) -> None:
        """Lets training continue: servers copy again, workers repeat their calls or start anew, and delayed joins
        proceed."""
        replacing, former = self.replacing, tuple(self._former)
        rolled_back, back, server_view = replacing.rolled_back, set(replacing.away), replacing.server_view
        replacing.done()
        self._former.clear()
        if self.sim.invariants:
            self.sim.invariants.servers_are_back(replacing.number, rolled_back=rolled_back)
        if self.sim.leasing:
            self.sim.leasing.servers_are_back(self._members.is_missed)
        for shard in sorted(back):
            self._note(self.servers[shard], "replaced", "from the snapshot" if rolled_back else "from its copy")
        for server in self.servers:
            self.streams.send(self._control, server.party, 0, self._begin, (server, former))
        for party in self.sim.world.workers:
            if party.here:
                self.streams.send(self._control, party, 0, self._resume, (party, server_view, rolled_back, former))
            for dead in former if not party.here else ():
                self.streams.give_up(party, dead)
        waiting, self._afterwards = self._afterwards, []
        for act in waiting:
            act()

    def _resume(
        self, party: SimulatedProcess, server_view: int, rolled_back: bool, former: tuple[SimulatedProcess, ...]
    ) -> None:
        """Continues at a worker: it repeats unanswered calls, or, if the servers went back, starts anew."""
        asked = [question for dead in former for question in self.streams.unanswered(party, dead)]
        for dead in former:
            self.streams.fence(party, dead)
        if rolled_back:
            self.streams.server_views[party.process] = server_view
            if self.sim.leasing:
                self.sim.leasing.on_rollback(party)
            party.role.on_rollback()
            if self.sim.incarnations[party.me].party is party:
                self.sim.restart(party.me)
            return
        for shard, act, call, message in asked:
            server = self.sim.world.servers[shard]
            self.streams.send(party, server, size(message), act, (server, call, message))

    def afterwards(self, act: Callable[[], None]) -> bool:
        """Calls `act` once all servers are restored, and returns True; returns False if they are in place."""
        if self.replacing.away:
            self._afterwards.append(act)
        return bool(self.replacing.away)

    def _note(self, server: RecoverableServer, event: str, reason: str) -> None:
        """Writes a membership event of a server into the trace."""
        if self.sim.trace:
            self.sim.trace(MemberChange(at=self.sim.now, party=server.party.name, event=event, reason=reason))
