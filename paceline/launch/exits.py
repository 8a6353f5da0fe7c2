"""How the script that this process runs comes to its end; nobody tells what runs at exit."""

from __future__ import annotations

import dis
import sys
import threading
from typing import Any, NoReturn


class Exit:
    """From now on: the code that the script ends with.

    Python forgets it before anything runs at exit, so `sys.exit` is replaced by one that notes it; where the script's
    first frame has stopped says whether that has ended the script, or was caught. SystemExit that somebody raises by
    hand goes unnoticed, and so does an `exit` that was taken from `sys` earlier: to see those, the class itself would
    have to be another one, which `except SystemExit` and threads then take for an error.
    """

    def __init__(self) -> None:
        self._noted: Any = None
        self._first = sys._current_frames()[threading.main_thread().ident or 0]
        while self._first.f_back is not None:
            self._first = self._first.f_back
        plain = sys.exit

        def noting(code: Any = None, /) -> NoReturn:
            self._noted = code
            plain(code)

        sys.exit = noting

    @property
    def code(self) -> int:
        """0 where all went well; for what runs at exit."""
        if getattr(sys, "last_value", None) is not None:
            return 1  # an exception
        if self._noted is None or self._has_run_through():
            return 0
        return self._noted if isinstance(self._noted, int) else 1  # anything else is printed, as the reason

    def _has_run_through(self) -> bool:
        """Has the script come to its last line?"""
        at = self._first.f_lasti
        return at >= 0 and dis.opname[self._first.f_code.co_code[at]].startswith("RETURN")
