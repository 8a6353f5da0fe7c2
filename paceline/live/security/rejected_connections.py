"""This logs who was disconnected, and why, in one line now and then, however many call."""

from __future__ import annotations

import logging
import time

LINE_SECONDS = 10.0
"""Seconds between two lines of the log."""
_log = logging.getLogger("paceline")


class Refusals:
    """This counts the refusals of one listener."""

    def __init__(self, me: str) -> None:
        self._me = me
        self._next, self._silent = 0.0, 0

    def note(self, peer: str, why: str) -> None:
        """Logs a rejected connection, or counts it if a line was logged less than LINE_SECONDS ago."""
        now = time.monotonic()
        if now < self._next:
            self._silent += 1
            return
        more = f" (and {self._silent} more before)" if self._silent else ""
        _log.warning("%s rejected a connection from %s: %s%s", self._me, peer, why, more)
        self._next, self._silent = now + LINE_SECONDS, 0
