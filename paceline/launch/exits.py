"""How the script that this process runs comes to its end; nobody tells what runs at exit."""

from __future__ import annotations

import builtins
import dis
import sys
from types import FrameType
from typing import Any, NoReturn


class Exit:
    """From now on: the code that the script ends with.

    Python forgets it before anything runs at exit, so SystemExit and `sys.exit` are replaced by ones that note it; and
    where the first frame has stopped says whether that has ended the script, or was caught. An `exit` that was taken
    from `sys` earlier goes unnoticed.
    """

    def __init__(self) -> None:
        self._codes: list[Any] = [None]
        self._first: FrameType | None = sys._getframe()
        while self._first is not None and self._first.f_back is not None:
            self._first = self._first.f_back
        noted = _noting(self._codes)

        def leave(code: Any = None, /) -> NoReturn:
            raise noted(code)

        builtins.SystemExit = noted  # type: ignore[misc]
        sys.exit = leave

    @property
    def code(self) -> int:
        """0 where all went well; for what runs at exit."""
        if getattr(sys, "last_value", None) is not None:
            return 1  # an exception
        code = self._codes[-1]
        if code is None or self._has_run_through():
            return 0
        return code if isinstance(code, int) else 1  # anything else is printed, as the reason

    def _has_run_through(self) -> bool:
        """Has the script come to its last line?"""
        if self._first is None or self._first.f_lasti < 0:
            return False
        return dis.opname[self._first.f_code.co_code[self._first.f_lasti]].startswith("RETURN")


def _noting(codes: list[Any]) -> type[SystemExit]:
    class Noting(SystemExit):
        def __init__(self, *of: Any) -> None:
            super().__init__(*of)
            codes.append(self.code)

    Noting.__name__ = Noting.__qualname__ = "SystemExit"
    Noting.__module__ = "builtins"
    return Noting
