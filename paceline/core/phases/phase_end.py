"""Leave to go on: before each exchange a worker asks the coordinator, who ends a phase where it suits all.

The question travels during the exchange before, so no worker waits for it. A phase ends between two exchanges, after
what has been handed over has been answered. What `paceline.schemes.hybrid` ends its phases by.
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
    """What I say from now on belongs to `phase`. The coordinator and the servers answer whether that still lasts."""

    begins_anew: ClassVar[bool] = True

    phase: bounds.Count


@message("leave.GoOn")
class GoOn:
    """May I begin exchange `number` of `phase`? Done in it so far: `steps` and `samples`.

    `meet`: its workers wait for one another, so that all must come as often.
    """

    phase: bounds.Count
    number: bounds.ExchangeNumber
    steps: bounds.Count
    samples: bounds.Count
    meet: bool


@message("leave.Answer")
class Answer:
    go: bool


AGAIN_MAX = 16
"""A worker that was restarted asks again for the same exchange. Whoever does so for ever would never end its phase."""


class PermissionToGoOn(Inner):
    """A worker: the box of the phase as it is, but before the work of an exchange it needs leave."""

    servers: int  # 0 where there are none
    now = 0.0  # when the last message came

    def __init__(self, scheme: Any, place: RoleContext) -> None:
        self.enter()
        super().__init__(scheme, place)

    def enter(self) -> None:
        """A phase begins."""
        self.entered = False  # does everybody know?
        self.granted = -1  # the exchange that this worker may be at
        self.steps = self.samples = self.exchanges = 0  # in this phase

    def go_on(self) -> Generator[Effect, Any, None]:
        """Until the answer is no."""
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
            except PeerLost as error:  # the box knows what to do
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
        yield from self.inner.finish(self.now)
        for ticket in open_tickets:
            with contextlib.suppress(PeerLost):
                yield Wait(ticket)

    def tell(self) -> Generator[Effect, Any, bool]:
        """Everybody whom it concerns that this worker is in the phase now. Does that still last?"""
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
        """The same scheme may come again in a later phase, and its tags with it."""
        match effect:
            case Mean(tag=tag):
                return dataclasses.replace(effect, tag=f"{self.phase}/{tag}")
            case Start(effect=Mean(tag=tag) as mean):
                return Start(dataclasses.replace(mean, tag=f"{self.phase}/{tag}"))
        return effect

    def number(self) -> int:
        """Of the exchange that the next work is for; what all workers count alike survives a restart."""
        if self.inner.common:
            return int(getattr(self.inner, self.inner.common[0]))
        self.exchanges += 1
        return self.exchanges

    def ask(self, number: int) -> Call:
        meet = self.scheme.schemes[self.phase].in_step(self.servers)
        question = GoOn(phase=self.phase, number=number, steps=self.steps, samples=self.samples, meet=meet)
        return Call(COORDINATOR, question)


class Granting:
    """The coordinator's side of one phase, which began at `began` and ends when one of the conditions `until` holds."""

    def __init__(self, began: float, until: Iterable[Condition], epoch_samples: int, workers: Iterable[int]) -> None:
        self.began, self.until, self.epoch_samples = began, until, epoch_samples
        self.accuracy = 0.0
        self.end: int | None = None  # the last exchange of this phase, once that is known
        self.why = ""
        self.refused = False
        self.again: Counter[int] = Counter()  # who asks for an exchange again, at the end
        self.told: dict[int, GoOn] = {}
        self.granted = dict.fromkeys(workers, -1)
        self.first: dict[int, int] = {}  # the exchange that each asked for first, in its present incarnation
        self.samples = 0  # done in this phase by all, whoever has left since
        self.steps: Counter[int] = Counter()  # the same, by how many took part at that time

    def drop(self, rank: int) -> None:
        self.granted[rank] = -1
        self.told.pop(rank, None)
        self.first.pop(rank, None)

    @property
    def is_over(self) -> bool:
        """Has anybody been told that this phase ends? Nobody can be in the next one before."""
        return self.refused

    def may_go_on(self, now: float, src: int, asked: GoOn, members: int) -> bool:
        """`members` take part."""
        self._count(src, asked, members)
        meet = sum(told.meet for told in self.told.values()) * 2 > len(self.told)  # as most of them say
        number = max(asked.number, self.granted[src])
        if self.end is None:
            self.why = self.over(now, members)
            if self.why:
                self.end = max(self.granted.values())
        if self.end is not None:
            # Where workers do not meet, the one that is far behind ends here.
            together = meet or self.granted[src] >= self.end - 1
            self.again[src] += number == self.granted[src]
            if number > (self.end if together else self.granted[src]) or self.again[src] > AGAIN_MAX:
                self.refused = True
                return False
        self.granted[src] = number
        return True

    def _count(self, src: int, asked: GoOn, members: int) -> None:
        """Only what is new: an older question may come late."""
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
        """Those of an average worker, once the exchanges that were granted are over.

        A step counts one part in as many as took part when it was done, so that leaving and coming take nothing back.
        """
        done = Counter(self.steps)
        done[members] += sum(map(self._under_way, self.told))  # type: ignore[assignment]  # not whole where it is a guess
        return sum(steps / at_that_time for at_that_time, steps in done.items())

    def _under_way(self, rank: int) -> float:
        """Steps of exchanges that were granted and not told of yet; so many as in those before."""
        told = self.told[rank]
        over = told.number - self.first[rank]
        return (self.granted[rank] - told.number + 1) * (told.steps / over if over > 0 else 1)

    def _epoch(self) -> int:
        if not self.epoch_samples:
            raise ConfigError("hybrid: how many samples an epoch has is not known here: give --hybrid.epoch-samples")
        return self.epoch_samples
