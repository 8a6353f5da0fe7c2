"""Membership where messages may be lost: changes are acknowledged, and a worker declared dead may still run.

    state      input                                     then                                          next
    HERE       crash, or silence                         everybody is told `gone`, with a fence        EVICTED
    HERE       leave                                     everybody is told `gone`                      LEFT
    EVICTED    its process still runs (a zombie)         its messages are rejected, until it is told   ENDED
    EVICTED,   join, and all have acknowledged `gone`    everybody is told `came`                      ANNOUNCED
    LEFT
    ANNOUNCED  all have acknowledged `came`              a new incarnation begins                      HERE
    ANNOUNCED  a server is lost                          the join is aborted                           EVICTED

A fence means that the receiver takes nothing more of that incarnation. Whoever tells is the membership itself, in the
coordinator's place; it does not fail here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from paceline.core.effects import Reply, Tell
from paceline.core.role import Role, RoleContext
from paceline.sim.cluster.network import Nic
from paceline.sim.faults.lossy_links import LossyLinks
from paceline.sim.faults.membership import Members
from paceline.sim.faults.server_recovery import Servers, can_be_replaced
from paceline.sim.kernel.processes import Incarnation, SimulatedProcess

if TYPE_CHECKING:
    from paceline.sim.cluster.model import Hazards
    from paceline.sim.messaging import WireCodec
    from paceline.sim.simulation import Simulation

DRAINED_EVERY_S = 0.5
"""Seconds between two looks whether the messages of a worker that left have all arrived."""


class MembershipUpdate:
    """Makes `hear(party, who)` happen at every party, and `then(who)` when all have acknowledged it."""

    def __init__(
        self,
        who: SimulatedProcess,
        hear: Callable[[SimulatedProcess, SimulatedProcess], None],
        then: Callable[[SimulatedProcess], None],
    ) -> None:
        self.who, self.hear, self.then = who, hear, then
        self.missing: dict[SimulatedProcess, None] = {}


class AckedMembership(Members):
    """Does what `Members` does, over lossy links: each change is acknowledged before the next step."""

    streams: LossyLinks

    def __init__(self, sim: Simulation, hazards: Hazards, passage: WireCodec | None) -> None:
        super().__init__(sim)
        self.streams = LossyLinks(sim, hazards, passage, self.learns_it_is_fenced, self._sent_in_vain)
        place = RoleContext(me=0, workers=sim.world.ranks, w=None, update=lambda w, g, samples: w)
        self._control = SimulatedProcess("membership", Role(sim.scheme, place), sim.world.control, 0.0)
        self._under_way: list[MembershipUpdate] = []
        self._coming: set[int] = set()
        self._fences: dict[int, SimulatedProcess] = {}  # by rank: the last incarnation that was declared dead
        self._announced: dict[int, MembershipUpdate] = {}  # by rank: who comes, and has not entered
        if hazards.servers_keep != "all" and can_be_replaced(sim.scheme, sim.cluster.servers):
            copied = hazards.servers_keep == "replica"
            self.servers = Servers(sim, self, self._control, hazards.snapshot_every_s, copied=copied)
            self.streams.loses = self.servers.crash

    # ---- lost and left -------------------------------------------------------------------------------------
    def leave(self, incarnation: Incarnation) -> None:
        """Ends an incarnation that leaves. A zombie is out of the membership already, so nobody is told."""
        if incarnation.party.here:
            super().leave(incarnation)
        else:  # a zombie: it is out of the membership already
            self.leaving.discard(incarnation.rank)
            self._end(incarnation.party)

    def crash(self, rank: int) -> None:
        """Crashes worker `rank`, or ends its zombie; all messages it had not delivered are lost."""
        party = self._sim.world.workers[rank]
        if not party.here and party.hears and self._sim.incarnations[rank].alive:  # a zombie
            self._end(party)
        super().crash(rank)
        if not party.hears:
            self.streams.forget(party)

    def suspect(self, rank: int) -> None:
        """Evicts worker `rank`, which was silent for `suspect_after_s`, whether or not it still runs."""
        party = self._sim.world.workers[rank]
        if party.here and party not in self._lost:
            if self._sim.invariants:
                self._sim.invariants.crashed(rank)
            self._evict(party, f"silent for {self._sim.cluster.suspect_after_s:g} s")
            self.streams.send(self._control, party, 0, self.learns_it_is_fenced, (party,))

    def _evict(self, party: SimulatedProcess, reason: str) -> None:
        """Declares a worker lost before anybody is told, so that no new call is opened at it meanwhile."""
        party.here = False
        super()._evict(party, reason)

    def _fence(self, party: SimulatedProcess) -> None:
        """Remembers the fence; each party sets it when it hears of the loss, a newcomer when it enters."""
        self._fences[party.me] = party
        if not party.hears:
            self.streams.give_up(self._control, party)
        self._needs_no_news(party)

    def learns_it_is_fenced(self, party: SimulatedProcess) -> None:
        """Ends a process that runs although it was declared dead, and lets it rejoin as a newcomer."""
        if self.servers and self.servers.learns_it_is_lost(party):
            return
        if (
            party.here
            or not self._sim.incarnations[party.me].alive
            or self._sim.incarnations[party.me].party is not party
        ):
            return
        self._end(party)
        self._note(party, "fenced", "it was declared dead")
        self._sim.join(party.me)

    def _end(self, party: SimulatedProcess) -> None:
        """Ends a process for good: nobody waits for its acknowledgements, and nothing is sent to it any more."""
        self._sim.incarnations[party.me].end()
        party.hears = False
        self.streams.forget(party)
        self.streams.give_up(self._control, party)
        self._needs_no_news(party)

    def _needs_no_news(self, party: SimulatedProcess) -> None:
        """Counts `party` as told wherever its acknowledgement is awaited: it is gone, and would block every change."""
        for news in list(self._under_way):
            self._confirmed(news, party)

    def _is_gone(self, party: SimulatedProcess, nic: Nic) -> None:
        """Tells everybody that a worker is gone: by the worker itself when it leaves, otherwise by the membership.

        `nic`: the card from which the news is sent, which tells the two cases apart.
        """
        if self._sim.leasing:
            self._sim.leasing.gone(party)
        if nic is party.nic:
            self._tell_all(party, MembershipUpdate(party, self._hears_of_leave, self._all_know_it_is_gone))
        else:
            self._tell_all(self._control, MembershipUpdate(party, self._hears_of_death, self._all_know_it_is_gone))

    def _hears_of_leave(self, party: SimulatedProcess, who: SimulatedProcess) -> None:
        """Handles a clean leave at `party`. No fence is set, because the messages of a worker that left still count."""
        self._calls_end(party, who)
        self.hears_gone(party, who.me)

    def _hears_of_death(self, party: SimulatedProcess, who: SimulatedProcess) -> None:
        """Handles an eviction at `party`: it takes nothing more of that incarnation, then its role hears of the
        loss."""
        self._calls_end(party, who)
        self.streams.fence(party, who)
        if self._sim.invariants:
            self._sim.invariants.deliveries.fenced(party, who)
        self.hears_gone(party, who.me)

    def _calls_end(self, party: SimulatedProcess, who: SimulatedProcess) -> None:
        """Fails the calls of `party` to a worker that is gone."""
        who.open.pop(party.me, None)
        for call in self.streams.questions(party, who):
            self._sim.heap.push(self._sim.now, self._sim.messaging.lost, call, who.name)

    def _sent_in_vain(self, dst: SimulatedProcess, act: Callable[..., None], args: tuple[Any, ...]) -> None:
        """Handles a message to a process known to be dead: a call fails at once."""
        if act is self._sim.messaging.asked:
            self._sim.heap.push(self._sim.now, self._sim.messaging.lost, args[1], dst.name)

    # ---- joining -------------------------------------------------------------------------------------------
    def join(self, rank: int) -> None:
        """Lets worker `rank` join, once everybody has acknowledged that its last incarnation is gone.

        This does nothing for a worker that is present or already joins. A zombie joins later, when it has learnt of
        its eviction.
        """
        self.leaving.discard(rank)
        party = self._sim.world.workers[rank]
        if party in self._lost:
            self._evict(party, "came back")
        # Where the incarnation is alive but not present, it is a zombie, and joins once it has learnt that.
        if party.here or self._sim.incarnations[rank].alive or rank in self._coming:
            return
        self._coming.add(rank)
        if not any(news.who is party for news in self._under_way):
            self._all_know_it_is_gone(party)

    def _all_know_it_is_gone(self, party: SimulatedProcess) -> None:
        """Announces a worker that joins; it enters when all have acknowledged that. It waits while servers are
        replaced."""
        if party.me not in self._coming:
            return
        if self.servers and self.servers.afterwards(lambda: self._all_know_it_is_gone(party)):
            return
        if self._sim.world.peers:
            self.hears_came(self._sim.world.peers, party.me)
        news = self._announced[party.me] = MembershipUpdate(
            party, self._hears_of_arrival, lambda who: self._is_awaited(news)
        )
        self._tell_all(self._control, news)

    def _is_awaited(self, news: MembershipUpdate) -> None:
        """Lets the announced worker enter, unless its join was aborted meanwhile."""
        if self._announced.get(news.who.me) is news:
            self._enter(news.who)

    def _hears_of_arrival(self, party: SimulatedProcess, who: SimulatedProcess) -> None:
        self.hears_came(party, who.me)

    def _enter(self, old: SimulatedProcess) -> None:
        """Begins the new incarnation of a worker that everybody expects.

        The newcomer inherits all fences and the server view. It is also told of changes that began before it
        entered, since nobody counted it among their listeners.
        """
        if old.hears and not self.streams.quiet(old):  # what a worker that left cleanly has sent still arrives
            news = self._announced[old.me]
            self._sim.heap.push(self._sim.now + DRAINED_EVERY_S, self._is_awaited, news)
            return
        self._end(old)
        rank, before = old.me, list(self._under_way)
        self._coming.discard(rank)
        del self._announced[rank]
        if self.servers and self._sim.invariants:
            self._sim.invariants.enters(rank, self.servers.kept_recounts())
        super()._enter(old)
        newcomer = self._sim.world.workers[rank]
        if self.servers:
            self.streams.server_views[newcomer.process] = self.servers.replacing.server_view
            self.servers.snapshots.keep_on()
        for dead in self._fences.values():
            self.streams.fence(newcomer, dead)
        if newcomer in self._curious():
            for news in before:
                if news.who.me != rank:
                    self._tell(self._control, news, newcomer)

    # ---- servers that are lost and replaced ----------------------------------------------------------------
    def is_missed(self, party: SimulatedProcess) -> bool:
        """Returns True if that worker has crashed and the membership does not know yet."""
        return party in self._lost

    def fences(self) -> Iterable[SimulatedProcess]:
        """Returns the last incarnation of each worker that was declared dead."""
        return self._fences.values()

    def server_is_gone(self, parties: Iterable[SimulatedProcess]) -> None:
        """Aborts the joins under way, since the server that replaces the lost one was not told of them.

        Everybody hears `gone` for those workers, and the joins begin again after that. `parties`: the roles of the
        lost server, whose acknowledgements nobody awaits any more.
        """
        sent_home = list(self._announced.values())
        self._announced.clear()
        self._under_way = [news for news in self._under_way if news not in sent_home]  # before the dead count as told
        for party in parties:
            if not party.hears:
                self.streams.give_up(self._control, party)
            self._needs_no_news(party)
        for news in sent_home:
            self._tell_all(
                self._control, MembershipUpdate(news.who, self._hears_it_was_sent_home, self._all_know_it_is_gone)
            )

    def _hears_it_was_sent_home(self, party: SimulatedProcess, who: SimulatedProcess) -> None:
        """Handles an aborted join at `party`: the worker that was announced is gone again."""
        self.hears_gone(party, who.me)

    def hears_gone(self, party: SimulatedProcess, rank: int) -> None:
        """Lets `party` hear that worker `rank` is gone: the recovery of servers and the leases hear it with the
        role."""
        if self.servers:
            self.servers.knows(party, rank, here=False)
        super().hears_gone(party, rank)
        if self._sim.leasing:
            self._sim.leasing.heard_gone(party, rank)

    def hears_came(self, party: SimulatedProcess, rank: int) -> None:
        """Lets `party` hear that worker `rank` joins."""
        if self.servers:
            self.servers.knows(party, rank, here=True)
        super().hears_came(party, rank)

    def _held(self, party: SimulatedProcess, effects: Iterable[Tell | Reply]) -> Iterable[Tell | Reply]:
        """Returns the effects of a server that may leave before its copy knows them."""
        return self.servers.hold(party, effects) if self.servers else effects

    # ---- how the others hear of it -------------------------------------------------------------------------
    def _tell_all(self, src: SimulatedProcess, news: MembershipUpdate) -> None:
        """Starts a membership update: `src` sends it to every party that is present or still hears.

        The workers' own carrier of means is no process, so it hears at once; of a newcomer it hears in
        `_all_know_it_is_gone`.
        """
        world = self._sim.world
        self._under_way.append(news)
        if world.peers and news.hear != self._hears_of_arrival:
            self.hears_gone(world.peers, news.who.me)
        listeners = [
            party
            for party in [*world.others, *self._curious()]
            if party is not news.who and (party.here or party.hears)
        ]
        for party in listeners:
            self._tell(src, news, party)
        self._done(news)

    def _tell(self, src: SimulatedProcess, news: MembershipUpdate, party: SimulatedProcess) -> None:
        """Sends an update to one party, and notes that its acknowledgement is missing."""
        news.missing[party] = None
        self.streams.send(src, party, 0, self._is_told, (party, news))

    def _is_told(self, party: SimulatedProcess, news: MembershipUpdate) -> None:
        """Handles an update at `party`, which acknowledges it once its copy has it."""
        news.hear(party, news.who)
        self._after_replicated(
            party, lambda: self.streams.send(party, self._control, 0, self._confirmed, (news, party))
        )

    def _after_replicated(self, party: SimulatedProcess, act: Callable[[], object]) -> None:
        """Calls `act` once the copy of that server knows what it knows, so that its successor would know it too."""
        if self.servers:
            self.servers.after_replicated(party, act)
        else:
            act()

    def _confirmed(self, news: MembershipUpdate, party: SimulatedProcess) -> None:
        """Takes the acknowledgement of `party`; one that comes twice changes nothing."""
        if news.missing.pop(party, party) is None:
            self._done(news)

    def _done(self, news: MembershipUpdate) -> None:
        """Calls `then` of an update whose acknowledgements are complete."""
        if not news.missing and news in self._under_way:
            self._under_way.remove(news)
            news.then(news.who)
