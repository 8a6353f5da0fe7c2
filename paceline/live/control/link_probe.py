"""Measures latency and bandwidth of the link from another party.

It times two reads: an empty state (PRESENCE), which takes one round trip, and one of 1 MiB (FREIGHT). The difference is
the time of the bytes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from paceline.core.adaptive.repeated_timing import best_and_least, repeated
from paceline.core.coordination.party import Party
from paceline.live.node.node import Node
from paceline.live.node.published_state import FREIGHT, FREIGHT_LENGTH, PRESENCE

TRIES = 3
"""Measurements of each kind; the best counts."""
SECONDS_PER_BYTE_MIN = 1e-10  # what comes by shared memory is there at once, but has to be read by somebody
"""The fastest link that is reported: what comes by shared memory is there at once, but has to be read."""


def measure_link(node: Node, who: Party, tries: int = TRIES) -> tuple[float, float]:
    """Returns one-way latency in seconds, and seconds a byte from `who`: the best of a few tries.

    Raises PeerLost, TimedOut.
    """
    empty, full = timed_looks(node, who, tries)
    return empty / 2, max((full - empty) / (4 * FREIGHT_LENGTH), SECONDS_PER_BYTE_MIN)


class LinkRounds:
    """Measures in rounds how fast bytes come from another party.

    `measure` is called at several moments, since what keeps a host busy for a while spoils all rounds of one moment.
    """

    def __init__(self, look: Callable[[str], float]) -> None:
        """`look` returns the seconds that reading PRESENCE, or FREIGHT, took."""
        self._look = look
        self._empty = math.inf
        self._full: list[float] = []

    def measure(self) -> None:
        """Makes one round. Raises what `look` raises."""
        self._empty = min(self._empty, *(self._look(PRESENCE) for _ in range(TRIES)))
        self._full += repeated(lambda: self._look(FREIGHT))

    @property
    def speeds(self) -> tuple[float, float]:
        """Returns the measured bytes a second, and how many the link may really have, given the noise."""
        best, least = best_and_least([self._seconds_per_byte(full) for full in self._full])
        return 1 / best, 1 / least

    def _seconds_per_byte(self, full: float) -> float:
        """Returns the seconds a byte of a message that took `full` seconds, less those of an empty one."""
        return max((full - self._empty) / (4 * FREIGHT_LENGTH), SECONDS_PER_BYTE_MIN)


def timed_looks(node: Node, who: Party, tries: int) -> tuple[float, float]:
    """Returns the seconds of reading nothing, and FREIGHT_LENGTH numbers, from `who`: the best of a few tries.

    Raises PeerLost, TimedOut.
    """
    empty, full = (min(timed_look(node, who, what) for _ in range(tries)) for what in (PRESENCE, FREIGHT))
    return empty, full


def timed_look(node: Node, who: Party, what: str) -> float:
    """Returns the seconds until another party's published state was here."""
    began = time.monotonic()
    node.read_state_of(who, what)
    return time.monotonic() - began
