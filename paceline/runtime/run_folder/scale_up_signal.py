"""A run that is asked, from outside, for one worker more: SIGUSR1 to the process that leads it (`paceline grow`)."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

GROWS = "{0.beginning} of {0.workers} workers begin; `paceline grow` starts another while training goes on"


@contextmanager
def asked_to_grow(grow: Callable[[], None] | None) -> Iterator[None]:
    """`grow` is called for each signal, where the program has no use of its own for it; None heeds none."""
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
    """Does this process heed it, and not for a use of the program's own?"""
    return getattr(signal.getsignal(signal.SIGUSR1), "__module__", "") == __name__
