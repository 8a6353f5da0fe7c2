"""When a message arrives: latency, bandwidth, and one message at a time through every network card.

A message leaves once its sender's card has sent what came before it, and has arrived once the receiver's card has
taken in all of it; the two overlap, as bytes flow. A card takes messages in in the order in which they were sent,
not in which their first bytes reach it: one event a message instead of two, exact while a receiver's senders are
equally busy, and FIFO between any two parties. A message without vectors costs latency only.
"""

from __future__ import annotations

import math


class Card:
    """A network card: when it will have sent, and taken in, all that is under way."""

    __slots__ = ("receiving_until", "sending_until")

    def __init__(self) -> None:
        self.sending_until = 0.0
        self.receiving_until = 0.0


class Network:
    """A switch that never blocks: only the cards are narrow. Raises ValueError for a speed that is none."""

    def __init__(self, latency_s: float, bandwidth_gbps: float) -> None:
        if not (0 <= latency_s < math.inf and bandwidth_gbps > 0):
            raise ValueError(f"no network has a latency of {latency_s} s and a bandwidth of {bandwidth_gbps} Gbit/s")
        self.latency_s = latency_s
        self.seconds_per_byte = 8e-9 / bandwidth_gbps

    def arrival(self, now: float, src: Card, dst: Card, nbytes: int) -> float:
        """Occupies both cards with a message of `nbytes` sent at `now`; when it will have arrived."""
        seconds = nbytes * self.seconds_per_byte
        free = src.sending_until
        sent = src.sending_until = (now if now > free else free) + seconds
        earliest, free = sent + self.latency_s, dst.receiving_until + seconds
        arrived = dst.receiving_until = earliest if earliest > free else free
        return arrived

    def ring_seconds(self, members: int, nbytes: int) -> float:
        """A ring all-reduce: 2(k - 1) rounds, each moving one k-th of the vector between neighbours."""
        rounds = 2 * (members - 1)
        return rounds * (self.latency_s + nbytes / members * self.seconds_per_byte)
