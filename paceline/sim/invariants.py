"""What must hold in every run, watched from outside the schemes: by messages, effects, records and the heap.

    staleness bound      nobody is let go who is further ahead of the slowest than the scheme declares (`max_ahead`)
    applied once         a shard applies no more of a worker than arrived of it; repeats do not count
    whole steps          all shards have heard the same contributions of a worker, but for the one that is under way and
                         one for each life of it that was lost, which may have reached some shards only
    samples once         nor more samples; a mean weighs no more than its members brought, and is one for all of them
    means                a worker has no more of them under way than its scheme says
    mass                 where every worker has a model of its own, what all of them and the messages under way weigh
                         together stays; a crash may lose some, nothing may add any
    nobody waits for ever  when nothing is left to happen nobody waits; nobody waits while others make PATIENCE steps;
                         messages do not go round for ever without a step

A violation raises `InvariantBroken` with the seed, the time and the last messages.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from paceline.core.effects import Reply, Tell
from paceline.core.mean import Averaged, Part
from paceline.core.trace import Applied, Decision, Record
from paceline.sim.parties import Errand, Life, On, Party
from paceline.sim.recount import Shard

if TYPE_CHECKING:
    from paceline.sim.driver import Simulation

PATIENCE = 10_000
"""Steps that the fastest worker may make while another waits for one answer."""


KEPT_MAX = 1000
"""Messages from one process to another that are not acknowledged."""


class InvariantBroken(AssertionError):  # noqa: N818  names what happened
    """A scheme or a driver did what it must never do."""


class Invariants:
    """Watches `sim`. `look_at`: the number of the event after which the whole is to be looked at again."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self._recent: deque[str] = deque(maxlen=20)
        self._reasons: dict[int, str] = {}  # by worker: why it was last held back
        parties = sim.cluster.workers + sim.cluster.servers
        self._every = max(1000, 20 * parties * max(1, sim.cluster.servers))
        self.look_at = self._every
        self._waiting: dict[int, tuple[object, int]] = {}  # by rank: for what, and the fastest one's steps at the time
        self._steps_before = -1
        self._shards = [Shard(self.broken, sim.scheme, sim.cluster.workers) for _ in range(sim.cluster.servers)]
        self._means: dict[int, list[Errand]] = defaultdict(list)  # under way, by rank
        self._mass: float | None = None
        self._lost: Counter[int] = Counter()  # lives, by rank
        self._torn: Counter[int] = Counter()  # how many contributions of each are, since the servers went back
        self._over: dict[tuple[str, int], Shard] = {}  # by process: of servers that are lost
        self._carriers: dict[Party, _Carrier] = {}
        self._delivered: dict[tuple[Any, ...], int] = {}  # by processes: number of the last message
        self._newest: dict[tuple[Any, ...], int] = {}
        self._fenced: dict[tuple[str, int], set[tuple[str, int]]] = defaultdict(set)

    def broken(self, what: str) -> InvariantBroken:
        sim = self._sim
        last = "\n  ".join(self._recent)
        return InvariantBroken(f"{sim.scheme.name}, seed {sim.seed}, at {sim.now:.6f} s: {what}; lately:\n  {last}")

    # ---- where it listens ----------------------------------------------------------------------------------
    def watch_all(self) -> None:
        """Everybody who is there from the start."""
        world = self._sim.world
        for party in [*world.others, *([world.peers] if world.peers else []), *world.workers]:
            self.watch(party)

    def watch(self, party: Party) -> None:
        """See everything that `party` hears and says."""
        if party in self._sim.world.servers:
            shard = self._shards[party.me]
            party.on = self._listening(party, shard.hear, shard.reply)
        elif party in self._sim.world.means or party is self._sim.world.peers:
            carrier = self._carriers[party] = _Carrier(self)
            party.on = self._listening(party, carrier.hear, carrier.reply)
        else:
            party.on = self._listening(party, lambda src, message: None, lambda to, message: None)

    def _listening(self, party: Party, hear: Any, reply: Any) -> On:
        on, sim, recent = party.on, self._sim, self._recent

        def listening(now: float, src: int, message: Any) -> Iterator[Tell | Reply]:
            recent.append(f"{sim.now:.6f} {party.name} hears {type(message).__name__} of {src}")
            hear(src, message)
            for effect in on(now, src, message):
                if type(effect) is Reply:
                    recent.append(f"{sim.now:.6f} {party.name} answers {effect.to}")
                    reply(effect.to, effect.message)
                yield effect

        return listening

    def record(self, record: Record) -> None:
        match record:
            case Applied(shard=shard):
                self._shards[shard].applied(record)
            case Decision(rank=rank, reason=reason):
                self._reasons[rank] = reason

    def mean_begins(self, errand: Errand) -> None:
        """Carriers keep no more results than the scheme says for who was restarted and asks again."""
        rank, most = errand.life.rank, self._sim.scheme.means_at_once
        under_way = [old for old in self._means[rank] if old.life is errand.life and not old.done]
        self._means[rank] = [*under_way, errand]
        if len(under_way) >= most:
            raise self.broken(f"worker {rank} has {len(under_way) + 1} Means under way; means_at_once = {most}")

    def gone(self, party: Party, rank: int) -> None:
        if party in self._sim.world.servers:
            self._shards[party.me].gone(rank)
        elif party in self._carriers:
            self._carriers[party].gone(rank)

    def came(self, party: Party, rank: int) -> None:
        if party in self._sim.world.servers:
            self._shards[party.me].came(rank)
        elif party in self._carriers:
            self._carriers[party].here.add(rank)

    def begins_anew(self) -> None:
        """A newcomer finds nobody to follow; a carrier may hear of that before it has heard that all others went."""
        for carrier in self._carriers.values():
            carrier.begins_anew()

    # ---- servers that are replaced -------------------------------------------------------------------------
    def _of(self, party: Party) -> Shard:
        return self._over.get(party.process, self._shards[party.me])

    def recount(self, party: Party) -> Shard:
        """What the state that is kept of a server now is to be held against."""
        return self._of(party).as_kept()

    def answered(self, party: Party, rank: int) -> None:
        """The server lets an answer go."""
        self._of(party).acknowledges(rank)

    def forget_server(self, party: Party) -> None:
        """Another one takes its place; what this life does from here on, if it lives, counts in its own books."""
        mine = self._over[party.process] = self._shards[party.me]
        if party.role.note:
            party.role.note = lambda record: mine.applied(record) if isinstance(record, Applied) else None

    def revived(self, party: Party, kept: Shard, order: int, *, copied: bool) -> None:
        """It goes on from what was kept, by that order."""
        before = self._shards[party.me]
        shard = self._shards[party.me] = kept.again(order, gates=copied or party.me == 0)
        if party.role.version != shard.updates:  # type: ignore[attr-defined]
            raise self.broken(f"{party.name} goes on at another version than that of what was kept, {shard.updates}")
        if copied:
            before.goes_on_as(shard)
            self._torn.update(before.dropped - shard.dropped)  # of which a copy need not know
        self.watch(party)

    def servers_are_back(self, order: int, *, undone: bool) -> None:
        """All of them. Those that went back together may have other contributions, of as many updates."""
        for party in self._sim.world.servers:
            shard = self._shards[party.me]
            if undone and shard.order != order:
                raise self.broken(f"{party.name} has not gone back with the others")
        if undone:
            self._torn = Counter({rank: self._torn_since(rank) for rank in range(self._sim.cluster.workers)})

    def delivered(self, src: Party, dst: Party, number: int) -> None:
        """Message `number` of `src` is given to a role of `dst`."""
        key = (*src.process, *dst.process)
        if src.process in self._fenced[dst.process]:
            raise self.broken(
                f"{dst.name} takes a message of {src.name} of life {src.incarnation}, which it has fenced"
            )
        before = self._delivered.get(key, 0)
        if number != before + 1:
            raise self.broken(f"{dst.name} takes message {number} of {src.name} after message {before}")
        self._delivered[key] = number
        newest = self._newest.get((src.name, *dst.process), 0)
        if src.incarnation < newest:
            raise self.broken(
                f"{dst.name} takes a message of life {src.incarnation} of {src.name} after one of {newest}"
            )
        self._newest[src.name, *dst.process] = src.incarnation

    def acknowledged(self, src: Party, dst: Party, last: int) -> None:
        """`src` believes that `dst` has taken everything up to `last`, and forgets it."""
        taken = self._delivered.get((*src.process, *dst.process), 0)
        if last > taken:
            raise self.broken(f"{src.name} was told that {dst.name} took its message {last}; it took {taken}")

    def fenced(self, party: Party, dead: Party) -> None:
        """`party` knows that this life of `dead` is over."""
        self._fenced[party.process].add(dead.process)

    def crashed(self, rank: int) -> None:
        """From here on mass may get lost: that of the crashed worker, and what is sent to it."""
        self._lost[rank] += 1

    # ---- the whole -------------------------------------------------------------------------------------------
    def look(self) -> None:
        """Every so many events, and when a run pauses."""
        self.look_at = self._sim.events + self._every
        self._look_at_mass()
        self._look_at_tables()
        self._look_at_steps(under_way=1)
        waiting = [life for life in self._sim.lives if life.alive and life.awaited]
        self._look_for_the_forgotten(waiting)
        steps = sum(self._sim.steps)
        working = any(act is self._sim.worked for _, _, act, _ in self._sim.heap)
        if waiting and not working and steps == self._steps_before:
            raise self.broken(f"{self._every} events without a step: {self._who(waiting[0])}")
        self._steps_before = steps

    def nothing_is_left(self) -> None:
        """The heap is empty."""
        for life in self._sim.lives:
            if life.alive and life.awaited:
                raise self.broken(f"nothing is left to happen, but {self._who(life)}")

    def state_of(self, rank: int) -> str:
        life, party = self._sim.lives[rank], self._sim.world.workers[rank]
        if not party.here:
            return f"worker {rank} is not here"
        return self._who(life) if life.alive and life.awaited else f"worker {rank} works, or waits for nobody"

    def all_is_accounted_for(self) -> None:
        """Everybody has left: whatever a shard heard has become part of an update, or was dropped for a reason."""
        self._look_at_steps(under_way=0)
        for number, shard in enumerate(self._shards):
            shard.all_is_accounted_for(number, self._sim.server(number).samples_waiting())

    def torn(self, rank: int) -> int:
        """How many contributions of worker `rank` some shards have heard and others have not."""
        heard = [shard.heard_of(rank) for shard in self._shards]
        return max(heard, default=0) - min(heard, default=0)

    def _torn_since(self, rank: int) -> int:
        """The same of shards that went back: as they are, and once they all have its last contribution again.

        Shards that went back twice may have heard as many of it and not the same: 1 and 2 here, 2 and 3 there.
        """
        last = [shard.last_of(rank) for shard in self._shards]
        again = [shard.heard_of(rank) + (shard.last_of(rank) < max(last)) for shard in self._shards]
        return max(self.torn(rank), max(again) - min(again))

    def _look_at_steps(self, under_way: int) -> None:
        servers = self._sim.members.servers
        if servers and servers.replacing.away:  # not all of them are back
            return
        for rank in range(self._sim.cluster.workers):
            torn, lost = self.torn(rank), self._lost[rank]
            if torn > lost + under_way + self._torn[rank]:
                raise self.broken(
                    f"of worker {rank} some shards have heard {torn} contributions more than others; lives lost: {lost}"
                )

    def _look_for_the_forgotten(self, waiting: list[Life]) -> None:
        fastest = max(self._sim.steps)
        before, self._waiting = self._waiting, {}
        for life in waiting:
            what, since = before.get(life.rank, (None, fastest))
            self._waiting[life.rank] = (life.awaited, since if what is life.awaited else fastest)
            if fastest - self._waiting[life.rank][1] > PATIENCE:
                raise self.broken(f"{self._who(life)} while another has made {PATIENCE} steps")

    def _who(self, life: Life) -> str:
        world = self._sim.world
        parties = [*world.others, *([world.peers] if world.peers else []), *world.workers]
        open_at = [party.name for party in parties if life.awaited in party.open.get(life.rank, ())]
        whom = ", ".join(open_at) or "an answer that is under way or lost"
        why = self._reasons.get(life.rank)
        return f"worker {life.rank} waits for {whom}" + (f" ({why})" if why else "")

    def _look_at_tables(self) -> None:
        """What streams keep is bounded by who takes part and what is under way, not by how long a run lasts."""
        streams, parties = self._sim.streams, self._sim.cluster.workers + self._sim.cluster.servers + 2
        if streams is None:
            return
        kept, whose = streams.most_kept()
        if kept > KEPT_MAX:
            raise self.broken(f"{kept} messages are kept on {whose}")
        if streams.most_known() > parties:
            raise self.broken(f"somebody keeps numbers of {streams.most_known()} senders; there are {parties} parties")

    def _look_at_mass(self) -> None:
        sim = self._sim
        if not sim.scheme.workers_differ:
            return
        held = sum(party.role.model()[1] for party in sim.world.workers if party.hears)
        # The third argument of a Tell under way is its message; a share of a model has a weight.
        under_way = sim.streams.under_way() if sim.streams else ((act, args) for _, _, act, args in sim.heap)
        mass = held + sum(
            getattr(args[2], "weight", 0.0) if hasattr(args[2], "round") else 0.0
            for act, args in under_way
            if act is sim.talk.heard and args[0].hears
        )
        alone = sum(party.here for party in sim.world.workers) <= 1
        if self._mass is not None and not alone:
            slack = 1e-6 * max(1.0, self._mass)
            made = mass > self._mass + slack and self._mass > 0.0  # once all is lost, somebody begins anew
            if made or (mass < self._mass - slack and not self._lost):
                raise self.broken(f"the workers and their messages weighed {self._mass:.9g} together, now {mass:.9g}")
        self._mass = mass


