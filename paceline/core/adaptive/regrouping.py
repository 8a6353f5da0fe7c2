"""Groups by speed that follow the speeds, decided in one place and the same on every shard.

The coordinator decides. Members of a group go from round to round together, so the first of them to ask about a round
decides for all: either the group stays for this round, or each of its members moves to its new group with this very
push.

    a group's `moves_at`      a member asks about round r        it is told
    None                      any r                              () : stay
    m                         r < m                              () : stay, the round was begun by another member
    m                         r >= m                             its new group, which it joins with its next push

A grouping is decided only when everybody has reported from within the last one, so that no shard still has to hear of
an earlier one. A newcomer is a group of its own until its speed is known.

A worker's first push in a new group names the members. Every shard therefore makes the same rounds, in whatever order
pushes of different workers reach it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from paceline.core.adaptive.grouping import Groups, groups_by_speed, rounds_of, score
from paceline.core.effects import (
    COORDINATOR,
    SERVERS,
    STREAMS,
    Call,
    Compute,
    Computed,
    Effect,
    Reply,
    Start,
    Tell,
    Wait,
)
from paceline.core.message import message
from paceline.core.paramserver.gated_server import ClockedServer, Pull, Push
from paceline.core.paramserver.gated_worker import ClockedWorker
from paceline.core.paramserver.round import Round
from paceline.core.role import Role, RoleContext
from paceline.core.trace import Decided
from paceline.core.validation import bounds

SMOOTHING = 0.2
"""Weight of the latest step time in what is known of a worker's speed."""

LOOK_FIRST = 3
"""Where nobody measured the speeds before the start, they are compared first after so many exchanges a worker."""


@message("regroup.Timed")
class Timed:
    """A worker reports: so many exchanges are `done`; a step of the last one took `seconds`, 0 when
    there was none yet.
    """

    done: bounds.ExchangeNumber
    seconds: bounds.Seconds


@message("regroup.Grouped")
class Grouped:
    """Answers Timed. `group`: whom to meet from the next push on, () for the same as before.

    `number` counts the regroupings.
    """

    group: bounds.Ranks
    number: bounds.Count


@message("regroup.Move")
class Move(Push):
    """Pushes to a new group for the first time, and names its members."""

    group: bounds.Ranks
    number: bounds.Count


def first_groups(scheme: Any, place: RoleContext) -> Groups:
    """Returns the groups of the start, the same on every party: those written down, by measured
    speed, or all in one.
    """
    measured = dict(enumerate(place.seconds_per_step))
    return scheme.written() or groups_by_speed(measured, scheme.ratio) or (place.workers,)


@dataclass(slots=True, eq=False)
class _Group:
    """`number` of the grouping it belongs to. `asked`: the latest round anybody asked about. `moves_at`: the round it
    ends at.
    """

    number: int
    asked: int = 0
    moves_at: int | None = None


