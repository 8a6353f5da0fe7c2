"""Calls functions of the user's own with every record while a run goes on: for Weights & Biases, MLflow, a mail.

A hook is `module:name`. A function of that name is called with each `paceline.core.trace.Record`, in the order in
which they came in. A class is made anew for each run, with the run's folder, and its object is called; if that has a
method `close`, it is called when the run is over. docs/observing.md has examples.

The rule of this file: a hook may be slow or broken, and the run never is. Hooks have a thread of their own; one that
raises is reported and not called again; records that it cannot keep up with are dropped, and counted.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from paceline.core.errors import ConfigError
from paceline.core.trace import Record

Hook = Callable[[Record], Any]
WAITING_MAX = 100_000
"""Records that may wait for slow hooks; further ones are dropped."""
CLOSE_SECONDS = 10.0
"""Seconds that the end of a run waits for hooks."""
_log = logging.getLogger("paceline")


def load(names: str, out: str) -> list[Hook]:
    """Loads the callables of `module:name`, separated by commas, for the run in the folder `out`.

    Modules are looked for in the working directory too. Raises ConfigError, naming what is not there.
    """
    if names and not {"", os.getcwd()} & set(sys.path):
        sys.path.append(os.getcwd())
    return [_load(name.strip(), out) for name in names.split(",") if name.strip()]


def _load(name: str, out: str) -> Hook:
    """Returns one hook. Raises ConfigError for whatever goes wrong in the user's module."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise ConfigError(f"--hook {name}: say module:function, such as my_hooks:log")
    try:
        found = getattr(importlib.import_module(module), attribute)
        hook = found(out) if isinstance(found, type) else found
    except Exception as error:  # it is the user's code, which may fail as it likes
        raise ConfigError(f"--hook {name}: {type(error).__name__}: {error}") from error
    if not callable(hook):
        raise ConfigError(f"--hook {name}: nothing that can be called, but a {type(hook).__name__}")
    return hook  # type: ignore[no-any-return]


class Hooks:
    """Calls hooks with records. `append` never waits and may be called from any thread; without hooks it costs a
    comparison."""

    def __init__(
        self, calls: Sequence[Hook], *, waiting_max: int = WAITING_MAX, close_seconds: float = CLOSE_SECONDS
    ) -> None:
        self._calls = list(calls)
        self._waiting: deque[Record] = deque()
        self._waiting_max, self._close_seconds = waiting_max, close_seconds
        self._dropped = 0
        self._closed = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def append(self, record: Record) -> None:
        """Queues a record for the hooks."""
        if not self._calls:
            return
        with self._changed:
            if self._closed:
                return
            if len(self._waiting) >= self._waiting_max:
                self._dropped += 1
                return
            self._waiting.append(record)
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="hooks", daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        """Waits until the hooks have had every record, unless they are too slow. Closing twice is harmless."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is None:
            return
        self._thread.join(self._close_seconds)
        missed = self._dropped + (len(self._waiting) if self._thread.is_alive() else 0)
        if missed:
            _log.warning("hooks were too slow: %d records did not reach them", missed)
        self._thread = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def _serve(self) -> None:
        """Calls the hooks, on their thread, until `close` and until nothing waits."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    break
                record = self._waiting.popleft()
            for call in list(self._calls):
                self._guarded(call, call, record)
        for call in list(self._calls):
            if hasattr(call, "close"):
                self._guarded(call, call.close)

    def _guarded(self, hook: Hook, act: Callable[..., object], *arguments: Record) -> None:
        """Calls a hook; one that raises is logged, and not called again."""
        try:
            act(*arguments)
        except Exception as error:
            self._calls.remove(hook)
            name = getattr(hook, "__qualname__", type(hook).__name__)
            _log.warning("hook %s raised %s: %s; it is not called again", name, type(error).__name__, error)
