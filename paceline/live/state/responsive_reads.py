"""Looks at single workers, by a party that must not wait for one that stands still: who does not answer is left out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from paceline.core.errors import PeerLost, TimedOut
from paceline.live.node.published_state import PRESENCE, WEIGHTS, PublishedState, ReadState
from paceline.live.node.state_reader import StateReader
from paceline.live.protocol.pending_reply import PendingReply

PATIENCE_S = 2.0
"""A worker that does not answer for so long is left out until it has."""


class NoAnswer(PeerLost):
    """It does not answer now. It is not lost."""


class Answering:
    """Asks by `looking`. Each worker keeps it waiting once for each time that it falls silent, and no longer."""

    def __init__(self, looking: StateReader, patience_s: float = PATIENCE_S) -> None:
        self._looking, self._patience_s = looking, patience_s
        self._silent: dict[int, PendingReply] = {}  # by rank: what it was asked last

    def read_published(self, rank: int, what: str) -> PublishedState:
        """Returns what worker `rank` publishes. Raises NoAnswer where it does not answer, PeerLost where it is lost."""
        if (pending := self._silent.get(rank)) is not None:
            if not pending.ready:
                raise NoAnswer(f"worker {rank} does not answer")
            del self._silent[rank]
        pending = self._looking.out.call(rank, ReadState(what=what))
        try:
            shown: PublishedState = pending.wait(self._patience_s)
        except TimedOut:
            self._silent[rank] = pending
            raise NoAnswer(f"worker {rank} does not answer") from None
        return shown

    def read_state(self, rank: int, what: str) -> Any:
        """Returns the vector of it."""
        return self.read_published(rank, what).v

    def read_model(self, rank: int) -> tuple[Any, float]:
        """The weights of worker `rank`, and what they count in a mean over the workers."""
        shown = self.read_published(rank, WEIGHTS)
        return shown.v, shown.weight

    def all_answer(self, ranks: Iterable[int]) -> bool:
        """Does each of them that is not lost?"""
        for rank in ranks:
            try:
                self.read_published(rank, PRESENCE)
            except NoAnswer:
                return False
            except PeerLost:
                continue
        return True
