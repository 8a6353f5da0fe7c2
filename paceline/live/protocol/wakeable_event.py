"""An event whose waiters may wait for sockets at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable


class WakeableEvent:
    """Is set once and stays set. `set` calls each of `wakers`, whoever waits in whatever way it waits.

    A waiter appends its waker, looks at `is_set`, and only then waits: so no setting is missed, and no lock is needed.
    """

    __slots__ = ("is_set", "wakers")

    def __init__(self) -> None:
        self.is_set = False
        self.wakers: list[Callable[[], object]] = []

    def set(self) -> None:
        """Sets the event and wakes all that wait for it, from any thread."""
        self.is_set = True
        for wake in tuple(self.wakers):
            wake()

    def wait(self, timeout_s: float) -> bool:
        """Waits for nothing else; returns whether it is set."""
        if self.is_set:
            return True
        woken = threading.Event()
        self.wakers.append(woken.set)
        try:
            return self.is_set or woken.wait(timeout_s)
        finally:
            self.wakers.remove(woken.set)
