"""A capture in a thread of its own: it waits for rounds to end, and the evaluator evaluates meanwhile.

    evaluator's thread                     thread of the capture
    begin                                  asks servers and workers, waits until all have kept their state, reads it
    evaluates, rests, evaluates            ...
    is woken by `done`                     ends, with what it has read or with an error
    take: returns that, or raises it

One capture is under way at a time. What the two threads share (the node, the session) serves any thread; modules are
touched by the evaluator's thread alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")


class BackgroundCapture(Generic[T]):
    """Runs one capture after the other. Its methods are called by one thread."""

    def __init__(self) -> None:
        self._future: Future[T] | None = None

    @property
    def under_way(self) -> bool:
        """Returns True from `begin` to `take`."""
        return self._future is not None

    @property
    def complete(self) -> bool:
        """Returns True if `take` would return, or raise, at once."""
        return self._future is not None and self._future.done()

    def begin(self, capture: Callable[[], T], done: Callable[[], None]) -> None:
        """Begins `capture` in a thread, which calls `done` at its end. None may be under way."""
        assert self._future is None, "a capture is under way"
        future: Future[T] = Future()
        self._future = future
        # A daemon: a party that ends because its run has failed does not wait for it.
        threading.Thread(target=_run, args=(future, capture, done), name="capture", daemon=True).start()

    def take(self) -> T:
        """Waits for the end of the capture that is under way; returns what it has read, or raises its error."""
        assert self._future is not None, "no capture is under way"
        future, self._future = self._future, None
        return future.result()


def _run(future: Future[T], capture: Callable[[], T], done: Callable[[], None]) -> None:
    """Is the thread's main function."""
    try:
        found = capture()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(found)
    done()
