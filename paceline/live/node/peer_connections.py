"""The other workers that this one can send to, where the scheme or its means ask for that, and what they have taken."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable

from paceline.core.coordination.party import Party, worker
from paceline.core.errors import PeerLost, Stopped
from paceline.core.parties.delivery_confirmation import AllTaken, AskTaken, DeliveryConfirmation, TakenAnswer
from paceline.live.node.published_state import PRESENCE, TAKEN, ReadState
from paceline.live.protocol.pending_reply import PendingReply


class PeerConnections:
    """These are the connections of one worker. `confirmation` hears of each message that its roles send."""

    def __init__(
        self, me: Party, ask: Callable[[Party, ReadState], PendingReply], lock: threading.RLock, timeout_s: float
    ) -> None:
        """`ask` a party past its role; `lock` is held while a role is at work; `timeout_s` bounds the wait for each."""
        self._ask, self._lock, self._timeout_s = ask, lock, timeout_s
        self._met: list[Party] = []
        self.confirmation = DeliveryConfirmation(me)

    def meet(self, ranks: Iterable[int], callers: Iterable[int]) -> None:
        """`ranks` can be sent to from now on; those among them that called it know it once they answer `callers`."""
        self._met = [worker(rank) for rank in ranks]
        for pending in [self._ask(worker(rank), ReadState(what=PRESENCE)) for rank in callers]:
            with contextlib.suppress(PeerLost):  # one that is lost has nothing to take in
                pending.wait(self._timeout_s)

    def came(self, rank: int) -> None:
        """Notes a newcomer, which has connected to this worker as to all others; its owner holds the lock."""
        if self._met and worker(rank) not in self._met:
            self._met.append(worker(rank))

    def await_taken(self, others: Iterable[Party] = ()) -> None:
        """Returns when all whom this worker sent something have taken it, and what they sent in return is handled.

        others: parties that are asked though no role has sent them anything. Raises TimedOut.
        """
        step: AskTaken | AllTaken | None
        with self._lock:
            step = self.confirmation.begin([*self._met, *others])
        while isinstance(step, AskTaken):
            for who, pending in [(who, self._ask(who, ReadState(what=TAKEN))) for who in step.whom]:
                answer = self._answer(pending)
                with self._lock:
                    step = self.confirmation.answered(who, answer)

    def _answer(self, pending: PendingReply) -> TakenAnswer:
        """Waits for an answer. The end of the run voids all calls, and what was sent is under way all the same."""
        try:
            pending.wait(self._timeout_s)
        except Stopped:
            return TakenAnswer.VOID
        except PeerLost:
            return TakenAnswer.GONE
        return TakenAnswer.TAKEN
