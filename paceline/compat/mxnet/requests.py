"""Sends questions of one worker to the servers of a store; a timeout says whom the server itself waits for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from paceline.core.coordination import party
from paceline.core.coordination.party import Party
from paceline.core.errors import ConfigError, PacelineError, Stopped, TimedOut
from paceline.live.control.session import Session
from paceline.live.protocol.pending_reply import PendingReply
from paceline.runtime.kvstore import messages as m
from paceline.runtime.kvstore.table import DIRECTORY

EXPLAIN_SECONDS = 5.0
"""A server that has not said within this time what it waits for is itself the one that is waited for."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question that is not answered yet. `what` completes: waited 5 s for `what`."""

    pending: PendingReply
    server: int
    slice: int
    what: str


class ServerRequests:
    """Asks and waits, and turns what may go wrong into errors for the user."""

    def __init__(self, session: Session, timeout_s: float) -> None:
        self._session, self._timeout_s = session, timeout_s
        self.closed = False

    def ask(self, server: int, slice: int, message: Any, what: str) -> Asked:
        """Sends a question. Raises ConfigError once closed, PeerLost where the server is gone, PacelineError after the
        run.
        """
        if self.closed:
            raise ConfigError("the store is closed: create another one")
        try:
            return Asked(self._session.node.ask(party.server(server), slice, message, what), server, slice, what)
        except Stopped as error:
            raise self._over(error) from None

    def answer(self, asked: Asked) -> Any:
        """Waits for the answer. Raises ConfigError for a refusal, TimedOut, PeerLost, and PacelineError when the run is
        over.
        """
        try:
            answer = asked.pending.wait(self._timeout_s)
        except TimedOut:
            raise TimedOut(self._explained(asked)) from None
        except Stopped as error:
            raise self._over(error) from None
        if isinstance(answer, m.KeyRefused):
            raise ConfigError(answer.why)
        return answer

    def answers(self, asked: Iterable[Asked]) -> list[Any]:
        return [self.answer(one) for one in asked]

    def _over(self, error: Stopped) -> PacelineError:
        return PacelineError(f"the run is over ({error}): the store answers no more")

    def _explained(self, asked: Asked) -> str:
        """Returns the text of a timeout: whom the server waits for, if it says so."""
        who = party.server(asked.server)
        begun = f"worker {self._session.node.me.index} waited {self._timeout_s:g} s for {asked.what} by {self._at(who)}"
        try:
            question = self._session.node.ask(who, DIRECTORY, m.Who(number=asked.slice), "who holds it up")
            ranks = question.wait(EXPLAIN_SECONDS).ranks
        except (PacelineError, Stopped):
            return f"{begun}, which does not answer"
        names = ", ".join(self._at(party.worker(rank)) for rank in ranks)
        return f"{begun}, which waits for {names}" if names else f"{begun}, which is slow"

    def _at(self, who: Party) -> str:
        return f"{who} ({self._session.host_of(who) or 'host unknown'})"
