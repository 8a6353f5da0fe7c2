"""Lets a run be asked from outside for one worker more: by SIGUSR1 to the process that leads it (`paceline grow`)."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

GROWS = "{0.beginning} of {0.workers} workers begin; `paceline grow` starts another while training goes on"
"""The line that tells the user that workers can be added; `{0}` is the section `[cluster]`."""


@contextmanager
def asked_to_grow(grow: Callable[[], None] | None) -> Iterator[None]:
    """Calls `grow` for each SIGUSR1 while the block runs, unless the program has a use of its own for it. None: never.

    Only the main thread may set signal handlers, so elsewhere this does nothing.
    """
    main = threading.current_thread() is threading.main_thread()  # no other may ask for signals
    heeds = grow is not None and main and signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL
    if heeds:
        signal.signal(signal.SIGUSR1, lambda _number, _frame: grow and grow())
    try:
        yield
    finally:
        if heeds:
            signal.signal(signal.SIGUSR1, signal.SIG_DFL)


def grows() -> bool:
    """Returns True if this process handles SIGUSR1 by this module."""
    return getattr(signal.getsignal(signal.SIGUSR1), "__module__", "") == __name__
