"""One member's part in a schedule: knows nothing of who brings its pieces, nor of what the numbers are.

What travels is the mean so far and its weight: two of them, m1 of weight w1 and m2 of weight w2, make
m1 + w2 / (w1 + w2) (m2 - m1) of weight w1 + w2. So nothing is scaled beforehand and nothing divided afterwards, every
sum costs one pass, and a member of weight zero changes no bit of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from paceline.core.collective.schedule import Schedule, Send


class Arithmetic(Protocol):
    """What is done with numbers. `into` may be the memory of `mine`, never that of `theirs`."""

    def blend(self, mine: Any, theirs: Any, share: float, into: Any) -> None:
        """`into` <- mine + share (theirs - mine)."""

    def copy(self, v: Any, into: Any) -> None:
        """`into` <- v."""


@dataclass(frozen=True, slots=True)
class OutgoingPiece:
    """To be sent to member `dst`: the pieces of its receive in `step`, a mean of weight `weight` so far."""

    dst: int
    step: int
    v: Any
    weight: float


class ScheduleExecution:
    """Averages `v`, of weight `weight`, into `out`, which is as long: what `begin` and `take` give is to be sent.

    Pieces may come in any order; they are taken in in that of the schedule, so the same numbers give the same mean,
    bit for bit, and all members get the same. `v` is read only. `out` is written while earlier values of it may still
    be on their way to others; those have read them by then, because what is written comes from what they read.
    """

    def __init__(self, schedule: Schedule, me: int, v: Any, weight: float, out: Any, arithmetic: Arithmetic) -> None:
        self._tasks = schedule.tasks[me]
        self._edges = schedule.edges(len(v))
        self._v, self._out, self._arithmetic = v, out, arithmetic
        self._weights = [weight] * schedule.pieces
        self._written = [False] * schedule.pieces
        self._early: dict[tuple[int, int], tuple[Any, float]] = {}
        self._taken = 0
        self._where = {(r.step, r.src): self._slice(r.first, r.stop) for r in self._tasks.receives}
        self._copied = {(r.step, r.src) for r in self._tasks.receives if not r.reduce}

    @property
    def done(self) -> bool:
        """Is all of `out` the mean? Everything has been handed out to be sent then, too."""
        return self._taken == len(self._tasks.receives)

    @property
    def weight(self) -> float:
        """Sum of the members' weights, once `done`."""
        return self._weights[0]

    def begin(self) -> Iterator[OutgoingPiece]:
        """Comes before any `take`."""
        return map(self._outgoing, self._tasks.sends[0])

    def take(self, step: int, src: int, v: Any, weight: float) -> Iterator[OutgoingPiece]:
        """Pieces from member `src`. Raises ValueError for what is not of this schedule, or of another length."""
        where = self._where.get((step, src))
        if where is None or len(v) != where.stop - where.start:
            raise ValueError(f"member {src} sent {len(v)} numbers in step {step}")
        self._early[step, src] = v, weight
        yield from self._go_on()

    def room(self, step: int, src: int) -> Any | None:
        """Where the pieces of that receive may be written at once, because nothing else is done with them."""
        return self._out[self._where[step, src]] if (step, src) in self._copied else None

    def _go_on(self) -> Iterator[OutgoingPiece]:
        receives = self._tasks.receives
        while self._taken < len(receives):
            task = receives[self._taken]
            came = self._early.pop((task.step, task.src), None)
            if came is None:
                return
            self._take_in(task.first, task.stop, *came, reduce=task.reduce)
            self._taken += 1
            yield from map(self._outgoing, self._tasks.sends[self._taken])

    def _take_in(self, first: int, stop: int, v: Any, weight: float, *, reduce: bool) -> None:
        where, both = self._slice(first, stop), weight
        mine = self._weights[first] if reduce else weight * 0
        if not mine:
            self._arithmetic.copy(v, self._out[where])
        elif weight:
            both += mine
            self._arithmetic.blend(self._now(first, stop), v, weight / both, self._out[where])
        else:
            both = mine
            if not self._written[first]:
                self._arithmetic.copy(self._v[where], self._out[where])
        self._weights[first:stop] = [both] * (stop - first)
        self._written[first:stop] = [True] * (stop - first)

    def _outgoing(self, send: Send) -> OutgoingPiece:
        return OutgoingPiece(send.dst, send.step, self._now(send.first, send.stop), self._weights[send.first])

    def _now(self, first: int, stop: int) -> Any:
        return (self._out if self._written[first] else self._v)[self._slice(first, stop)]

    def _slice(self, first: int, stop: int) -> slice:
        return slice(self._edges[first], self._edges[stop])
