"""Shares what is not trained of a model (`paceline.engine.model.trainable`): everybody begins with that of worker 0."""

from __future__ import annotations

from paceline.core.coordination import party
from paceline.engine.model.trainable import Rest, digest, same
from paceline.engine.vectors.flat import Flat
from paceline.live.control.session import Session

REST, DIGEST = "rest", "digest of the rest"


class SharedRest:
    """Shows one worker's untrained state to the others, and takes it from one of them."""

    def __init__(self, session: Session, rest: Rest) -> None:
        self._session, self._rest = session, rest
        first = rest.show()
        self._begins_with(first)
        self.empty = not len(first)
        session.node.longest_answer = 0 if self.empty else max(len(first), len(self._digest))
        session.node.published[REST] = lambda _slice: self._show()
        session.node.published[DIGEST] = lambda _slice: self._digest

    def take(self, rank: int) -> None:
        """Takes the state of worker `rank`, unless the digests agree, as they mostly do. Raises PeerLost."""
        if self.empty:
            return
        self._session.reach(party.worker(rank))
        if not same(self._session.node.read_state(rank, DIGEST), self._digest):
            self._rest.load(self._session.node.read_state(rank, REST))
            self._begins_with(self._rest.show())  # what this worker has taken is what the next one takes from it

    def _begins_with(self, first: Flat) -> None:
        """Shows `first` until training starts, and its digest also after that."""
        self._first: Flat | None = first
        self._digest = digest(first)

    def _show(self) -> Flat:
        first = self._first  # read once: this is another thread than that which begins
        return self._rest.show() if first is None else first

    def begin(self) -> None:
        """Frees the copy that was kept until training started."""
        self._first = None
