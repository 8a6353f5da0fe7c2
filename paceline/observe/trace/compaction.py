"""Keeps a trace within a size: the fuller the file, the more of what follows on one another becomes one record.

Up to half of the size everything is kept. Beyond it the records of a window of time become one of each sort, and
whenever the room that is left has halved again, the window is four times as long: so what is left is never used up.

    Span                         sums, for each worker and activity; all of a worker's at the end of its window
    Applied                      the last of each shard
    Decided, Gated              the last of each worker and verdict
    Evaluated                    the last of a window, and each that is better than all before it; windows are a
                                 sixteenth as long, since evaluations are few
    Leased, CpuUsed              the last, of each party: the numbers are sums since the start
    ResourceUse                  the last of each party
    LinkTraffic                  sums, for each link
    MemberChange, LostWork, Ended  all of them, always; they are few
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Iterator

from paceline.core.trace import (
    Applied,
    CpuUsed,
    Decided,
    Ended,
    Evaluated,
    Gated,
    LinkTraffic,
    LostWork,
    MemberChange,
    Record,
    ResourceUse,
    Span,
)

WINDOW_S = 1.0
"""Seconds of the first window; each halving of the room that is left makes it GROWTH times as long."""
GROWTH = 4.0
EVALUATED_PART = 1 / 16
"""Fraction of the window that holds for evaluations."""
HELD_BYTES = 160
"""Bytes of the file that each record which is held back will need, roughly."""


def window_s(written: int, bytes_max: int) -> float:
    """Returns the seconds whose records become one when `written` bytes of `bytes_max` are used; 0 keeps everything."""
    left = 1 - written / bytes_max
    if left > 0.5:
        return 0.0
    return WINDOW_S * GROWTH ** int(-math.log2(max(left, 2**-20)) - 1)


class Thinner:
    """Thins records one by one. What it holds back comes when its window is over, or with `rest`."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._held: dict[Hashable, dict[Hashable, Record]] = {}  # by who tells it: the window's record of each sort
        self._since: dict[Hashable, float] = {}
        self._count = 0  # of records that are held back
        self._best = -math.inf

    def add(self, record: Record, written: int) -> Iterator[Record]:
        """Yields what is to be written now that there are `written` bytes."""
        yield from self.within(record, window_s(written + HELD_BYTES * self._count, self._bytes_max))

    def within(self, record: Record, window: float) -> Iterator[Record]:
        """Yields the same with windows of `window` seconds, whatever is written; 0 keeps everything."""
        if isinstance(record, MemberChange | LostWork | Ended) or self._is_best(record) or not window:
            if self._held and not isinstance(record, Evaluated | LostWork | MemberChange):
                yield from self.rest()
            yield record
            return
        if isinstance(record, Evaluated):
            window *= EVALUATED_PART
        who, sort = _teller(record), _sort(record)
        held = self._held.setdefault(who, {})
        if held and record.at >= self._since[who] + window:
            yield from self._close(who)
            held = self._held.setdefault(who, {})
        if not held:
            self._since[who] = record.at
        before = held.get(sort)
        self._count += before is None
        held[sort] = record if before is None else _joined(before, record)

    def _is_best(self, record: Record) -> bool:
        """Returns True for an evaluation that is better than all before it: one of those was the first to reach any
        target."""
        if not isinstance(record, Evaluated) or not record.accuracy > self._best:
            return False
        self._best = record.accuracy
        return True

    def rest(self) -> Iterator[Record]:
        """Yields what is held back."""
        for who in list(self._held):
            yield from self._close(who)

    def _close(self, who: Hashable) -> Iterator[Record]:
        """Yields the window's records of one party, and begins another window."""
        held = self._held.pop(who)
        self._count -= len(held)
        at = max(record.at for record in held.values())
        for record in held.values():
            yield dataclasses.replace(record, at=at) if isinstance(record, Span) else record


def _teller(record: Record) -> Hashable:
    """Returns who tells a record: windows are one for each party, since parties have clocks of their own."""
    match record:
        case Span(rank=rank):
            return "worker", rank
        case Applied(shard=shard) | Gated(shard=shard):
            return "shard", shard
        case Decided(party=party) | CpuUsed(party=party):
            return "party", party
        case ResourceUse(party=party) | LinkTraffic(party=party):
            return "use", party
    return type(record).__name__


def _sort(record: Record) -> Hashable:
    """Returns the sort of a record, of which a window keeps one."""
    match record:
        case Span(activity=activity):
            return activity
        case Decided(rank=rank, verdict=verdict):
            return rank, verdict
        case Gated(rank=rank, refused=refused):
            return rank, refused
        case LinkTraffic(other=other):
            return "link", other
    return type(record).__name__


def _joined(before: Record, record: Record) -> Record:
    """Returns what a window keeps of two records of one sort: sums where they have sums, else the later one."""
    match before, record:
        case Span() as a, Span() as b:
            return _sum(a, b)
        case LinkTraffic() as a, LinkTraffic() as b:
            seconds = a.seconds + b.seconds
            return dataclasses.replace(b, sent=a.sent + b.sent, received=a.received + b.received, seconds=seconds)
    return record


def _sum(a: Span, b: Span) -> Span:
    """Returns two spans as one."""
    return Span(
        at=max(a.at, b.at),
        rank=a.rank,
        activity=a.activity,
        seconds=a.seconds + b.seconds,
        steps=a.steps + b.steps,
        samples=a.samples + b.samples,
        hidden=a.hidden + b.hidden,
        exchanges=a.exchanges + b.exchanges,
        cpu=a.cpu + b.cpu,
    )