class Regrouper:
    """Decides who meets whom.

    `scheme` has the parameters `ratio`, `regroup` and `hysteresis`, and the method `written`.
    """

    def __init__(self, scheme: Any, place: RoleContext) -> None:
        self.scheme = scheme
        self.note = place.note
        self.number = 0
        self.group: dict[int, _Group] = {}
        for ranks in first_groups(scheme, place):
            self.group.update(dict.fromkeys(ranks, _Group(0)))
        self.round = dict.fromkeys(self.group, -1)  # which round of its group each worker asked about last
        self.seconds: dict[int, float] = {}
        self.untimed = set(self.group)  # of those who were there from the start: no step time reported yet
        self.lagging: set[int] = set()  # who has not reported from within its new group yet
        self.target: dict[int, tuple[tuple[int, ...], _Group]] = {}  # where each rank is to move
        self.told: dict[int, tuple[int, tuple[tuple[int, ...], int]]] = {}  # exchanges done, and the answer
        self.reports = 0
        looks = scheme.regroup if place.seconds_per_step else min(LOOK_FIRST, scheme.regroup)
        self.due = looks * len(self.group)
        self.why = ""

    def report(self, now: float, rank: int, done: int, seconds: float) -> tuple[tuple[int, ...], int]:
        """Returns whom `rank` meets from its next push on, () for the same as before, and the number of the regrouping.

        `done` counts its exchanges, `seconds` is its last step time. A restarted worker that asks again is told the
        same again.
        """
        if rank in self.told and self.told[rank][0] == done:
            return self.told[rank][1]
        if seconds > 0 and rank in self.group:  # a newcomer has made no step; one that says so lies
            known = self.seconds.get(rank, seconds)
            self.seconds[rank] = known + SMOOTHING * (seconds - known)
            self.untimed.discard(rank)
        self.reports += 1
        if self.reports >= self.due and self.seconds and not self.untimed and not self.lagging:
            self._look()
        answer = self._verdict(now, rank), self.number
        self.told[rank] = done, answer
        return answer

    def gone(self, rank: int) -> None:
        """Forgets a worker that takes no further part."""
        for known in (self.group, self.round, self.seconds, self.target, self.told):
            known.pop(rank, None)
        self.untimed.discard(rank)
        self.lagging.discard(rank)

    def came(self, rank: int) -> None:
        """Begins anew with a worker: its machine may be another one."""
        self.gone(rank)

    def _verdict(self, now: float, rank: int) -> tuple[int, ...]:
        """Returns the members that `rank` meets from its next push on, () for the same; see the table above."""
        if rank not in self.group:
            self.group[rank], self.round[rank] = _Group(self.number), 0
            return self._explain(now, rank, (rank,), "its speed is not known yet")
        group = self.group[rank]
        self.round[rank] += 1
        # The group stays for this round; `asked` makes sure that it does so for all members that ask later.
        if group.moves_at is None or self.round[rank] < group.moves_at:
            group.asked = max(group.asked, self.round[rank])
            if group.number == self.number:
                self.lagging.discard(rank)
            return ()
        members, self.group[rank] = self.target.pop(rank)
        self.round[rank] = 0
        return self._explain(now, rank, members, self.why)

    def _look(self) -> None:
        """Compares the groups there are with the best grouping by the present speeds, and moves if
        that is enough better.
        """
        self.reports, self.due = 0, self.scheme.regroup * len(self.group)
        present: dict[_Group, list[int]] = {}
        for rank in sorted(self.seconds):
            present.setdefault(self.group[rank], []).append(rank)
        there = tuple(map(tuple, present.values()))
        found = groups_by_speed(self.seconds, self.scheme.ratio)
        if why := self._better(found, there):
            self.why = why
            self._move(present, found)

    def _better(self, found: Groups, there: Groups) -> str:
        """Returns why `found` is worth moving to from the groups that are `there`; "" when it is not."""
        ratio, hysteresis = self.scheme.ratio, self.scheme.hysteresis
        after = score(found, self.seconds, ratio)
        # Groups that exist are held to a smaller ratio than new ones: speeds at the border must not make and unmake a
        # group again and again.
        before = score(there, self.seconds, ratio ** (1 - hysteresis))
        if after > before + hysteresis:
            return f"{len(found)} groups by speed have a silhouette of {after:.2f}, those before {before:.2f}"
        # Among many workers a silhouette hardly changes when one of them does, but its whole group waits for it.
        rounds, shorter = rounds_of(there, self.seconds), rounds_of(found, self.seconds)
        rank = max(rounds, key=lambda rank: rounds[rank] / shorter[rank])
        if rounds[rank] > shorter[rank] * ratio * (1 + hysteresis):
            return f"a round of worker {rank} takes {rounds[rank]:.3g} s, and {shorter[rank]:.3g} s in another group"
        return ""

    def _move(self, present: dict[_Group, list[int]], found: Groups) -> None:
        """Gives each rank whose group changes its target.

        A group moves at the round after the last that was asked about.
        """
        self.number += 1
        there = {tuple(ranks): group for group, ranks in present.items()}
        for members in found:
            if members in there:
                there[members].number = self.number
                continue
            group = _Group(self.number)
            for rank in members:
                self.target[rank] = members, group
                self.group[rank].moves_at = self.group[rank].asked + 1
        self.lagging = set(self.target)

    def _explain(self, now: float, rank: int, members: tuple[int, ...], reason: str) -> tuple[int, ...]:
        """Records a decision and its reason; returns the group's members."""
        if self.note:
            verdict = "group " + ",".join(map(str, members[:8])) + (",..." if len(members) > 8 else "")
            self.note(Decided(at=now, party="coordinator", rank=rank, verdict=verdict, reason=reason))
        return members


class GroupedWorker(ClockedWorker):
    """Asks the coordinator, while it computes, whom to meet with the result."""

    goes_back = False  # the coordinator would have to go back to the groups of that time, too
    servers_count = False  # the coordinator counts exchanges, too
    transient = ("seconds",)
    seconds = 0.0

    def run(self) -> Generator[Effect, Any, None]:
        """Asks the coordinator whom to meet while it computes, so the answer costs no time."""
        if self.pushed is None:
            self.took((yield Call(SERVERS, Pull())))
        while True:
            if self.pushed is None:
                ticket = yield Start(Call(COORDINATOR, Timed(done=self.clock, seconds=self.seconds)))
                c = yield Compute(self.let_go(), self.steps)
                self.pushed = self.meeting(c, (yield Wait(ticket)))
            self.met((yield Call(SERVERS, self.pushed, STREAMS)))

    def meeting(self, c: Computed, to: Grouped) -> Push:
        """Returns what is pushed: the gradient, and with it a move where the coordinator names a new group."""
        self.seconds = c.seconds / self.steps
        if not to.group:
            return self.made(c)
        return Move(g=c.g, clock=self.clock + 1, samples=c.samples, data=c.data, group=to.group, number=to.number)


