"""Tells which descriptors can be read or written, on each system in its own way.

`selectors` would do; but it makes an object and a dozen calls of each change, and with each wait for an answer a
connection is taken out and put back (`net/caller_reads.py`). On Linux `Epoll` makes one call of it.
"""

from __future__ import annotations

import math
import select
import selectors
import sys
from typing import Protocol

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
"""Bits of what is wanted of a descriptor, and of what it is ready for."""


class Readiness(Protocol):
    """Watches descriptors for one thread. A descriptor is registered until it is unregistered, also if it is closed."""

    def register(self, number: int, events: int) -> None:
        """Begins to watch a descriptor for READ, WRITE or both."""

    def modify(self, number: int, events: int) -> None:
        """Watches a registered descriptor for other events."""

    def unregister(self, number: int) -> None:
        """Stops watching a registered descriptor."""

    def select(self, seconds: float | None) -> list[tuple[int, int]]:
        """Returns the descriptors that are ready, each with its events; waits for one, for `seconds` at most."""

    def close(self) -> None:
        """Watches nothing any more."""


class Selectors:
    """Asks the best selector of the standard library."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def register(self, number: int, events: int) -> None:
        """Begins to watch a descriptor for READ, WRITE or both."""
        self._selector.register(number, events)

    def modify(self, number: int, events: int) -> None:
        """Watches a registered descriptor for other events."""
        self._selector.modify(number, events)

    def unregister(self, number: int) -> None:
        """Stops watching a registered descriptor; nothing is left to do if it is closed."""
        self._selector.unregister(number)

    def close(self) -> None:
        """Watches nothing any more."""
        self._selector.close()

    def select(self, seconds: float | None) -> list[tuple[int, int]]:
        """Returns the descriptors that are ready, each with its events; waits for one, for `seconds` at most."""
        return [(key.fd, events) for key, events in self._selector.select(seconds)]


if sys.platform == "linux":
    _MASKS = (0, select.EPOLLIN, select.EPOLLOUT, select.EPOLLIN | select.EPOLLOUT)

    class Epoll:
        """Asks epoll itself. An error or the end of a stream makes a descriptor ready for both."""

        def __init__(self) -> None:
            self._epoll = select.epoll()

        def close(self) -> None:
            """Watches nothing any more."""
            self._epoll.close()

        def register(self, number: int, events: int) -> None:
            """Begins to watch a descriptor for READ, WRITE or both."""
            self._epoll.register(number, _MASKS[events])

        def modify(self, number: int, events: int) -> None:
            """Watches a registered descriptor for other events."""
            self._epoll.modify(number, _MASKS[events])

        def unregister(self, number: int) -> None:
            """Stops watching a registered descriptor; nothing is left to do if it is closed."""
            try:  # noqa: SIM105  three calls less, with each wait for an answer
                self._epoll.unregister(number)
            except OSError:
                pass

        def select(self, seconds: float | None) -> list[tuple[int, int]]:
            """Returns the descriptors that are ready, each with its events; waits for one, for `seconds` at most."""
            # Milliseconds are rounded up, or a timer that is due in half of one would be waited for in a busy loop.
            wait = -1.0 if seconds is None else math.ceil(max(0.0, seconds) * 1e3) * 1e-3
            found = self._epoll.poll(wait)
            return [
                (number, (READ if mask & ~select.EPOLLOUT else 0) | (WRITE if mask & ~select.EPOLLIN else 0))
                for number, mask in found
            ]


def readiness() -> Readiness:
    """Returns what watches descriptors on this system."""
    return Epoll() if sys.platform == "linux" else Selectors()
