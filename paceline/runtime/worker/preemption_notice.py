"""SIGTERM to one worker: its machine is wanted back. It is drained: it finishes its step, hands it over, and leaves.

That is for the moments while it trains. One that finds the run ending already is taken to be meant for all of it, as
signals to a whole group are, and changes nothing. The second ends the process as usual.
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

from paceline.live.control.session import Session

REASON = "SIGTERM"


class PreemptionNotice:
    """Heeds the signal until `close`, where the program has no use of its own for it."""

    def __init__(self, session: Session) -> None:
        self._session = session
        main = threading.current_thread() is threading.main_thread()  # no other may ask for signals
        self._heeds = main and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        self._warned = False
        if self._heeds:
            signal.signal(signal.SIGTERM, self._heard)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # whoever has forked us may hold it until now

    def _heard(self, number: int, frame: FrameType | None) -> None:
        if self._warned:
            self.close()
            os.kill(os.getpid(), number)
        self._warned = True
        if not self._session.over.is_set():
            self._session.notice = REASON

    def close(self) -> None:
        if self._heeds and threading.current_thread() is threading.main_thread():
            self._heeds = False
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
