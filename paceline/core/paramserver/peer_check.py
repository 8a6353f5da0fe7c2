"""Checks on a worker which contributions of other workers may go into what it sums up for them.

    finite                            accepted
    not finite, of another worker     rejected: it spoils nobody else's work, and the one that sums up is not blamed
    not finite, its own               accepted: the servers judge it, as they judge that of any worker

So a model that has diverged still reaches the servers, whose check (`gradient_check.py`) ends the run: the gradients of
those that sum up are not finite either. Workers expel nobody.

Where workers carry means among themselves nobody sees what each of them brings, so each looks at its own part: one that
is not finite counts with weight zero. In gossip each looks at its own results. What it finds it tells the coordinator
(`OwnResults`), which expels a worker whose machine must be broken (`paceline.core.coordinator.own_results`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from paceline.core.trace import Decided, Record
from paceline.core.vector import NOT_FINITE, is_finite

REFUSED = "refused"


def refusal(note: Callable[[Record], None] | None, now: float, me: int, rank: int) -> str:
    """Returns why worker `me` leaves out a vector of worker `rank` that is not finite, and notes that in the trace."""
    if note is not None:
        note(Decided(at=now, party=f"worker {me}", rank=rank, verdict=REFUSED, reason=NOT_FINITE))
    return NOT_FINITE


class PeerCheck:
    """Is the gradient check of worker `me`, which sums up what others send. `note` takes records of its trace."""

    def __init__(self, me: int, note: Callable[[Record], None] | None) -> None:
        self._me, self._note = me, note

    def push(self, now: float, rank: int, v: Any, onto: Any = None, waiting: Collection[int] = ()) -> str | None:
        """Returns why the contribution `v` of worker `rank` is rejected, or None."""
        return None if rank == self._me or is_finite(v) else refusal(self._note, now, self._me, rank)

    def part(self, now: float, rank: int, v: Any, onto: Any = None) -> str | None:
        """Does the same for a worker's part of a mean."""
        return self.push(now, rank, v, onto)

    def gone(self, rank: int) -> None:
        """Remembers nothing of any worker."""

    came = gone


class OwnResults:
    """Looks at what one worker brings: its results in gossip, and its parts of means that workers carry.

    tell: is called with the number of a result (from 1), whether it is finite, and whether it is a part of a mean. It
    hears of each that is not finite and of the first one after it that is, so finite results cost no message.
    """

    __slots__ = ("_bad", "_tell", "number")

    def __init__(self, tell: Callable[[int, bool, bool], None]) -> None:
        self.number, self._bad, self._tell = 0, False, tell

    def __call__(self, v: Any) -> bool:
        """Returns True if `v`, or a strip of it, is finite."""
        return is_finite(v)

    def rejects(self, v: Any, weight: float) -> bool:
        """Judges a whole part of a mean; returns True if it is to count with weight zero. One without weight is not
        judged.
        """
        if not weight:
            return False
        self.judged(finite=(finite := self(v)), mean=True)
        return not finite

    def judged(self, *, finite: bool, mean: bool = False) -> None:
        """Counts a result. `mean`: it is a part of a mean, which others take part in."""
        self.number += 1
        if self._bad or not finite:
            self._bad = not finite
            self._tell(self.number, finite, mean)


class OwnPartCheck:
    """Is the check of parts of means that workers carry, where one process stands for all workers: each worker's part
    is judged by its own `OwnResults`, by rank.
    """

    def __init__(self, own: Mapping[int, OwnResults]) -> None:
        self._own = own

    def part(self, now: float, rank: int, v: Any, onto: Any = None) -> str | None:
        """Returns why the part `v` of worker `rank` counts with weight zero, or None."""
        return NOT_FINITE if self._own[rank].rejects(v, weight=1.0) else None

    push = part

    def gone(self, rank: int) -> None:
        """Remembers nothing of any worker."""

    came = gone
