"""How the script that this process runs comes to its end; nobody tells what runs at exit."""

from __future__ import annotations

import sys
from typing import Any, NoReturn


class Exit:
    """From now on: the code that the script ends with.

    Python forgets it before anything runs at exit, so `sys.exit` is replaced by one that notes it. SystemExit that
    somebody raises by hand goes unnoticed, and so does an `exit` that was taken from `sys` earlier.
    """

    def __init__(self) -> None:
        self._noted: Any = None
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
        if self._noted is None or isinstance(self._noted, int):
            return self._noted or 0
        return 1  # anything else is printed, as the reason
