"""The server side of a group lives on its speaker: what the inner scheme would have servers and a coordinator for.

Members call their speaker where their role would call servers or the coordinator, or take part in a `Mean`. So a
group's traffic stays within the group. All vectors are as long as the model.

    state       input                                             then
    CLOSED      `open`: the outer scheme wants work from w        OPEN; members that wait are let go, at w
    OPEN        what a member sends                               the inner server's answer
    OPEN        the exchanges that were asked for are made        DONE
    DONE        what a member sends                               as in OPEN; in lock-step answers are held back
    DONE        `take`: the outer scheme has the result           CLOSED
    CLOSED      what a member sends                               kept until the next `open`, as it would be lost else
    any         a member leaves or comes                          the inner server hears of it

An exchange is a round of all members where the inner scheme has rounds; else as many contributions as there are
members. What makes them is one of two:

    `ClockedGroup`    the inner scheme has a clock-gated server (bsp, asp, ssp, ...). At the next `open` all whose
                      answers were held back are answered with the new weights.
    `AveragingGroup`  members average among themselves (esync, localsgd, ...) and know after how many averages they
                      are done. They then ask for the next weights, and get them once all of them have.

All members are known here by their numbers in the group.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from paceline.core.collective.mean_server import MeanServer, Part
from paceline.core.effects import Reply, Tell
from paceline.core.paramserver.gated_server import ClockedServer, Pull, Push
from paceline.core.role import Role, RoleContext
from paceline.core.tiers.messages import AwaitGroup, EnterGroup, GroupBegin, RoundBegin, RoundOver

CLOSED, OPEN, DONE = "closed", "open", "done"


class GroupServer:
    """Holds what both kinds share: who takes part, and the inner scheme's coordinator.

    `scheme`: the inner one. `place`: of the group; its workers are the numbers of all. `me`: the speaker's. `members`:
    those that take part now.
    """

    def __init__(self, scheme: Any, place: RoleContext, me: int, members: set[int]) -> None:
        self.scheme, self.me, self.state = scheme, me, CLOSED
        self.place = place
        self.members = members
        self.coordinator: Role | None = None
        self.now = self.began = self.ended = 0.0
        self.opened: Any = None  # the weights of the present work
        self.steps = 0
        self.retired = False  # the speaker trains no more, and serves the others

    # ---- who takes part ------------------------------------------------------------------------------------
    def leaves(self, now: float, member: int) -> Iterator[Tell | Reply]:
        """Goes on without a member."""
        if member in self.members:
            self.members.discard(member)
            yield from self.member_left(now, member)

    def retires(self, now: float) -> Iterator[Tell | Reply]:
        """Goes on without the work of the speaker."""
        self.retired = True
        yield from self.leaves(now, self.me)

    def joins(self, now: float, member: int) -> Iterator[Tell | Reply]:
        """Takes a newcomer in."""
        if member not in self.members:
            self.members.add(member)
            yield from self.member_joined(now, member)

    def member_left(self, now: float, member: int) -> Iterator[Tell | Reply]:
        """Expects nothing more of a member."""
        if self.coordinator is not None:
            yield from self.coordinator.on_worker_left(now, member)

    def member_joined(self, now: float, member: int) -> Iterator[Tell | Reply]:
        """Expects a member from now on."""
        if self.coordinator is not None:
            yield from self.coordinator.on_worker_joined(now, member)

    # ---- upon receiving ------------------------------------------------------------------------------------
    def on(self, now: float, src: int, message: Any) -> Iterable[Tell | Reply]:
        """Handles a message of member `src`. No generator: most messages of a group pass here, and free nobody."""
        self.now = now
        if isinstance(message, AwaitGroup):
            return self.awaited()
        if not isinstance(message, EnterGroup):
            if src in self.members:
                return self.hear(now, src, message)
            # What was still on its way from one who has left changes nothing. A call that the speaker made before it
            # retired is answered, or the answer to its next one would be taken for that of this one.
            return (Reply(src, RoundOver()),) if src == self.me and self.retired else ()
        # A newcomer of which a speaker that is one, too, was not told
        joins = () if src in self.members else self.joins(now, src)
        return itertools.chain(joins, self.enter(src, message))

    def awaited(self) -> Iterable[Tell | Reply]:
        """The speaker, which trains no more, asks when the present work is done."""
        return ()

    def enter(self, src: int, message: EnterGroup) -> Iterator[Tell | Reply]:
        """A member asks to take part."""
        raise NotImplementedError

    def hear(self, now: float, src: int, message: Any) -> Iterable[Tell | Reply]:
        """Handles a message of the inner scheme."""
        assert self.coordinator is not None
        return self.coordinator.on(now, src, message)

    def open(self, w: Any, steps: int) -> Iterator[Tell | Reply]:
        """Begins `steps` exchanges at `w`. The same work again, of a restarted speaker, goes on where it is."""
        raise NotImplementedError

    def goes_on(self, w: Any) -> bool:
        """Returns True if the work on just these weights is under way, or its result has not been taken."""
        return self.state != CLOSED and w is self.opened

    def take(self) -> None:
        """The outer scheme has the result, and what comes from now on is for the next `open`."""
        self.state = CLOSED

    def inner_coordinator(self, absent: Collection[int] = ()) -> Role | None:
        """Returns a new coordinator of the inner scheme, without the `absent`; None if it has none."""
        box = self.scheme.Coordinator
        made: Role | None = box(self.scheme, self.place) if box else None
        if made is not None:
            for member in absent:
                assert not list(made.on_worker_left(0.0, member))
        return made

    def absent(self, of: Iterable[int]) -> list[int]:
        """Returns those in `of` that do not take part."""
        return [member for member in of if member not in self.members]


class ClockedGroup(GroupServer):
    """Holds the group's weights, by the inner scheme's server.

    held: who waits for the weights of the next `open`. kept: what came since `take`. asks: the speaker's own call has
    no answer yet. samples: of the contributions since `open`.
    """

    def __init__(
        self, scheme: Any, place: RoleContext, me: int, members: set[int], *, box: type[ClockedServer]
    ) -> None:
        super().__init__(scheme, place, me, members)
        self.box = box
        self.server: ClockedServer | None = None
        self.entered: dict[int, None] = {}
        self.held: dict[int, None] = {}  # a dict for its order
        self.kept: list[tuple[int, Any]] = []
        self.asks = False
        self.base, self.progress, self.samples = 0, 0.0, 0
        self.timed = False

    def open(self, w: Any, steps: int) -> Iterator[Tell | Reply]:
        if self.goes_on(w):
            return
        self.opened, self.steps, self.state = w, steps, OPEN
        self.progress, self.samples, self.timed = 0.0, 0, False
        if self.server is None:
            absent = self.absent(self.place.workers)
            self.server = self.box(self.scheme, dataclasses.replace(self.place, w=w))
            for member in absent:
                list(self.server.on_worker_left(self.now, member))
            self.coordinator = self.inner_coordinator(absent)
        self.server.w = w
        self.base = self.server.version
        entered, self.entered = self.entered, {}
        for member in entered:
            yield self.begin(member)
        held, self.held = self.held, {}
        for member in held:
            yield from self.sift(list(self.server.on(self.now, member, Pull())))
        kept, self.kept = self.kept, []
        for src, message in kept:
            yield from self.hear(self.now, src, message)
        self.timed = False  # the first message from now on tells the time

    @property
    def begins(self) -> bool:
        """Returns True if the group has begun the present work, and made no exchange of it."""
        return self.state == OPEN and not self.progress

    def begin(self, member: int) -> Reply:
        return Reply(member, GroupBegin(steps=max(1, self.steps)))

    def enter(self, src: int, message: EnterGroup) -> Iterator[Tell | Reply]:
        self.forget(src)
        if self.server is None:
            self.entered[src] = None
            return
        yield self.begin(src)

    def hear(self, now: float, src: int, message: Any) -> Iterable[Tell | Reply]:
        server = self.server
        if server is None:
            return ()  # of an earlier incarnation
        if not isinstance(message, (Push, Pull)):
            return super().hear(now, src, message)
        if self.state == CLOSED:
            self.forget(src)  # a restarted member asks again
            self.kept.append((src, message))
            return ()
        if not self.timed:
            self.timed, self.began = True, now
        if src == self.me:
            self.asks = True
        before = server.clocks[src]
        effects = server.on(now, src, message)
        if not isinstance(effects, tuple):  # a generator has done nothing yet
            effects = list(effects)
        if isinstance(message, Push) and server.clocks[src] > before:
            self.progress += 1 / len(self.members)
            self.samples += message.samples
        return self.sift(effects)

    def awaited(self) -> Iterable[Tell | Reply]:
        self.asks = True
        return self.sift(())

    def forget(self, member: int) -> None:
        """Forgets what an incarnation of a member that is over waits for, and has sent since `take`."""
        self.held.pop(member, None)
        self.kept = [(src, message) for src, message in self.kept if src != member]

    def sift(self, effects: Sequence[Tell | Reply]) -> Sequence[Tell | Reply]:
        """Returns the answers that go out while the group works, and lets the speaker know once it is done.

        In lock-step nobody goes on before the next `open`. Otherwise members work on until the speaker, which may be in
        a step of its own, takes the result; what they have made by then is in it.
        """
        state = self.state
        if state == OPEN:
            assert self.server is not None
            made = self.server.version - self.base if self.scheme.lock_step else self.progress
            if made >= self.steps - 1e-9:
                state, self.state, self.ended = DONE, DONE, self.now
        over = state == DONE or not self.members
        if not effects and not over:
            return ()
        flows = state == OPEN or (state == DONE and not self.scheme.lock_step)
        out: list[Tell | Reply] = []
        for effect in effects:
            if not isinstance(effect, Reply):
                out.append(effect)
            elif effect.to == self.me:
                if state != DONE and self.asks:
                    self.asks = False
                    out.append(effect)
            elif flows:
                out.append(effect)
            else:
                self.held[effect.to] = None
        if over and self.asks:
            self.asks = False
            out.append(Reply(self.me, RoundOver()))
        return out

    def member_left(self, now: float, member: int) -> Iterator[Tell | Reply]:
        yield from super().member_left(now, member)
        self.entered.pop(member, None)
        self.forget(member)
        if self.server is not None:
            yield from self.sift(list(self.server.on_worker_left(now, member)))

    def member_joined(self, now: float, member: int) -> Iterator[Tell | Reply]:
        yield from super().member_joined(now, member)
        if self.server is not None:
            yield from self.server.on_worker_joined(now, member)


class GradientMean(ClockedServer):
    """Makes the mean gradient of a group, which the outer scheme asks for: an update changes no weights here."""

    g: Any = None
    samples = 0

    def partition(self) -> tuple[tuple[int, ...], ...]:
        return (self.workers,)

    def move(self, ranks: Collection[int], v: Any, samples: int, weight: float) -> None:
        """Keeps the mean gradient for whoever asks."""
        self.g, self.samples = v, samples


class AveragingGroup(GroupServer):
    """Carries the members' means, and lets them begin a round of the outer scheme together.

    cast: who takes part in the means. One that comes in later is in the next cast, and all begin with new roles.
    begun: who has been told to begin the present round. recast: somebody has come since the cast was made.
    """

    def __init__(self, scheme: Any, place: RoleContext, me: int, members: set[int]) -> None:
        super().__init__(scheme, place, me, members)
        self.means: MeanServer | None = None
        self.cast: tuple[int, ...] = ()
        self.casts = self.turn = 0
        self.waiting: set[int] = set()
        self.begun: set[int] = set()
        self.opening, self.recast = False, True

    def open(self, w: Any, steps: int) -> Iterator[Tell | Reply]:
        if self.goes_on(w):
            return
        self.opened, self.steps, self.state, self.opening = w, steps, OPEN, True
        yield from self.begin_together()

    def enter(self, src: int, message: EnterGroup) -> Iterator[Tell | Reply]:
        if src in self.begun and message.turn < self.turn:
            yield Reply(src, self.begin())  # it was restarted, and the answer did not reach it
            return
        self.waiting.add(src)
        if self.means is not None:
            yield from self.means.passes(src)
        yield from self.begin_together()

    def begin(self) -> RoundBegin:
        """Returns what members are told to begin."""
        return RoundBegin(w=self.opened, turn=self.turn, steps=self.steps, casts=self.casts, cast=self.cast)

    def begin_together(self) -> Iterator[Tell | Reply]:
        """Lets everybody go once all members wait and there is work to do."""
        if not self.opening or not self.members or not self.members <= self.waiting:
            return
        if self.recast:
            self.cast, self.casts, self.recast = tuple(sorted(self.members)), self.casts + 1, False
            absent = self.absent(self.place.workers)
            self.means = MeanServer(self.scheme, self.place)
            for member in absent:
                list(self.means.on_worker_left(self.now, member))
            self.coordinator = self.inner_coordinator(absent)
        self.opening, self.began, self.turn = False, self.now, self.turn + 1
        self.waiting, self.begun = set(), set(self.members)
        for member in self.cast:
            if member in self.members:
                yield Reply(member, self.begin())

    def hear(self, now: float, src: int, message: Any) -> Iterable[Tell | Reply]:
        if src not in self.begun:
            return ()  # of an earlier incarnation
        self.ended = now
        if isinstance(message, Part):
            return self.hear_part(now, src, message)
        return super().hear(now, src, message)

    def hear_part(self, now: float, src: int, part: Part) -> Iterator[Tell | Reply]:
        """Gives a part to the means of this round. Who waits for the next round is expected in none of them.

        A liar that has named another mean in its last exchange may wait before the last mean of the others begins.
        """
        assert self.means is not None
        yield from self.means.on(now, src, part)
        for rank in tuple(self.waiting):
            yield from self.means.passes(rank)

    def member_left(self, now: float, member: int) -> Iterator[Tell | Reply]:
        yield from super().member_left(now, member)
        self.waiting.discard(member)
        self.begun.discard(member)
        if self.means is not None:
            yield from self.means.on_worker_left(now, member)
        yield from self.begin_together()

    def member_joined(self, now: float, member: int) -> Iterator[Tell | Reply]:
        """A newcomer is in the next cast: the means and the coordinator of this one never hear of it."""
        self.recast = True
        yield from ()