class _Meeting:
    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.weights: dict[int, float] = {}
        self.before = 0.0  # brought before a run began anew; the carrier may count it, or have closed without a word
        self.result: Averaged | None = None

    @property
    def brought(self) -> float:
        return sum(self.weights.values()) + self.before

    def begins_anew(self) -> None:
        self.before = self.brought
        self.weights.clear()


class _Carrier:
    """What one carrier of means heard, recounted."""

    def __init__(self, whole: Invariants) -> None:
        self._whole = whole
        self._meetings: dict[tuple[str, tuple[int, ...]], _Meeting] = {}
        self.here = set(range(whole._sim.cluster.workers))
        at_once = whole._sim.scheme.means_at_once
        self._asked: dict[int, deque[_Meeting]] = defaultdict(lambda: deque(maxlen=at_once))
        self._former: deque[Averaged] = deque(maxlen=64)

    def hear(self, src: int, message: Any) -> None:
        if not isinstance(message, Part):
            return
        meeting = self._meetings.setdefault((message.tag, message.among), _Meeting(message.tag))
        meeting.weights.setdefault(src, message.weight)
        if meeting not in self._asked[src]:
            self._asked[src].append(meeting)
        if len(self._meetings) > 64 + 8 * len(message.among):
            del self._meetings[next(iter(self._meetings))]

    def gone(self, rank: int) -> None:
        self.here.discard(rank)
        if not self.here:  # whoever comes next begins anew, with the tags of the beginning
            self._meetings.clear()
            self._asked.clear()

    def begins_anew(self) -> None:
        """The tags of the beginning may come again; what was averaged under them may be answered again, too."""
        self._former.extend(meeting.result for meeting in self._meetings.values() if meeting.result is not None)
        self._meetings = {key: meeting for key, meeting in self._meetings.items() if meeting.result is None}
        for meeting in self._meetings.values():
            meeting.begins_anew()
        for asked in self._asked.values():
            still_open = [meeting for meeting in asked if meeting.result is None]
            asked.clear()
            asked.extend(still_open)

    def reply(self, to: int, message: Any) -> None:
        asked = self._asked[to]
        if not isinstance(message, Averaged) or any(meeting.result is message for meeting in asked):
            return
        if any(former is message for former in self._former):
            return
        still_open = [meeting for meeting in asked if meeting.result is None]
        if asked and not still_open:
            raise self._whole.broken(f"worker {to} gets another mean than the others of {asked[-1].tag}")
        enough = [meeting for meeting in still_open if message.weight <= meeting.brought * (1 + 1e-9)]
        if still_open and not enough:
            brought = still_open[-1].brought
            raise self._whole.broken(f"a mean weighs {message.weight:g}; its members brought {brought:g}")
        for meeting in enough[:1]:
            meeting.result = message
