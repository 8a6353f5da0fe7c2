"""Ends a phase where it suits all: before each exchange a worker asks the coordinator for permission to go on.

The question travels during the exchange before, so no worker waits for it. A phase ends between two exchanges, after
what has been handed over has been answered. `paceline.schemes.hybrid` ends its phases by it.

    phase (`Granting`)    a worker asks for an exchange                         answer
    runs                  no condition holds                                    go
    runs                  a condition holds                                     it is ending: `end` is the furthest
                                                                                exchange granted; answered as below
    ending                up to `end`, and workers meet                         go: all must come equally often
    ending                up to `end`, and it is at most one behind             go
    ending                it is further behind, and workers do not meet         no, it ends where it is
    ending                beyond `end`                                          no
    over                  (somebody was told no)                                as under ending
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Generator, Iterable
from typing import Any, ClassVar

from paceline.core.effects import COORDINATOR, SERVERS, Call, Compute, Effect, Mean, Start, Tell, Ticket, Train, Wait
from paceline.core.errors import ConfigError, PeerLost
from paceline.core.message import message
from paceline.core.phases.grammar import Condition
from paceline.core.phases.phase_role import Inner
from paceline.core.role import RoleContext
from paceline.core.validation import bounds


@message("leave.Entered")
class PhaseEntered:
    """Says that what the sender sends from now on belongs to `phase`.

    The coordinator and the servers answer whether that phase still lasts.
    """

    begins_anew: ClassVar[bool] = True

    phase: bounds.Count


@message("leave.GoOn")
class GoOn:
    """Asks for permission to begin exchange `number` of `phase`. Done in it so far: `steps` and `samples`.

    `meet`: the workers of this scheme wait for one another, so all must come equally often.
    """

    phase: bounds.Count
    number: bounds.ExchangeNumber
    steps: bounds.Count
    samples: bounds.Count
    meet: bool


@message("leave.Answer")
class Answer:
    """Answers PhaseEntered and GoOn: `go` is True if the worker may go on with the phase."""

    go: bool


AGAIN_MAX = 16
"""A restarted worker asks again for the same exchange. One that does so more often is told no, so the phase ends."""


class PermissionToGoOn(Inner):
    """Runs a worker's role of the phase as it is, but asks for permission before the work of an exchange."""

    transient: ClassVar[tuple[str, ...]] = ("now", "entered", "granted", "steps", "samples", "exchanges")
    servers: int  # 0 where there are none
    now = 0.0  # when the last message came

    def __init__(self, scheme: Any, place: RoleContext) -> None:
        self.enter()
        super().__init__(scheme, place)

    def enter(self) -> None:
        """Resets what is counted by phase, when a phase begins."""
        self.entered = False  # everybody concerned knows that this worker is in the phase
        self.granted = -1  # the exchange that this worker may be at
        self.steps = self.samples = self.exchanges = 0  # in this phase

    def go_on(self) -> Generator[Effect, Any, None]:
        """Runs the phase's role, and returns when the coordinator says that the phase ends.

        It resumes the role with the results of its effects. Before a Compute or Train of a new exchange it takes the
        answer to the question that was sent during the last one.
        """
        if not (self.entered or (yield from self.tell())):
            return
        box = self.inner.run()
        value: Any = None
        lost: PeerLost | None = None
        asked: tuple[int, Ticket] | None = None  # for the next exchange, while this one is under way
        open_tickets: list[Ticket] = []
        while True:
            effect = box.throw(lost) if lost else box.send(value)
            if isinstance(effect, Compute | Train):
                here = self.number()
                if here != self.granted:
                    ahead = asked is not None and asked[0] == here
                    answer = yield Wait(asked[1]) if asked and ahead else self.ask(here)
                    asked = None
                    if not answer.go:
                        break
                    self.granted = here
            try:
                value, lost = (yield self.tagged(effect)), None
            except PeerLost as error:  # the role decides: it is raised at its `yield`
                lost = error
            match effect:
                case Start() if not lost:
                    open_tickets.append(value)
                case Wait(ticket):
                    open_tickets.remove(ticket)
                case Compute() | Train():
                    self.steps += effect.steps
                    self.samples += value.samples
                    if asked is None and self.phase + 1 < len(self.scheme.schemes):
                        asked = self.granted + 1, (yield Start(self.ask(self.granted + 1)))
        box.close()
        yield from self.carry_out(self.inner.last_exchange(), open_tickets)
        yield from self.inner.finish(self.now)
        for ticket in open_tickets:
            with contextlib.suppress(PeerLost):
                yield Wait(ticket)

    def last_exchange(self, *, soon: bool = False) -> Generator[Effect, Any, None]:
        yield from self.carry_out(self.inner.last_exchange(soon=soon), [])

    def carry_out(self, last: Generator[Effect, Any, None], open_tickets: list[Ticket]) -> Generator[Effect, Any, None]:
        """Carries out the effects of the last exchange of the phase's role, which ends some of the `open_tickets`."""
        value: Any = None
        lost: PeerLost | None = None
        while True:
            try:
                effect = last.throw(lost) if lost else last.send(value)
            except StopIteration:
                return
            try:
                value, lost = (yield self.tagged(effect)), None
            except PeerLost as error:
                lost = error
            if isinstance(effect, Wait) and effect.ticket in open_tickets:
                open_tickets.remove(effect.ticket)

    def tell(self) -> Generator[Effect, Any, bool]:
        """Tells all parties concerned that this worker is in the phase now. Returns True if the phase still lasts."""
        entered = PhaseEntered(phase=self.phase)
        lasts: bool = (yield Call(COORDINATOR, entered)).go
        if lasts and self.servers:
            lasts = (yield Call(SERVERS, entered)).go
        peers = self.workers if self.scheme.schemes[self.phase].needs_peers else ()
        for rank in peers:
            if rank != self.me and rank not in self.left:
                with contextlib.suppress(PeerLost):
                    yield Tell(rank, entered)
        self.entered = lasts
        return lasts

    def tagged(self, effect: Effect) -> Effect:
        """Puts the phase in front of a mean's tag: a later phase may have the same scheme again, with the same tags."""
        match effect:
            case Mean(tag=tag):
                return dataclasses.replace(effect, tag=f"{self.phase}/{tag}")
            case Start(effect=Mean(tag=tag) as mean):
                return Start(dataclasses.replace(mean, tag=f"{self.phase}/{tag}"))
        return effect

    def number(self) -> int:
        """Returns the number of the exchange that the next work is for.

        If the scheme has a count that all workers share, that one is used: it survives a restart of the worker.
        """
        if self.inner.common:
            return int(getattr(self.inner, self.inner.common[0]))
        self.exchanges += 1
        return self.exchanges

    def ask(self, number: int) -> Call:
        """Returns the question whether this worker may begin exchange `number`."""
        meet = self.scheme.schemes[self.phase].in_step(self.servers)
        question = GoOn(phase=self.phase, number=number, steps=self.steps, samples=self.samples, meet=meet)
        return Call(COORDINATOR, question)


