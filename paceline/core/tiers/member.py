"""A worker as one member of its group: it asks who speaks, and takes part by the inner scheme's role.

What the inner role has for servers or a coordinator, and its means, go to the speaker (`group_server.py`).

    state                 input                              next
    NO SPEAKER            the coordinator's answer           FOLLOWS it, or SPEAKS (`worker.py`)
    NO SPEAKER            it names one that has gone since   NO SPEAKER: it asks again
    FOLLOWS               the speaker is lost                NO SPEAKER; the group's next term begins with new roles
    FOLLOWS, averaging    as many exchanges as were asked    enters again, for the next weights
    any                   restarted                          goes on where it is
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from typing import Any, ClassVar

from paceline.core.collective.mean_server import Part
from paceline.core.effects import COORDINATOR, Call, Compute, Effect, Mean, Reply, Start, Tell, Train
from paceline.core.errors import PeerLost
from paceline.core.role import NO_WORK, GradientCheck, Role, RoleContext, WorkCount, found_under
from paceline.core.tiers.held_work import HeldWork
from paceline.core.tiers.messages import EnterGroup, GroupBegin, GroupExchanged, RoundBegin, Speaker, WhoSpeaks
from paceline.core.trace import LostWork

INNER = "inner"
"""Stands in a checkpoint before the names of what the role inside keeps."""


class TermOver(Exception):  # noqa: N818  a state, not a fault
    """The speaker that a member follows is lost, or this worker, which speaks, was declared lost."""


class GroupMember(Role):
    """Takes part in its group. `averages`: members average among themselves, instead of pushing to a server.

    number: its place in the group, by which the inner scheme knows it. cast: the number of that in which `inner` was
    made. round: under way. turn: the last that was finished. resumed: what roles inside, which are not made yet, go on
    from.
    """

    averages: ClassVar[bool] = False
    transient: ClassVar[tuple[str, ...]] = (
        *("map", "group", "ranks", "number", "speaker", "away", "gone_meanwhile", "term", "lost_speaker", "resumed"),
        *("inner", "round", "cast", "turn", "began_at", "samples_before", "held", "noticed_at"),
    )

    def __init__(self, scheme: Any, place: RoleContext) -> None:
        super().__init__(scheme, place)
        self.held = HeldWork()
        self.noticed_at = 0.0  # when this worker last learned of a change of membership
        self.map = scheme.rank_groups(place)
        self.group: int = self.map.group_of[self.me]
        self.ranks: tuple[int, ...] = self.map.groups[self.group]
        self.number: int = self.map.number_of[self.me]
        self.speaker: Speaker | None = None
        self.away: set[int] = set()
        self.gone_meanwhile: set[int] = set()  # who has left or was lost since this worker asked who speaks
        self.term = 0
        self.resumed: dict[str, Any] = {}
        self.begin_term()

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.resumed = dict(state)

    def goes_on(self, role: Role, head: str) -> Role:
        """Lets a role inside, which has just been made, go on from what was kept of it, if anything was."""
        state = found_under(head, self.resumed)
        self.resumed = {name: value for name, value in self.resumed.items() if not name.startswith(f"{head}.")}
        if state:
            role.load_state(state)
        return role

    def begin_term(self) -> None:
        """Forgets what belonged to the last speaker's term."""
        self.lost_speaker = False
        self.inner: Role | None = None
        self.round: RoundBegin | None = None
        self.cast = self.turn = 0
        self.began_at = self.samples_before = 0

    def run(self) -> Generator[Effect, Any, None]:
        while True:
            if self.speaker is None:
                self.gone_meanwhile = set()
                found: Speaker = yield Call(COORDINATOR, WhoSpeaks(after=self.term))
                if found.rank in self.gone_meanwhile:
                    continue  # it may name the incarnation that is gone: the next answer knows of that
                self.begin_term()
                self.speaker, self.term = found, found.term
            with contextlib.suppress(TermOver):
                yield from self.speak() if self.speaker.rank == self.me else self.follow()
            self.lose_held_work(self.speaker.rank)
            self.speaker, self.resumed = None, {}

    def lose_held_work(self, speaker: int) -> None:
        """Notes that what this worker has trained since the last exchange of its group is lost with its speaker."""
        lost = self.held.lose()
        if lost.samples and self.note:
            self.note(
                LostWork(
                    at=self.noticed_at,
                    party=f"worker {speaker}",
                    rank=self.me,
                    steps=lost.steps,
                    samples=lost.samples,
                    group=self.group,
                )
            )

    def speak(self) -> Generator[Effect, Any, None]:
        """Speaks for the group, until the run is over."""
        raise NotImplementedError

    def follow(self) -> Generator[Effect, Any, None]:
        """Takes part under a speaker: runs the inner role, whose server is the speaker's.

        The whole loop is here, since each further generator is entered at each effect. Raises TermOver when the speaker
        is lost.
        """
        try:
            while self.averages:
                yield from self.average()
            if self.inner is None:
                begin: GroupBegin = yield self.to_speaker(EnterGroup(turn=self.turn))
                self.member(self.scheme.inner_for(begin.steps))
                self.w = None
            assert self.inner is not None
            run, value = self.inner.run(), None
            with contextlib.closing(run):
                while True:
                    value = self.held.trained((yield self.within(run.send(value))))
        except PeerLost:
            raise TermOver from None

    def last_exchange(self, *, soon: bool = False) -> Generator[Effect, Any, None]:
        """Hands over what this member has, to the speaker that it follows."""
        if self.inner is None or self.speaker is None:
            return
        rest, value = self.inner.last_exchange(soon=soon), None
        try:
            while True:
                value = yield self.within(rest.send(value))
        except (StopIteration, TermOver, PeerLost):
            return

    def on_worker_left(self, now: float, rank: int) -> Iterator[Tell | Reply]:
        """Follows a lost speaker no further, also if its next incarnation is there before this worker calls it."""
        self.away.add(rank)
        self.gone_meanwhile.add(rank)
        self.noticed_at = now
        if self.speaker is not None and rank == self.speaker.rank:
            self.lost_speaker = True
        yield from ()

    def on_worker_joined(self, now: float, rank: int) -> Iterator[Tell | Reply]:
        self.away.discard(rank)
        yield from ()

    def join_state(self) -> dict[str, Any]:
        return {"away": sorted(self.away)}

    def load_join_state(self, shown: Mapping[str, Any]) -> None:
        """A newcomer takes over who is away; all else of its group it hears from the speaker."""
        self.away = set(shown["away"]) - {self.me}

    def member(self, scheme: Any, cast: Iterable[int] = (), w: Any = None) -> Role:
        """Returns this member's role in the inner scheme; a new one if it has none. `cast`: all of the group if ()."""
        if self.inner is None:
            self.inner = self.goes_on(scheme.worker(1)(scheme, self.of_group(self.number, tuple(cast), w)), INNER)
        return self.inner

    def of_group(self, me: int, workers: tuple[int, ...] = (), w: Any = None) -> RoleContext:
        """Returns the context of an inner role; `workers`: all of the group if ()."""
        measured = self.place.seconds_per_step
        seconds = tuple(measured[rank] for rank in self.ranks) if measured else ()
        workers = workers or tuple(range(len(self.ranks)))
        gate = None if self.place.gate is None else _CheckByNumber(self.place.gate, self.ranks)
        counts = self.place.refuses
        refuses = None if counts is None else lambda number, why: counts(self.ranks[number], why)
        return dataclasses.replace(
            self.place, me=me, workers=workers, w=w, note=None, gate=gate, seconds_per_step=seconds, refuses=refuses
        )

    def average(self) -> Generator[Effect, Any, Role]:
        """Makes one round by averages with the others; returns the inner role, which has the weights after it.

        A restarted worker goes on with the round that it is in, for which others may wait.
        """
        if self.round is None:
            begin: RoundBegin = yield self.to_speaker(EnterGroup(turn=self.turn))
            self.held.exchanged()  # the group begins a round when an exchange has the one before
            if begin.casts != self.cast:
                self.inner, self.cast = None, begin.casts
            role = self.member(self.scheme.inner_scheme, begin.cast, begin.w)
            self.round, role.w, self.w = begin, begin.w, None
            self.began_at, self.samples_before = exchanges(role), role.samples_seen
        assert self.inner is not None
        role, until, turn = self.inner, self.began_at + self.round.steps, self.round.turn
        run, value = role.run(), None
        with contextlib.closing(run):
            while True:
                effect = run.send(value)
                if exchanges(role) >= until:
                    break
                value = self.held.trained((yield self.within(effect)))
        self.round, self.turn = None, turn
        return role

    def notify_exchanged(self, clocks: Mapping[int, int]) -> Iterator[Tell]:
        """Notifies members that an exchange between groups has their contributions up to these numbers."""
        for number, clock in clocks.items():
            rank = self.ranks[number]
            if rank == self.me:
                self.held.exchanged(clock)
            elif clock and rank not in self.away:
                with contextlib.suppress(PeerLost):
                    yield Tell(rank, GroupExchanged(clock=clock))

    def exchange_has(self, src: int, clock: int) -> None:
        """Takes the speaker's word that an exchange between groups has this member's contributions up to `clock`."""
        if self.speaker is not None and src == self.speaker.rank:
            self.held.exchanged(clock)

    def held_work(self) -> WorkCount:
        return self.held.total

    def held_alone(self) -> WorkCount:
        return self.held.total if self.speaker is not None and self.speaker.rank == self.me else NO_WORK

    def lost_work(self) -> WorkCount:
        return self.held.lost

    def to_speaker(self, message: Any) -> Call:
        """Returns a call to the speaker. Raises TermOver if that is lost."""
        assert self.speaker is not None
        if self.lost_speaker:
            raise TermOver
        return Call(self.speaker.rank, message)

    def within(self, effect: Effect) -> Effect:
        """Returns an effect of the inner role as the group carries it out. Raises TermOver if the speaker is lost."""
        assert self.speaker is not None
        if self.lost_speaker:
            raise TermOver
        match effect:
            case Call(message=message):
                self.held.handed_over(getattr(message, "clock", 0))
                return Call(self.speaker.rank, message)
            case Tell(message=message):
                return Tell(self.speaker.rank, message)
            case Mean():
                return Call(self.speaker.rank, Part.of(effect))
            case Start(effect=Call() | Mean() as started):
                inside = self.within(started)
                assert isinstance(inside, Call)
                return Start(inside)
            case Train(steps=steps):
                self.held.begin(steps)
            case Compute(w=w, steps=steps, samples=samples):
                self.held.begin(steps)
                return Compute(w, steps, samples)  # not streaming: a speaker looks at its own gradient, too
        return effect


def exchanges(role: Role) -> int:
    """Returns how many exchanges an inner role has finished: the first thing that it has in common with the others."""
    return int(getattr(role, role.common[0]))


class _CheckByNumber:
    """Checks what members send, who are known by their numbers in the group, by rank."""

    def __init__(self, gate: GradientCheck, ranks: tuple[int, ...]) -> None:
        self.gate, self.ranks = gate, ranks

    def push(self, now: float, rank: int, v: Any, onto: Any = None, waiting: Collection[int] = ()) -> str | None:
        return self.gate.push(now, self.ranks[rank], v, onto, [self.ranks[other] for other in waiting])

    def part(self, now: float, rank: int, v: Any, onto: Any = None) -> str | None:
        return self.gate.part(now, self.ranks[rank], v, onto)

    def gone(self, rank: int) -> None:
        self.gate.gone(self.ranks[rank])

    def came(self, rank: int) -> None:
        self.gate.came(self.ranks[rank])
