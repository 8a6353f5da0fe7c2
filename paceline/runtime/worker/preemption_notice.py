"""Handles SIGTERM to one worker: its machine is wanted back. The worker is drained: it finishes its step and leaves.

SIGTERM                       then
the first, in training        the step is handed over, the worker leaves, and the others go on
the first, as the run ends    nothing: signals to a whole process group come then
the second                    the process ends as usual
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

from paceline.live.control.session import Session

REASON = "SIGTERM"
"""Why the worker has left, as the trace says it."""


class PreemptionNotice:
    """Handles the signal until `close`, unless the program has a handler of its own."""

    def __init__(self, session: Session) -> None:
        self._session = session
        main = threading.current_thread() is threading.main_thread()  # no other may ask for signals
        self._heeds = main and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        self._warned = False
        if self._heeds:
            signal.signal(signal.SIGTERM, self._heard)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # whoever has forked us may hold it until now

    def _heard(self, number: int, frame: FrameType | None) -> None:
        """Notes the first signal; the second one ends the process."""
        if self._warned:
            self.close()
            os.kill(os.getpid(), number)
        self._warned = True
        if not self._session.over.is_set():
            self._session.notice = REASON

    def close(self) -> None:
        """Restores the default handler."""
        if self._heeds and threading.current_thread() is threading.main_thread():
            self._heeds = False
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
