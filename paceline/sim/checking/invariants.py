"""Checks what must hold in every run, from outside the schemes: by messages, effects, records and the heap.

    contributions        an update is made of what arrived, each once, of as many as the parameters say, with their
                         samples; its staleness and its version are right; nobody gets weights who is further ahead of
                         the slowest than the parameters say, or whose round is open (`oracles.contributions`)
    whole steps          all shards have heard the same contributions of a worker, but for the one that is under way and
                         one for each incarnation of it that was lost, which may have reached some shards only
    means                a mean weighs what its members brought, all that are there and each once, and is one for all of
                         them (`oracles.means`); a worker has no more of them under way than its scheme says
    mass                 where every worker has a model of its own, each holds what its shares say; who leaves hands
                         over all; a share arrives unless its sender or receiver is lost (`oracles.mass`)
    leased samples       each is in one update, waits in a round, or may be had again (`oracles.samples`)
    messages             each is given to a role once, in order (`oracles.deliveries`)
    bad results          no server keeps a NaN, and who never had one has no strike (`bad_results`)
    views                each change of who takes part has a number of its own (`oracles.views`)
    nobody waits for ever  when nothing is left to happen nobody waits; nobody waits while others make PATIENCE steps;
                         messages do not circulate for ever without a step

The oracles read messages, records and the parameters of the run, never the state of the code that they check. A
violation raises `InvariantBroken` with the seed, the time and the last messages.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from paceline.core.effects import Reply, Tell
from paceline.core.paramserver.gated_server import ClockedServer
from paceline.core.trace import Applied, Decided, Gated, Record
from paceline.sim.checking.bad_results import BadResultsRecount
from paceline.sim.checking.oracles.contributions import ShardRecount
from paceline.sim.checking.oracles.deliveries import Deliveries
from paceline.sim.checking.oracles.mass import Mass
from paceline.sim.checking.oracles.means import MeanRecount
from paceline.sim.checking.oracles.promises import promises_of
from paceline.sim.checking.oracles.views import Views
from paceline.sim.kernel.processes import Incarnation, On, PendingCall, SimulatedProcess

if TYPE_CHECKING:
    from paceline.sim.driver_protocol import SimulationDriver

PATIENCE = 10_000
"""Steps that the fastest worker may make while another waits for one answer."""
EVENTS = 1000
"""Events between two looks at the whole run, at least."""
LOOKS_WITHOUT_STEP = 10
"""Looks in a row without a step while workers wait. A run that goes on may come to some: while servers are being
replaced unacknowledged messages are sent again and again. After that each answer waits for a copy, each copy is some
messages, and a lost one holds up those behind it (seeds 4834 and 33159: 1,000 and 2,000 events)."""

KEPT_MAX = 1000
"""Messages from one process to another that may be unacknowledged; more means that acknowledgements are lost for
good."""


class InvariantBroken(AssertionError):  # noqa: N818  names what happened
    """Is raised when a scheme or a driver breaks an invariant, with the seed, the time and the last messages."""


class Invariants:
    """Checks `sim` at each message, and as a whole at event number `look_at`, again and again."""

    def __init__(self, sim: SimulationDriver, *, robust: bool = False) -> None:
        """`robust`: the servers use robust means, which no single contribution moves, and count samples likewise."""
        self._sim = sim
        self._recent: deque[tuple[Any, ...]] = deque(maxlen=20)
        self._reasons: dict[int, str] = {}  # by worker: why it was last held back
        parties = sim.cluster.workers + sim.cluster.servers
        self._every = max(EVENTS, 20 * parties * max(1, sim.cluster.servers))
        self.look_at = self._every
        self._waiting: dict[int, tuple[object, int]] = {}  # by rank: for what, and the fastest one's steps at the time
        self._steps_before = -1
        self._looks_without_step = 0
        promises, self._liars = promises_of(sim.scheme), sim.liars
        self._shards = [
            ShardRecount(self.broken, promises, sim.cluster.workers, number, self._liars, robust=robust)
            for number in range(sim.cluster.servers)
        ]
        self._means: dict[int, list[PendingCall]] = defaultdict(list)  # under way, by rank
        self.mass = Mass(sim, self.broken) if sim.scheme.workers_differ else None
        self.bad_results = BadResultsRecount(sim, self.broken) if sim.bad_results else None
        self.deliveries, self.views = Deliveries(self.broken), Views(self.broken)
        self._lost: Counter[int] = Counter()  # incarnations, by rank
        self._torn: Counter[int] = Counter()  # how many contributions of each are, since the servers went back
        self._over: dict[tuple[str, int], ShardRecount] = {}  # by process: of servers that are lost
        self._carriers: dict[SimulatedProcess, MeanRecount] = {}

    def broken(self, what: str) -> InvariantBroken:
        """Returns the error for a violation, with scheme, seed, virtual time and the last 20 messages and answers."""
        sim = self._sim
        last = "\n  ".join(f"{at:.6f} {who} {what}" for at, who, *words in self._recent for what in [" ".join(words)])
        return InvariantBroken(f"{sim.scheme.name}, seed {sim.seed}, at {sim.now:.6f} s: {what}; lately:\n  {last}")

    # ---- where it listens ----------------------------------------------------------------------------------
    def watch_all(self) -> None:
        """Watches every party that is present from the start."""
        world = self._sim.world
        for party in [*world.others, *([world.peers] if world.peers else []), *world.workers]:
            self.watch(party)

    def watch(self, party: SimulatedProcess) -> None:
        """Watches everything that `party` hears and answers, by wrapping its `on`.

        Each server is counted by its shard's recount, each carrier of means by a recount of its own, and workers by
        their mass where the scheme has any. All others are only kept in the list of recent messages.
        """
        world = self._sim.world
        if party in world.servers:
            shard = self._shards[party.me]
            party.on = self._listening(party, shard.hear, shard.reply)
        elif party in world.means or party is world.peers:
            carrier = self._carriers[party] = MeanRecount(
                self.broken,
                self._sim.cluster.workers,
                self._sim.scheme.means_at_once,
                self._liars,
                checks=party.role.gate is not None,
            )
            party.on = self._listening(party, carrier.hear, carrier.reply)
        elif self.mass and party in world.workers:
            self.mass.watch(party)
            party.on = self._listening(party, partial(self.mass.heard, party), lambda to, message: None)
        else:
            party.on = self._listening(party, lambda src, message: None, lambda to, message: None)
        if self.bad_results:
            party.on = self.bad_results.listening(party)

    def _listening(self, party: SimulatedProcess, hear: Any, reply: Any) -> On:
        """Returns an `on` that calls `hear` for each message and `reply` for each answer, before the driver carries
        them out."""
        on, sim, recent, name = party.on, self._sim, self._recent, party.name

        def listening(now: float, src: int, message: Any) -> Iterator[Tell | Reply]:
            recent.append((sim.now, name, "hears", type(message).__name__, "of", str(src)))
            hear(src, message)
            for effect in on(now, src, message):
                if type(effect) is Reply:
                    recent.append((sim.now, name, "answers", str(effect.to)))
                    reply(effect.to, effect.message)
                yield effect

        return listening

    def answering(self, party: SimulatedProcess, effects: Iterable[Tell | Reply]) -> Iterator[Tell | Reply]:
        """Watches what `party` answers because somebody left or joined, which is no response to a message."""
        carrier = self._carriers.get(party)
        counted = self._of(party) if party in self._sim.world.servers or party.process in self._over else carrier
        for effect in effects:
            if type(effect) is Reply and counted:
                self._recent.append((self._sim.now, party.name, "answers", str(effect.to)))
                counted.reply(effect.to, effect.message)
            yield effect
        self._look_at_clocks(party)

    def record(self, record: Record) -> None:
        """Takes a trace record: an update is recounted, and the reason for which a worker is held back is kept for
        error texts."""
        match record:
            case Applied(shard=shard):
                self._shards[shard].applied(record)
            case Decided(rank=rank, reason=reason):
                self._reasons[rank] = reason
            case Gated() if self.bad_results:
                self.bad_results.gated(record)

    def mean_begins(self, call: PendingCall) -> None:
        """Checks that a worker has no more Means under way than its scheme declares (`means_at_once`).

        Carriers keep that many results for a worker that was restarted and asks again. With more, an answer could be
        missing.
        """
        rank, most = call.incarnation.rank, self._sim.scheme.means_at_once
        under_way = [old for old in self._means[rank] if old.incarnation is call.incarnation and not old.done]
        self._means[rank] = [*under_way, call]
        if len(under_way) >= most:
            raise self.broken(f"worker {rank} has {len(under_way) + 1} Means under way; means_at_once = {most}")

    def gone(self, party: SimulatedProcess, rank: int) -> None:
        """Notes that `party` has heard that worker `rank` is gone. Servers that were lost are counted apart."""
        if party.process in self._over and party not in self._carriers:
            self._over[party.process].gone(rank)
        elif party in self._sim.world.servers:
            self._shards[party.me].gone(rank)
        elif party in self._carriers:
            self._carriers[party].gone(rank)

    def came(self, party: SimulatedProcess, rank: int) -> None:
        """Notes that `party` has heard that worker `rank` joins."""
        if party.process in self._over and party not in self._carriers:
            self._over[party.process].came(rank)
        elif party in self._sim.world.servers:
            self._shards[party.me].came(rank)
        elif party in self._carriers:
            self._carriers[party].came(rank)

    def begins_anew(self) -> None:
        """Notes that a newcomer found no other worker: the tags of means begin anew.

        A carrier may hear of the newcomer before it has heard that all others left.
        """
        for carrier in self._carriers.values():
            carrier.begins_anew()

    def resumed(self, tables: Mapping[str, Any], clocks: Sequence[int]) -> None:
        """Notes that the run goes on from a checkpoint: all servers with its `tables`, workers with these clocks."""
        for shard in self._shards:
            shard.resumed(tables, clocks)
        if self._sim.leasing and self._sim.leasing.samples:
            self._sim.leasing.samples.given_before(tables["done"])

    # ---- servers that are replaced -------------------------------------------------------------------------
    def _of(self, party: SimulatedProcess) -> ShardRecount:
        """Returns the recount of a server's process: that of the shard, or its own if it was lost and still runs."""
        return self._over.get(party.process, self._shards[party.me])

    def recount(self, party: SimulatedProcess) -> ShardRecount:
        """Returns a copy of a server's recount, to travel with the state that is kept of it now."""
        self._look_at_clocks(party)
        return self._of(party).as_kept()

    def _look_at_clocks(self, party: SimulatedProcess) -> None:
        if isinstance(party.role, ClockedServer):
            self._of(party).keeps(party.role.state_dict())

    def answered(self, party: SimulatedProcess, rank: int) -> None:
        """Notes that the server lets an answer to worker `rank` go: what it answers must survive its loss."""
        self._of(party).acknowledges(rank)

    def forget_server(self, party: SimulatedProcess) -> None:
        """Notes that another process takes a server's place; what the former one still does is counted apart."""
        mine = self._over[party.process] = self._shards[party.me]
        if party.role.note:
            # The lost server may still run as a zombie. Its updates must fit its own recount, and no longer count for
            # the shard.
            party.role.note = lambda record: mine.applied(record) if isinstance(record, Applied) else None

    def revived(self, party: SimulatedProcess, kept: ShardRecount, order: int, *, copied: bool) -> None:
        """Checks that a server goes on at the version that was kept, and makes `kept` the recount of its shard.

        `order`: number of the order it obeys. `copied`: its state came from a neighbour's copy, so nothing it had
        answered may be missing.
        """
        before = self._shards[party.me]
        shard = self._shards[party.me] = kept.again(order, copied=copied)
        if party.role.version != shard.updates:  # type: ignore[attr-defined]
            raise self.broken(f"{party.name} goes on at another version than that of what was kept, {shard.updates}")
        samples = self._sim.leasing.samples if self._sim.leasing and not party.me else None
        if samples:
            samples.replaced(before)
        if copied:
            before.goes_on_as(shard)
            # A contribution that was dropped, and not answered before the server was lost, may be in no copy. Other
            # shards have heard it all the same, and by so many contributions they may be ahead.
            self._torn.update(before.dropped - shard.dropped)
        self.watch(party)

    def enters(self, rank: int, copies: Iterable[tuple[int, ShardRecount]]) -> None:
        """Checks that each copy of a shard knows the worker that joins. `copies`: shard numbers and their recounts."""
        for number, kept in copies:
            if kept.comings[rank] != self._shards[number].comings[rank]:
                raise self.broken(f"worker {rank} enters, and the copy of shard {number} does not know it")

    def servers_are_back(self, order: int, *, rolled_back: bool) -> None:
        """Checks that all servers are restored to the same order, once training continues.

        Servers that went back together may have applied other contributions than before, in as many updates.
        """
        self._looks_without_step = 0  # from now on steps can be made again
        for party in self._sim.world.servers:
            shard = self._shards[party.me]
            if rolled_back and shard.order != order:
                raise self.broken(f"{party.name} has not gone back with the others")
        if rolled_back:
            self._torn = Counter({rank: self._torn_since(rank) for rank in range(self._sim.cluster.workers)})

    def shard(self, number: int) -> ShardRecount:
        """Returns what the present incarnation of that shard has done."""
        return self._shards[number]

    def crashed(self, rank: int) -> None:
        """Notes that a worker counts as lost, with its mass and with what is on its way to it or from it."""
        self._lost[rank] += 1
        if self.mass:
            self.mass.lost(self._sim.world.workers[rank])

    # ---- the whole -------------------------------------------------------------------------------------------
    def look(self) -> None:
        """Checks the whole run: mass, tables, steps, and workers that nobody answers. Called every so many events."""
        self.look_at = self._sim.events + self._every
        if self.mass:
            self.mass.look()
        if self.bad_results:
            self.bad_results.look()
        self._look_at_tables()
        self._look_at_steps(under_way=1)
        waiting = [incarnation for incarnation in self._sim.incarnations if incarnation.alive and incarnation.awaited]
        self._look_for_the_forgotten(waiting)
        steps = sum(self._sim.steps)
        working = any(act is self._sim.worked for _, _, act, _ in self._sim.heap)
        still = waiting and not working and steps == self._steps_before
        self._steps_before = steps
        self._looks_without_step = self._looks_without_step + 1 if still else 0
        if self._looks_without_step >= LOOKS_WITHOUT_STEP:
            events = self._looks_without_step * self._every
            raise self.broken(f"{events} events without a step: {self._who(waiting[0])}")

    def nothing_is_left(self) -> None:
        """Raises if a worker still waits although the heap is empty, so that nothing can answer it."""
        for incarnation in self._sim.incarnations:
            if incarnation.alive and incarnation.awaited:
                raise self.broken(f"nothing is left to happen, but {self._who(incarnation)}")

    def state_of(self, rank: int) -> str:
        """Returns a clause for error texts: what worker `rank` waits for, or that it works or is absent."""
        incarnation, party = self._sim.incarnations[rank], self._sim.world.workers[rank]
        if not party.here:
            return f"worker {rank} is not here"
        return (
            self._who(incarnation)
            if incarnation.alive and incarnation.awaited
            else f"worker {rank} works, or waits for nobody"
        )

    def all_is_accounted_for(self) -> None:
        """Checks, when everybody has left, that each contribution was applied or dropped for a reason."""
        self._look_at_steps(under_way=0)
        if self.mass:
            self.mass.all_is_accounted_for()
        if self._sim.leasing:
            self._sim.leasing.all_is_accounted_for()
        for number, shard in enumerate(self._shards):
            shard.all_is_accounted_for(number, self._sim.server(number).samples_waiting())

    def torn(self, rank: int) -> int:
        """Returns how many contributions of worker `rank` some shards have heard and others have not."""
        heard = [shard.heard_of(rank) for shard in self._shards]
        return max(heard, default=0) - min(heard, default=0)

    def _torn_since(self, rank: int) -> int:
        """Returns the same for shards that went back: as they are, and once all have its last contribution again.

        Shards that went back twice may have heard as many of it and not the same: 1 and 2 here, 2 and 3 there.
        """
        last = [shard.last_of(rank) for shard in self._shards]
        again = [shard.heard_of(rank) + (shard.last_of(rank) < max(last)) for shard in self._shards]
        return max(self.torn(rank), max(again) - min(again))

    def _look_at_steps(self, under_way: int) -> None:
        """Checks that the shards differ only by contributions under way, and by those of incarnations that were lost.

        `under_way`: contributions of each worker that may be on their way now.
        """
        servers = self._sim.members.servers
        if servers and servers.any_is_away:  # not all of them are back
            return
        for rank in set(range(self._sim.cluster.workers)) - self._liars:
            torn, lost = self.torn(rank), self._lost[rank]
            if torn > lost + under_way + self._torn[rank]:
                raise self.broken(
                    f"of worker {rank} some shards have heard {torn} contributions more than others; "
                    f"incarnations lost: {lost}"
                )

    def _look_for_the_forgotten(self, waiting: list[Incarnation]) -> None:
        """Checks that no worker waits for one and the same answer while the fastest one makes PATIENCE steps."""
        fastest = max(self._sim.steps)
        before, self._waiting = self._waiting, {}
        for incarnation in waiting:
            what, since = before.get(incarnation.rank, (None, fastest))
            self._waiting[incarnation.rank] = (incarnation.awaited, since if what is incarnation.awaited else fastest)
            if fastest - self._waiting[incarnation.rank][1] > PATIENCE:
                raise self.broken(f"{self._who(incarnation)} while another has made {PATIENCE} steps")

    def _who(self, incarnation: Incarnation) -> str:
        """Returns a clause that says who has not answered that worker, and why it is held back if a server has
        said so."""
        world = self._sim.world
        parties = [*world.others, *([world.peers] if world.peers else []), *world.workers]
        open_at = [party.name for party in parties if self._is_open_at(party, incarnation)]
        whom = ", ".join(open_at) or "an answer that is under way or lost"
        why = self._reasons.get(incarnation.rank)
        return f"worker {incarnation.rank} waits for {whom}" + (f" ({why})" if why else "")

    def _is_open_at(self, party: SimulatedProcess, incarnation: Incarnation) -> bool:
        """Returns True if `party` has not answered what that worker waits for."""
        rank, call, incoming = incarnation.rank, incarnation.awaited, self._sim.members.incoming
        in_order = call in party.open.get(rank, ())
        return in_order or (incoming is not None and incoming.of(party).is_open(party, rank, call))

    def _look_at_tables(self) -> None:
        """Checks that what streams keep is bounded by who takes part and what is under way, not by the time."""
        streams, parties = self._sim.streams, self._sim.cluster.workers + self._sim.cluster.servers + 2
        if streams is None:
            return
        kept, whose = streams.most_kept()
        if kept > KEPT_MAX:
            raise self.broken(f"{kept} messages are kept on {whose}")
        if streams.most_known() > parties:
            raise self.broken(f"somebody keeps numbers of {streams.most_known()} senders; there are {parties} parties")