class Granting:
    """Holds the coordinator's side of one phase, which began at `began` and ends when a condition in `until` holds.

    epoch_samples: 0 where that is not known.
    """

    def __init__(self, began: float, until: Iterable[Condition], epoch_samples: int, workers: Iterable[int]) -> None:
        self.began, self.until, self.epoch_samples = began, until, epoch_samples
        self.accuracy = 0.0
        self.end: int | None = None  # the last exchange of this phase, once that is known
        self.why = ""
        self.refused = False
        self.again: Counter[int] = Counter()  # how often each asked again for an exchange, at the end
        self.told: dict[int, GoOn] = {}  # the newest question of each
        self.granted = dict.fromkeys(workers, -1)  # the furthest exchange that each may be at
        self.first: dict[int, int] = {}  # the exchange that each asked for first, in its present incarnation
        self.samples = 0  # done in this phase by all, whoever has left since
        self.steps: Counter[int] = Counter()  # the same, by how many took part at that time

    def drop(self, rank: int) -> None:
        """Forgets `rank`, which has left; what it has done still counts."""
        self.granted[rank] = -1
        self.told.pop(rank, None)
        self.first.pop(rank, None)

    @property
    def is_over(self) -> bool:
        """Returns True if anybody has been told that this phase ends. Nobody can be in the next phase before."""
        return self.refused

    def may_go_on(self, now: float, src: int, asked: GoOn, members: int) -> bool:
        """Returns True if `src` may begin the exchange that it asked for. `members`: how many workers take part now."""
        self._count(src, asked, members)
        meet = sum(told.meet for told in self.told.values()) * 2 > len(self.told)  # as most of them say
        number = max(asked.number, self.granted[src])
        if self.end is None:
            self.why = self.over(now, members)
            if self.why:
                self.end = max(self.granted.values())
        if self.end is not None:
            # Where workers do not meet, one that is far behind ends where it is: nobody waits for it.
            together = meet or self.granted[src] >= self.end - 1
            self.again[src] += number == self.granted[src]
            if number > (self.end if together else self.granted[src]) or self.again[src] > AGAIN_MAX:
                self.refused = True
                return False
        self.granted[src] = number
        return True

    def _count(self, src: int, asked: GoOn, members: int) -> None:
        """Counts what is new in a question; an older question may arrive late."""
        before = self.told.get(src)
        self.first.setdefault(src, asked.number)
        self.steps[members] += max(0, asked.steps - (before.steps if before else 0))
        self.samples += max(0, asked.samples - (before.samples if before else 0))
        if before is None or asked.steps >= before.steps:
            self.told[src] = asked

    def over(self, now: float, members: int) -> str:
        """Returns which condition of the phase holds, if any."""
        for unit, amount in self.until:
            match unit:
                case "steps" if self.average_steps(members) >= amount:
                    return f"{amount:g} steps are done"
                case "seconds" if now - self.began >= amount:
                    return f"{amount:g} seconds have passed"
                case "epochs" if self.samples >= amount * self._epoch():
                    return f"{amount:g} epochs are done"
                case "accuracy" if self.accuracy >= amount:
                    return f"the accuracy is {self.accuracy:.3f}"
        return ""

    def average_steps(self, members: int) -> float:
        """Returns the steps of an average worker, once the exchanges that were granted are over.

        A step counts as one part in as many workers as took part when it was made, so leaving and joining take nothing
        back.
        """
        done = Counter(self.steps)
        done[members] += sum(map(self._under_way, self.told))  # type: ignore[assignment]  # not whole where it is a guess
        return sum(steps / at_that_time for at_that_time, steps in done.items())

    def _under_way(self, rank: int) -> float:
        """Returns the steps of exchanges that were granted but not reported yet: as many as in those
        before, on average.
        """
        told = self.told[rank]
        over = told.number - self.first[rank]
        return (self.granted[rank] - told.number + 1) * (told.steps / over if over > 0 else 1)

    def _epoch(self) -> int:
        """Returns the samples of an epoch. Raises ConfigError where they are not known."""
        if not self.epoch_samples:
            raise ConfigError(
                "hybrid: the number of samples of an epoch is not known here: give --hybrid.epoch-samples"
            )
        return self.epoch_samples
