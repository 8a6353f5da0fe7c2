"""Members of a mean in one process, their numbers in lists: whose message is next is drawn."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Any

from paceline.core.collective import OutgoingPiece, Schedule, ScheduleExecution


class Numbers:
    """A window on a list: slices of it are windows on the same list."""

    def __init__(self, home: list[Any], at: slice | None = None) -> None:
        self.home, self.at = home, at or slice(0, len(home))

    def __len__(self) -> int:
        return self.at.stop - self.at.start

    def __getitem__(self, part: slice) -> Numbers:
        assert part.stop <= len(self)
        return Numbers(self.home, slice(self.at.start + part.start, self.at.start + part.stop))

    def read(self) -> list[Any]:
        return self.home[self.at]


class Exact:
    """Arithmetic of the numbers themselves; remembers how much was added up."""

    def __init__(self) -> None:
        self.added = 0

    def blend(self, mine: Numbers, theirs: Numbers, share: Any, into: Numbers) -> None:
        self.added += len(mine)
        blended = [a + share * (b - a) for a, b in zip(mine.read(), theirs.read(), strict=True)]
        into.home[into.at] = blended

    def copy(self, v: Numbers, into: Numbers) -> None:
        into.home[into.at] = v.read()


@dataclass
class Result:
    numbers: list[Any]
    weight: Any
    sent: int  # numbers
    added: int


def average(schedule: Schedule, vectors: list[list[Any]], weights: list[Any], seed: int = 0) -> list[Result]:
    """Carried out by reference: what is sent is looked at when it is taken in, as in shared memory."""
    rng, n = Random(seed), schedule.workers
    arithmetic = [Exact() for _ in range(n)]
    outs: list[list[Any]] = [[None] * len(v) for v in vectors]
    parts = [
        ScheduleExecution(schedule, i, Numbers(vectors[i]), weights[i], Numbers(outs[i]), arithmetic[i])
        for i in range(n)
    ]
    under_way: list[tuple[int, Any]] = []
    sent = [0] * n

    def post(src: int, outgoing: Iterable[OutgoingPiece]) -> None:
        for message in outgoing:
            sent[src] += len(message.v)
            where = under_way if message.dst in begun else held[message.dst]
            where.append((src, message))

    waiting = rng.sample(range(n), n)
    held: list[list[tuple[int, Any]]] = [[] for _ in range(n)]  # for those that have not begun
    begun: set[int] = set()
    while waiting or under_way:
        if waiting and (not under_way or rng.random() < 0.1):
            begins = waiting.pop()
            begun.add(begins)
            under_way += held[begins]
            post(begins, parts[begins].begin())
            continue
        drawn = rng.randrange(len(under_way))
        under_way[drawn], (src, message) = under_way[-1], under_way[drawn]
        under_way.pop()
        post(message.dst, parts[message.dst].take(message.step, src, message.v, message.weight))
    assert all(part.done for part in parts)
    return [Result(outs[i], parts[i].weight, sent[i], arithmetic[i].added) for i in range(n)]