class GroupedServer(ClockedServer):
    """Makes one round a group; a worker may move to another group with a push."""

    transient = ("rounds_of", "number", "named", "since", "left")

    def __init__(self, scheme: Any, place: RoleContext) -> None:
        super().__init__(scheme, place)
        self.rounds_of: dict[tuple[int, tuple[int, ...]], Round] = {}  # those of the last regrouping
        self.number = 0
        self.named = 0  # what the coordinator calls the regrouping that is `number` here
        self.since: dict[int, float] = {}  # of those who came back: no earlier regrouping meant them
        self.left: dict[int, Round] = {}  # by identity: rounds from which a member has moved, while others are in them

    def partition(self) -> Groups:
        """Returns the groups that the run begins with."""
        return first_groups(self.scheme, self.place)

    def on(self, now: float, src: int, message: Any) -> Iterable[Tell | Reply]:
        """Takes a Move, which puts the sender into its new group before its push is counted there.

        The members of a group move together. One that goes on in a group from which another one has moved has not told
        this server of its move, which only a liar does: its new group does not wait for it.
        """
        if not isinstance(message, Push) or src not in self.clocks:
            return super().on(now, src, message)
        before = self.rounds[src]
        stays = not isinstance(message, Move) and id(before) not in self.left
        if stays or self._clock(src, message.clock) <= self.clocks[src]:
            return super().on(now, src, message)
        if isinstance(message, Move):
            self._join(src, message.group, message.number)
            if before is not self.rounds[src]:
                self.left[id(before)] = before
        return itertools.chain(super().on(now, src, message), self._go_on_without(now, src, before))

    def _go_on_without(self, now: float, src: int, before: Round) -> Iterator[Reply]:
        """`src` has joined one group: no other one waits for it.

        Other groups are those that were to have it, as their members say, and the one `before`. A worker moves when a
        round is over, but one that repeats a clock at a single server has done no part of that round there.
        """
        closed = False
        for group in (before, *self.rounds_of.values()):
            if src in group.members and group is not self.rounds.get(src):
                group.members.discard(src)
                if group.came and self.enough(group):
                    self._close(now, group)
                    closed = True
        if closed:
            yield from self._release(now, self.waiting, together=True)

    def _join(self, src: int, group: tuple[int, ...], number: int) -> None:
        """Puts `src` into `group` of regrouping `number`, and makes the group's round if it is the first to name it.

        A new round expects only those members that are here, that the regrouping meant, and that joined no other group.
        """
        # Everybody has joined its group of the regrouping before. The coordinator's numbers leave out regroupings in
        # which nobody moved, and a worker may claim any number. So what is counted here is that the number changes.
        if number > self.number and number != self.named:
            self.named, self.rounds_of = number, {}
            self.number += 1
            self.left = {at: group for at, group in self.left.items() if group.members}
        if number == self.named:
            number = self.number
        if self.since.get(src) == math.inf:
            self.since[src] = number
        if (number, group) not in self.rounds_of:
            joined = self.rounds_of.values()
            elsewhere = {rank for round in joined for rank in round.members if self.rounds.get(rank) is round}
            here = [
                rank
                for rank in group
                if rank in self.clocks and self.since.get(rank, -1) < number and rank not in elsewhere
            ]
            self.rounds_of[number, group] = Round(here)
        self.rounds[src] = self.homes[src] = self.rounds_of[number, group]
        self.rounds[src].members.add(src)

    def on_worker_left(self, now: float, rank: int) -> Iterator[Tell | Reply]:
        """Takes the worker out of the group that it was told to join, besides its present one."""
        for group in self.rounds_of.values():  # one that it was told to join, and has not yet
            if rank in group.members and group is not self.rounds.get(rank):
                group.members.discard(rank)
                if group.came and self.enough(group):
                    self._close(now, group)
        yield from super().on_worker_left(now, rank)

    def on_worker_joined(self, now: float, rank: int) -> Iterator[Tell | Reply]:
        """Lets a newcomer begin alone, unless groups are written down."""
        if not self.scheme.written() and self.scheme.regroup:
            self.homes.pop(rank, None)  # it begins alone, until the coordinator knows its speed
            self.since[rank] = math.inf
        yield from super().on_worker_joined(now, rank)


class GroupingCoordinator(Role):
    """Tells every worker whom to meet next."""

    def __init__(self, scheme: Any, place: RoleContext) -> None:
        super().__init__(scheme, place)
        self.regrouper = Regrouper(scheme, place)

    def on(self, now: float, src: int, message: Any) -> Iterator[Tell | Reply]:
        """Answers a worker's step time with its group, which may be a new one."""
        match message:
            case Timed(done=done, seconds=seconds):
                group, number = self.regrouper.report(now, src, done, seconds)
                yield Reply(src, Grouped(group=group, number=number))
            case _:
                yield from super().on(now, src, message)

    def on_worker_left(self, now: float, rank: int) -> Iterator[Tell | Reply]:
        self.regrouper.gone(rank)
        yield from ()

    def on_worker_joined(self, now: float, rank: int) -> Iterator[Tell | Reply]:
        self.regrouper.came(rank)
        yield from ()
