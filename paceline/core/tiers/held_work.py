"""Counts what a member of a group has trained since the last exchange between groups that had it.

trained            the member has made a piece of work
handed over        its speaker has the piece, under the number of the contribution
exchanged          the servers have it: nothing of it can be lost with the speaker
the speaker fails  what is left is in no model: the next speaker begins with the weights of the servers
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from paceline.core.effects import Computed, Trained
from paceline.core.role import NO_WORK, WorkCount


@dataclass(slots=True)
class _Piece:
    """A piece of work. `clock`: the number of its contribution, 0 while the speaker does not have it."""

    steps: int
    samples: int
    clock: int = 0


class HeldWork:
    """Counts for one member. `lost`: with all speakers that failed."""

    def __init__(self) -> None:
        self.lost = NO_WORK
        self._steps = 1  # of the piece under way
        self._pieces: deque[_Piece] = deque()

    @property
    def total(self) -> WorkCount:
        """Returns what would be lost with the speaker."""
        pieces = self._pieces.copy()  # another thread may add one
        return WorkCount(sum(piece.steps for piece in pieces), sum(piece.samples for piece in pieces))

    def begin(self, steps: int) -> None:
        """Notes the steps of the piece of work that comes."""
        self._steps = steps

    def trained(self, value: Any) -> Any:
        """Counts `value` if it is the result of local work; returns it."""
        if isinstance(value, Computed | Trained) and value.samples:
            self._pieces.append(_Piece(self._steps, value.samples))
        return value

    def handed_over(self, clock: int) -> None:
        """Notes that contribution `clock` is made of what was trained since the one before."""
        for piece in self._pieces:
            piece.clock = piece.clock or clock

    def exchanged(self, clock: int | None = None) -> None:
        """Notes that an exchange between groups has the contributions up to `clock`; None: all."""
        self._pieces = deque(piece for piece in self._pieces if clock is not None and not 0 < piece.clock <= clock)

    def lose(self) -> WorkCount:
        """Returns what is lost with the speaker, and counts it."""
        lost, self._pieces = self.total, deque()
        self.lost = WorkCount(self.lost.steps + lost.steps, self.lost.samples + lost.samples)
        return lost
