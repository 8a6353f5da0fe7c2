"""Reads the state of single workers without waiting for one that hangs: who does not answer is left out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from paceline.core.errors import PeerLost, TimedOut
from paceline.live.node.published_state import PRESENCE, WEIGHTS, PublishedState, ReadState
from paceline.live.node.state_reader import StateReader
from paceline.live.protocol.pending_reply import PendingReply

PATIENCE_S = 2.0
"""Seconds after which a worker that does not answer is left out, until it has answered."""


class NoAnswer(PeerLost):
    """Is raised for a worker that does not answer now, or with nothing of use, and is not lost."""


class Answering:
    """Reads through `looking`. A silent worker delays it once by PATIENCE_S, not at every read.

    The unanswered call stays open; while it is not answered, further reads of that worker fail at once.
    """

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
        """Returns the vector of what worker `rank` publishes."""
        return self.read_published(rank, what).v

    def read_model(self, rank: int) -> tuple[Any, float]:
        """Returns the weights of worker `rank`, and their weight in a mean over the workers.

        Raises NoAnswer or PeerLost as `read_published` does.
        """
        shown = self.read_published(rank, WEIGHTS)
        try:
            return self._looking.model_in(rank, shown)
        except PeerLost as error:
            raise NoAnswer(str(error)) from None

    def all_answer(self, ranks: Iterable[int]) -> bool:
        """Returns True if each of these workers answers, or is lost."""
        for rank in ranks:
            try:
                self.read_published(rank, PRESENCE)
            except NoAnswer:
                return False
            except PeerLost:
                continue
        return True
