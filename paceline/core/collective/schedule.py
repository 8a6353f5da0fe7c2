"""A schedule is a list of steps; a step is transfers of pieces of the vector between numbered members."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, slots=True)
class Transfer:
    """`src` sends the pieces first..stop-1. `dst` adds them to its own (`reduce`), or replaces its own by them."""

    src: int
    dst: int
    first: int
    stop: int
    reduce: bool


Step = tuple[Transfer, ...]


@dataclass(frozen=True)
class Schedule:
    """`workers` members average a vector that is cut into `pieces` equal pieces.

    The transfers of a step are independent of one another: what is sent is what the member had before the step.
    """

    name: str
    workers: int
    pieces: int
    steps: tuple[Step, ...]

    def edges(self, length: int) -> tuple[int, ...]:
        """Returns where the pieces of `length` numbers begin, and where the last one ends. Pieces may be empty."""
        return tuple(length * piece // self.pieces for piece in range(self.pieces + 1))

    def bytes_moved(self, member: int, nbytes: int) -> tuple[float, float]:
        """Returns how many bytes of a vector of `nbytes` the `member` sends in all, and how many it receives."""
        tasks = self.tasks[member]
        sent = sum(send.stop - send.first for sends in tasks.sends for send in sends)
        received = sum(receive.stop - receive.first for receive in tasks.receives)
        return sent * nbytes / self.pieces, received * nbytes / self.pieces

    @cached_property
    def tasks(self) -> tuple[Tasks, ...]:
        """Returns what each member has to do, by its number."""
        sends: list[list[Send]] = [[] for _ in range(self.workers)]
        receives: list[list[Receive]] = [[] for _ in range(self.workers)]
        touched = [[0] * self.pieces for _ in range(self.workers)]  # how many receives it took to make a piece so far
        for number, step in enumerate(self.steps):
            for t in step:
                # All sends of a step come before its receives, as the member sends what it had before the step.
                ready = max(touched[t.src][t.first : t.stop])
                sends[t.src].append(Send(number, t.dst, t.first, t.stop, ready))
            for t in step:
                receives[t.dst].append(Receive(number, t.src, t.first, t.stop, t.reduce))
                touched[t.dst][t.first : t.stop] = [len(receives[t.dst])] * (t.stop - t.first)
        return tuple(Tasks.of(s, r) for s, r in zip(sends, receives, strict=True))


@dataclass(frozen=True, slots=True)
class Send:
    """Sends pieces to `dst` as soon as the member has taken in its first `ready` receives."""

    step: int
    dst: int
    first: int
    stop: int
    ready: int


@dataclass(frozen=True, slots=True)
class Receive:
    """Expects pieces from `src` in `step`: they are added to the member's own (`reduce`), or replace them."""

    step: int
    src: int
    first: int
    stop: int
    reduce: bool


@dataclass(frozen=True, slots=True)
class Tasks:
    """One member's work is a list of receives, in the order in which they are taken in; `sends[k]` follow the first k
    of them.
    """

    sends: tuple[tuple[Send, ...], ...]
    receives: tuple[Receive, ...]

    @staticmethod
    def of(sends: Sequence[Send], receives: Sequence[Receive]) -> Tasks:
        """Returns the tasks of one member: what it receives in order, and after which of these it sends what."""
        after: list[list[Send]] = [[] for _ in range(len(receives) + 1)]
        for send in sends:
            after[send.ready].append(send)
        return Tasks(tuple(map(tuple, after)), tuple(receives))


def in_parallel(*parts: Iterable[Step]) -> Iterator[Step]:
    """Merges the steps of groups of members that have nothing to do with one another: step k of each
    happens at once.
    """
    for steps in itertools.zip_longest(*parts, fillvalue=()):
        yield tuple(itertools.chain.from_iterable(steps))


def on_members(members: Sequence[int], scale: int, steps: Iterable[Step]) -> Iterator[Step]:
    """Maps `steps` of members 0, 1, ... onto `members`; each piece of theirs is `scale` pieces here."""
    for step in steps:
        yield tuple(Transfer(members[t.src], members[t.dst], t.first * scale, t.stop * scale, t.reduce) for t in step)
