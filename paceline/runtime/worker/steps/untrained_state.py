"""What is not trained of a model (`paceline.engine.model.trainable`): everybody begins with that of worker 0."""

from __future__ import annotations

from paceline.engine.model.trainable import Rest, digest, same
from paceline.engine.vectors.flat import Flat
from paceline.live import party
from paceline.live.control.session import Session

REST, DIGEST = "rest", "digest of the rest"


class SharedRest:
    """Of one worker: what it shows to the others, and takes from one of them."""

    def __init__(self, session: Session, rest: Rest) -> None:
        self._session, self._rest = session, rest
        self._first: Flat | None = rest.show()  # as it is when the worker joins, until training starts
        self._digest = digest(self._first)
        self.empty = not len(self._first)
        session.node.published[REST] = lambda _slice: self._rest.show() if self._first is None else self._first
        session.node.published[DIGEST] = lambda _slice: self._digest

    def take(self, rank: int) -> None:
        """That of worker `rank`; most of the time all have begun with the same. Raises PeerLost."""
        if self.empty:
            return
        self._session.reach(party.worker(rank))
        if not same(self._session.node.read_state(rank, DIGEST), self._digest):
            self._rest.load(self._session.node.read_state(rank, REST))

    def begin(self) -> None:
        """Training starts: no copy is kept any longer."""
        self._first = None
