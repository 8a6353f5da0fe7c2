"""Which incarnation of each party a process counts with: one at a time, and none that is over.

    state    input                              then                                            next
    any      incarnation i is met: it connects  those before i are over; the connection to an   MET i
             or is heard                        earlier one, if there is one, is to be closed
    MET i    i or an earlier one is over        that connection is to be closed                 OVER i
    any      it is asked about an incarnation   over: nothing of it is taken, and nothing is    as it was
             that is over                       sent to it
    OVER i   a later one is met                 it counts                                       MET

So a process that was declared lost and still runs is not heard under its old number, and one that was started again is
heard at once, though nobody has noticed yet that the former one has ended. The transports of live runs ask this of each
connection, the links of simulated ones of each message.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class PeerIncarnations(Generic[K]):
    """Holds what one process knows of the incarnations of all others, which are named by values of type K."""

    def __init__(self) -> None:
        self._met: dict[K, int] = {}
        self._over: dict[K, int] = {}

    def __len__(self) -> int:
        """Returns the number of parties of which something is known. Those of one run bound it."""
        return len(self._met.keys() | self._over.keys())

    def met(self, peer: K) -> int | None:
        """Returns the latest incarnation of `peer` that was met, over or not; None if none was."""
        return self._met.get(peer)

    def is_over(self, peer: K, incarnation: int) -> bool:
        """Returns True if nothing of that incarnation of `peer` counts any more."""
        return incarnation <= self._over.get(peer, -1)

    def meets(self, peer: K, incarnation: int) -> bool:
        """Notes that this incarnation is there, so those before it are over. Returns True if one of them was met.

        An incarnation that is over, or before the one that was met, changes nothing.
        """
        known = self._met.get(peer)
        if known == incarnation:  # the most frequent case
            return False
        if self.is_over(peer, incarnation):
            return False
        self._met[peer] = incarnation
        self._over[peer] = incarnation - 1
        return known is not None

    def end(self, peer: K, incarnation: int) -> bool:
        """Notes that this incarnation and all before it are over. Returns True if the one that was met is among them,
        or if none was met."""
        self._over[peer] = max(incarnation, self._over.get(peer, -1))
        return self._met.get(peer, incarnation) <= incarnation
