"""The other workers that this one can send to, where the scheme or its means ask for that."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable

from paceline.core.errors import PeerLost, Stopped
from paceline.live.node.published_state import PRESENCE, ReadState
from paceline.live.protocol.pending_reply import PendingReply


class PeerConnections:
    """These are the connections of one worker. `told` counts what it has sent that nobody answers."""

    def __init__(self, ask: Callable[[int, ReadState], PendingReply], timeout_s: float) -> None:
        """`ask` a rank past its role; `timeout_s` bounds the wait for each."""
        self._ask, self._timeout_s = ask, timeout_s
        self._ranks: list[int] = []
        self.told = 0

    def meet(self, ranks: Iterable[int], callers: Iterable[int]) -> None:
        """`ranks` can be sent to from now on; those among them that called it know it once they answer `callers`."""
        self._ranks = list(ranks)
        self._knock(callers)

    def settle(self) -> None:
        """Until everything told so far has reached them, and come back from those who had left."""
        told = -1
        while self._ranks and told != self.told:
            told = self.told
            try:
                self._knock(self._ranks)
            except Stopped:  # the run ended meanwhile, and with it all calls; what was sent is under way all the same
                told = -1

    def _knock(self, ranks: Iterable[int]) -> None:
        """Until each has answered, hence has taken in all that it was sent before."""
        for pending in [self._ask(rank, ReadState(what=PRESENCE)) for rank in ranks]:
            with contextlib.suppress(PeerLost):  # one that is lost has nothing to take in
                pending.wait(self._timeout_s)
