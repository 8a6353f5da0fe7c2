"""A worker of a group may be its speaker: the outer scheme's worker, whose work the whole group does.

    speaker:   tell the servers of the outer scheme that it speaks
               run the outer scheme's worker; its messages go to the servers of the run, and where it would compute or
               train, the whole group does, by the inner scheme (`group_server.py`), the speaker as one of its members

The speaker calls itself where a member calls the speaker, so its contributions are treated like those of others.

A group whose speaker is lost goes on from the weights of the outer scheme's servers, with new roles: what it has done
since the last exchange between groups is lost, and so is what its server and its outer worker remembered.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any

from paceline.core.effects import SERVERS, Call, Compute, Computed, Effect, Reply, Tell, Train, Trained
from paceline.core.errors import PeerLost, Unexpected
from paceline.core.paramserver.gated_server import Pull
from paceline.core.role import Role, RoleContext, found_under, named_under
from paceline.core.tiers.group_server import DONE, AveragingGroup, ClockedGroup, GradientMean
from paceline.core.tiers.member import INNER, GroupMember, TermOver, exchanges
from paceline.core.tiers.messages import AwaitGroup, GroupExchanged, RoundOver, Speaks
from paceline.core.validation.bounds import SAMPLES_MAX

OUTER, GROUP = "outer", "group"
"""Stand in a checkpoint before the names of what the roles keep that a speaker has besides a member's."""
GROUP_SAMPLES_MAX = SAMPLES_MAX // 8
"""A group counts no more for one piece of work: an outer scheme may add a few up, and one member may have lied."""


