"""A member carries out its part of a schedule. It knows neither who brings its pieces nor what the numbers are.

What travels is the mean so far and its weight: two of them, m1 of weight w1 and m2 of weight w2, make m1 + w2 / (w1 +
w2) (m2 - m1) of weight w1 + w2. So nothing is scaled beforehand and nothing divided afterwards, every sum costs one
pass, and a member of weight zero changes no bit of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from paceline.core.collective.schedule import Schedule, Send


class Arithmetic(Protocol):
    """Does the arithmetic on numbers. `into` may be the memory of `mine`, never that of `theirs`."""

    def blend(self, mine: Any, theirs: Any, share: float, into: Any) -> None:
        """Writes `into` <- mine + share (theirs - mine)."""

    def copy(self, v: Any, into: Any) -> None:
        """Writes `into` <- v."""


@dataclass(frozen=True, slots=True)
class OutgoingPiece:
    """Has to be sent to member `dst`: the pieces of its receive in `step`, a mean of weight `weight` so far."""

    dst: int
    step: int
    v: Any
    weight: float


class ScheduleExecution:
    """Averages `v`, of weight `weight`, into `out`, which is as long. What `begin` and `take` yield has to be sent.

    Pieces may come in any order; they are taken in in the order of the schedule, so the same numbers give the same
    mean, bit for bit, and all members get the same. `v` is only read. `out` is written while earlier values of it may
    still be on their way to others. That is safe: what is written comes from members that have read those values by
    then.
    """

    def __init__(self, schedule: Schedule, me: int, v: Any, weight: float, out: Any, arithmetic: Arithmetic) -> None:
        self._tasks = schedule.tasks[me]
        self._edges = schedule.edges(len(v))
        self._v, self._out, self._arithmetic = v, out, arithmetic
        self._weights = [weight] * schedule.pieces
        self._written = [False] * schedule.pieces
        self._early: dict[tuple[int, int], tuple[Any, float]] = {}  # by step and sender: arrived, not taken in yet
        self._taken = 0  # receives taken in so far, in the order of the schedule
        self._where = {(r.step, r.src): self._slice(r.first, r.stop) for r in self._tasks.receives}
        self._copied = {(r.step, r.src) for r in self._tasks.receives if not r.reduce}

    @property
    def done(self) -> bool:
        """Returns True if all of `out` is the mean; by then everything has been yielded to be sent, too."""
        return self._taken == len(self._tasks.receives)

    @property
    def weight(self) -> float:
        """Returns the sum of the members' weights, once `done`."""
        return self._weights[0]

    def begin(self) -> Iterator[OutgoingPiece]:
        """Yields what can be sent before anything arrived; call it before any `take`."""
        return map(self._outgoing, self._tasks.sends[0])

    def take(self, step: int, src: int, v: Any, weight: float) -> Iterator[OutgoingPiece]:
        """Takes pieces that arrived from member `src`, and yields what can be sent because of them.

        Raises ValueError for pieces that this schedule does not bring here, or of another length.
        """
        where = self._where.get((step, src))
        if where is None or len(v) != where.stop - where.start:
            raise ValueError(f"member {src} sent {len(v)} numbers in step {step}")
        self._early[step, src] = v, weight
        yield from self._go_on()

    def room(self, step: int, src: int) -> Any | None:
        """Returns the part of `out` into which the pieces of that receive may be written at once, or None.

        There is one where nothing is added to what arrives.
        """
        return self._out[self._where[step, src]] if (step, src) in self._copied else None

    def _go_on(self) -> Iterator[OutgoingPiece]:
        """Takes pieces in the order of the schedule, as far as they have come, and yields what may leave then.

        A piece that came too early waits: sums are made in one order, so that all members get the same bits.
        """
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
        """Writes received pieces into `out`: as they are, or blended with this member's own.

        Four cases, by which of the two has a weight: the other one is copied or left alone, so that no bit of it
        changes.
        """
        where, both = self._slice(first, stop), weight
        mine = self._weights[first] if reduce else weight * 0  # 0 of the same type: what comes replaces all
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
        """Returns a piece as it is now, with the weight of what was added to it."""
        return OutgoingPiece(send.dst, send.step, self._now(send.first, send.stop), self._weights[send.first])

    def _now(self, first: int, stop: int) -> Any:
        """Returns this member's present value of the pieces: those of `v` until something was written over them."""
        return (self._out if self._written[first] else self._v)[self._slice(first, stop)]

    def _slice(self, first: int, stop: int) -> slice:
        """Returns which numbers some pieces are."""
        return slice(self._edges[first], self._edges[stop])
