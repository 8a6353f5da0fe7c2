"""Brings everybody's vector to everybody, for vectors that cannot be added up on their way, such as encoded ones.

A gathering follows the transfers of a schedule, in which whatever a member knows reaches all others: a transfer passes
on every share that the sender has and the receiver lacks. It is a schedule itself, of as many pieces as there are
members: piece i is the share of member i, nothing is added, and every share comes to every member once.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from paceline.core.collective.algorithms import Groups, pairwise, schedule_for
from paceline.core.collective.member import OutgoingPiece
from paceline.core.collective.schedule import Schedule, Step, Transfer


@functools.lru_cache(maxsize=256)
def gathering_for(name: str, n: int, hosts: Groups = ()) -> Schedule:
    """Returns the gathering along the schedule of that name for n members (see `schedule_for`)."""
    return Schedule(name, n, n, tuple(_steps(schedule_for(name, n, hosts), straight=name == pairwise.__name__)))


def _steps(schedule: Schedule, *, straight: bool) -> Iterator[Step]:
    """Yields the steps of the gathering. `straight`: every share comes from its owner; no other member passes it on."""
    known = [{member} for member in range(schedule.workers)]
    for step in schedule.steps:
        # The transfers of a step are independent: a member passes on what it knew before the step.
        before = [frozenset(shares) for shares in known]
        transfers = []
        for t in step:
            new = (before[t.src] & {t.src} if straight else before[t.src]) - known[t.dst]
            known[t.dst] |= new
            transfers += [Transfer(t.src, t.dst, share, share + 1, False) for share in sorted(new)]
        if transfers:
            yield tuple(transfers)


class GatheredShare:
    """Passes on the share of `owner`, as one member: what `begin` and `take` yield is to be sent.

    The owner itself has the share from the beginning, as `v` of weight `weight`.
    """

    def __init__(self, gathering: Schedule, me: int, owner: int, v: object = None, weight: float = 0.0) -> None:
        tasks = gathering.tasks[me]
        self._onward = [send for sends in tasks.sends for send in sends if send.first == owner]
        self._comes = {(r.step, r.src) for r in tasks.receives if r.first == owner}
        self.v, self.weight = v, weight

    @property
    def done(self) -> bool:
        """Returns True once nothing more has to come."""
        return not self._comes

    def begin(self) -> Iterator[OutgoingPiece]:
        """Yields what can be sent at once; call it before any `take`."""
        return self._send() if self.done else iter(())

    def take(self, step: int, src: int, v: object, weight: float) -> Iterator[OutgoingPiece]:
        """Takes the share, which arrived from member `src`, and yields whom to pass it on to.

        Raises ValueError for a share that this schedule does not bring here in this step, or that is here already.
        """
        if (step, src) not in self._comes:
            raise ValueError(f"member {src} sent a share in step {step}")
        self._comes.clear()
        self.v, self.weight = v, weight
        yield from self._send()

    def room(self, step: int, src: int) -> None:
        """Returns None: unlike `ScheduleExecution`, it knows no buffer to receive into before the share is there."""

    def _send(self) -> Iterator[OutgoingPiece]:
        """Yields the share to those members that get it from this one."""
        for send in self._onward:
            yield OutgoingPiece(send.dst, send.step, self.v, self.weight)