class TierWorker(GroupMember):
    """Is a member of its group, or its speaker.

    early: what others said before this worker knew that it speaks.
    wanted: the effect of its own inner role that comes next, if that is known; value: the result of the last one.
    outer_run: the loop of the outer role. asked: the work that it waits for. taken: by number, the last contribution of
    each member that the outer role has got.
    """

    transient = ("now", "early", "outer", "outer_run", "asked", "server", "inner_run", "wanted", "value", "taken")

    def __init__(self, scheme: Any, place: RoleContext) -> None:
        self.now = 0.0
        self.early: dict[int, Any] = {}
        super().__init__(scheme, place)

    def begin_term(self) -> None:
        super().begin_term()
        self.outer: Role | None = None
        self.outer_run: Generator[Effect, Any, None] | None = None
        self.asked: Compute | Train | None = None
        self.server: AveragingGroup | ClockedGroup | None = None
        self.inner_run: Generator[Effect, Any, None] | None = None
        self.wanted: Effect | None = None
        self.value: Any = None
        self.taken: dict[int, int] = {}

    # ---- what a resumed run goes on from ---------------------------------------------------------------------
    @property
    def whole(self) -> bool:
        """Returns True where the outer scheme has just given the group work."""
        if self.inner is None or not self.inner.whole:
            return False
        if self.outer is None:
            return True
        begins = exchanges(self.inner) == self.began_at if self.averages else self.server.begins  # type: ignore[union-attr]
        return self.outer.whole and begins

    def progress(self) -> int:
        return self.outer.progress() if self.outer is not None else 0

    def state(self) -> dict[str, Any]:
        found = super().state()
        if self.outer is not None:
            found |= named_under(OUTER, self.outer.state())
        if isinstance(self.server, ClockedGroup) and self.server.server is not None:
            found |= named_under(GROUP, self.server.server.state())
        # Members of larger groups are kept at moments of their own, and would disagree about what they have in common.
        if self.inner is not None and len(self.ranks) == 1:
            shared = self.inner.join_state() if self.averages else {}
            found |= named_under(INNER, {**shared, **self.inner.state()})
        return found

    def goes_on(self, role: Role, head: str) -> Role:
        if head == INNER and self.averages:
            role.load_join_state(found_under(head, self.resumed))
        return super().goes_on(role, head)

    # ---- upon receiving ------------------------------------------------------------------------------------
    def on(self, now: float, src: int, message: Any) -> Iterable[Tell | Reply]:
        """Takes what the members of a group send to their speaker."""
        self.now = now
        if self.map.group_of[src] != self.group:
            raise Unexpected(f"worker {src} is in another group, and sends {type(message).__name__}")
        if isinstance(message, GroupExchanged):
            self.exchange_has(src, message.clock)
            return ()
        if self.server is None:
            self.early[src] = message  # it enters; a restarted one enters again
            return ()
        return self.in_ranks(self.server.on(now, self.map.number_of[src], message))

    def on_worker_left(self, now: float, rank: int) -> Iterator[Tell | Reply]:
        yield from super().on_worker_left(now, rank)
        self.early.pop(rank, None)
        if self.server is not None and self.map.group_of[rank] == self.group:
            yield from self.in_ranks(self.server.leaves(now, self.map.number_of[rank]))

    def on_refused(self, now: float, rank: int, message: Any) -> Iterator[Tell | Reply]:
        """Goes on without a member of the group, until it enters again: it may never send what the others wait for."""
        self.early.pop(rank, None)
        if self.server is not None and self.map.group_of[rank] == self.group:
            yield from self.in_ranks(self.server.leaves(now, self.map.number_of[rank]))

    def on_worker_joined(self, now: float, rank: int) -> Iterator[Tell | Reply]:
        yield from super().on_worker_joined(now, rank)
        if self.server is not None and self.map.group_of[rank] == self.group:
            yield from self.in_ranks(self.server.joins(now, self.map.number_of[rank]))

    def in_ranks(self, effects: Iterable[Tell | Reply]) -> Sequence[Tell | Reply]:
        """Returns the effects of the group's server with ranks in place of numbers, which are never SERVERS."""
        if not effects:
            return ()
        ranks = self.ranks
        return [type(effect)(ranks[effect.to], effect.message) for effect in effects]  # type: ignore[index]

    # ---- the loop ------------------------------------------------------------------------------------------
    def speak(self) -> Generator[Effect, Any, None]:
        """Runs the outer scheme's worker, with the group in place of a device."""
        yield from self.serve_group()
        if self.outer is None:
            heard = yield Call(SERVERS, Speaks())
            self.outer, self.w = self.outer_role(heard.w), None
        self.outer_run, value = self.outer.run(), None
        self.inner_run = self.wanted = self.value = None
        try:
            while True:
                work = self.asked = yield from self.until_work(value)
                yield from self.notify_exchanged(self.taken)
                value = yield from self.work(work.w if isinstance(work, Compute) else work.x, work.steps)
        finally:
            if self.inner_run is not None:
                self.inner_run.close()

    def until_work(self, value: Any) -> Generator[Effect, Any, Compute | Train]:
        """Carries out what the outer scheme's worker asks for, until it wants work done; returns that."""
        assert self.outer_run is not None
        while not isinstance(effect := self.outer_run.send(value), Compute | Train):
            if isinstance(effect, Call):
                effect = Call(effect.to, effect.message)  # not streaming: the group looks at the whole answer
            value = yield effect
        return effect

    def last_exchange(self, *, soon: bool = False) -> Generator[Effect, Any, None]:
        """Hands over what this member has. A speaker then goes on with the exchanges of its group until nobody trains.

        Where it ends `soon` it hands over what the group has made by now, and the next speaker begins with that.
        """
        yield from super().last_exchange(soon=soon)
        if self.outer is None or self.server is None or self.asked is None:
            return
        if not self.averages:
            yield from self.in_ranks(self.server.retires(self.now))
        try:
            while (made := (yield from self.rest_of_group(self.asked, soon=soon))) is not None:
                self.asked = yield from self.until_work(made)
                yield from self.notify_exchanged(self.taken)
                if soon:  # what the others have pushed meanwhile is for the next speaker, or there would be no end
                    break
        except (TermOver, PeerLost):
            return
        yield from self.outer.last_exchange(soon=soon)

    def rest_of_group(self, work: Compute | Train, *, soon: bool) -> Generator[Effect, Any, Computed | Trained | None]:
        """Returns what the group makes of `work` without this worker; None once nobody trains."""
        server = self.server
        assert server is not None
        yield from self.in_ranks(server.open(work.w if isinstance(work, Compute) else work.x, work.steps))
        if isinstance(server, ClockedGroup):
            if not soon:
                yield Call(self.me, AwaitGroup())
            made = server.server is not None and server.server.version > server.base  # or all of it was rejected
            return self.pushed(server) if made else None
        return (yield from self.rest_of_averages(server, soon))

    def rest_of_averages(self, server: AveragingGroup, soon: bool) -> Generator[Effect, Any, Trained | None]:
        """Takes part in the averages of the others with a weight of zero, which shows this worker what they have."""
        others = server.members - {self.number}
        while not soon and (server.members & others) and (self.round is None or self.round.w is server.opened):
            run, value = self.average(), None
            try:
                while True:
                    effect = run.send(value)
                    if isinstance(effect, Train):
                        if not server.members & others:
                            break
                        value = Trained(effect.x, 0, 0.0)
                    else:
                        value = yield effect
            except StopIteration as over:
                return self.averaged(server, over.value)
            finally:
                run.close()
        if self.inner is None or self.round is None or self.inner.samples_seen == self.samples_before:
            return None
        return self.averaged(server, self.inner)

    def outer_role(self, w: Any) -> Role:
        """Returns the outer scheme's worker, to which groups are workers."""
        groups, outer = tuple(range(len(self.map.groups))), self.scheme.outer_scheme
        place = dataclasses.replace(self.place, me=self.group, workers=groups, note=None, seconds_per_step=(), w=w)
        return self.goes_on(outer.worker(2)(outer, place), OUTER)

    def serve_group(self) -> Iterator[Tell | Reply]:
        """Makes the group's server, and takes up what others have sent it already."""
        if self.server is not None:
            return
        scheme, place = self.scheme.inner_scheme, self.of_group(0)
        members = {number for number, rank in enumerate(self.ranks) if rank not in self.away}
        if self.averages:
            self.server = AveragingGroup(scheme, place, self.number, members)
        else:
            box = GradientMean if self.scheme.passes_gradients else scheme.server(1)
            self.server = ClockedGroup(scheme, place, self.number, members, box=box)
        early, self.early = self.early, {}
        for src, message in early.items():
            yield from self.on(self.now, src, message)

    def work(self, w: Any, steps: int) -> Generator[Effect, Any, Computed | Trained]:
        """Has the group make `steps` exchanges from `w`. Raises TermOver if this worker was declared lost."""
        try:
            return (yield from self.average_from(w, steps) if self.averages else self.push_from(w, steps))
        except PeerLost:  # only its calls to itself fail here
            raise TermOver from None

    def average_from(self, w: Any, steps: int) -> Generator[Effect, Any, Trained]:
        """Has the group train `steps` exchanges from `w` by averages among its members."""
        server = self.server
        assert isinstance(server, AveragingGroup)
        yield from self.in_ranks(server.open(w, steps))
        while True:
            of_another = self.round is not None and self.round.w is not w  # this worker was restarted in an older round
            role = yield from self.average()
            if not of_another:
                break
        return self.averaged(server, role)

    def averaged(self, server: AveragingGroup, role: Role) -> Trained:
        """Takes what the group has made by averages, of which `role` has the weights."""
        server.take()
        samples, self.samples_before = role.samples_seen - self.samples_before, role.samples_seen
        return Trained(role.w, min(samples, GROUP_SAMPLES_MAX), max(server.ended - server.began, 0.0))

    def push_from(self, w: Any, steps: int) -> Generator[Effect, Any, Computed | Trained]:
        """Has the group's server take `steps` exchanges from `w`, and this worker push to it like the others."""
        server = self.server
        assert isinstance(server, ClockedGroup)
        yield from self.in_ranks(server.open(w, steps))
        assert server.server is not None
        self.goes_on(server.server, GROUP)
        role = self.member(self.scheme.inner_for(steps))
        while server.state != DONE:
            if self.inner_run is None:
                self.inner_run = role.run()
            if self.wanted is None:
                self.wanted = self.within(self.inner_run.send(self.value))
            value = yield self.wanted
            if isinstance(value, RoundOver):
                self.wanted = self.to_speaker(Pull())  # in place of the answer: the weights of the next round
            else:
                self.value, self.wanted = self.held.trained(value), None
        return self.pushed(server)

    def pushed(self, server: ClockedGroup) -> Computed | Trained:
        """Takes what the group has made by pushes to its server."""
        server.take()
        assert server.server is not None
        self.taken = dict(server.server.clocks)
        seconds = max(server.ended - server.began, 0.0)
        if isinstance(server.server, GradientMean):
            return Computed(server.server.g, min(server.server.samples, GROUP_SAMPLES_MAX), seconds)
        assert server.server is not None
        return Trained(server.server.w, min(server.samples, GROUP_SAMPLES_MAX), seconds)
