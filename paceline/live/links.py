"""How fast the way from another party is, by looking at things that it shows."""

from __future__ import annotations

import time

from paceline.live.exhibits import FREIGHT, FREIGHT_LENGTH, PRESENCE
from paceline.live.node import Node
from paceline.live.party import Party

SECONDS_PER_BYTE_MIN = 1e-10  # what comes by shared memory is there at once, but has to be read by somebody


def measure_link(node: Node, who: Party, tries: int = 3) -> tuple[float, float]:
    """Seconds of latency one way, and seconds a byte from `who`: the best of a few tries. Raises PeerLost, TimedOut."""
    empty, full = timed_looks(node, who, tries)
    return empty / 2, max((full - empty) / (4 * FREIGHT_LENGTH), SECONDS_PER_BYTE_MIN)


def timed_looks(node: Node, who: Party, tries: int) -> tuple[float, float]:
    """Seconds until nothing has come from `who`, and FREIGHT_LENGTH numbers: the best of a few tries.

    Raises PeerLost, TimedOut.
    """
    empty, full = (min(_timed_peek(node, who, what) for _ in range(tries)) for what in (PRESENCE, FREIGHT))
    return empty, full


def _timed_peek(node: Node, who: Party, what: str) -> float:
    began = time.monotonic()
    node.peek_at(who, what)
    return time.monotonic() - began
