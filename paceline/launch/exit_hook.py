"""Notices how the script that this process runs comes to its end, since Python tells that to nobody who runs at exit.

how the script ends      `code`
by its last line         0
an exception             1, by sys.last_value
sys.exit(3)              3
sys.exit("a reason")     1
"""

from __future__ import annotations

import contextlib
import dis
import sys
import threading
from collections.abc import Iterator
from types import CodeType, FrameType, TracebackType
from typing import Any, NoReturn

from paceline.core.errors import CoordinatorVersion, NoCoordinator, PeerLost, Stopped
from paceline.runtime.spec.launcher import OTHER_VERSION_EXIT

MONITORS = (4, 3)
"""Tool numbers of sys.monitoring that Python reserves for nobody."""


class ScriptExit:
    """Records, from now on, the code that the script ends with.

    Python forgets it before anything runs at exit. From Python 3.12 on sys.monitoring reports when the script's
    first frame ends by an exception, so a SystemExit is seen whoever raises it. Before, `sys.exit` is replaced by
    one that notes the code; where the first frame has stopped says whether that has ended the script, or was caught.
    There a SystemExit raised by hand goes unnoticed, and so does an `exit` that was taken from `sys` earlier: to see
    those, the class itself would have to be replaced, and `except SystemExit` and threads would take the new one for
    an error.
    """

    def __init__(self) -> None:
        self._noted: Any = None
        self._first = sys._current_frames()[threading.main_thread().ident or 0]
        while self._first.f_back is not None:
            self._first = self._first.f_back
        if not self._watch():
            self._replace()

    @property
    def code(self) -> int:
        """Returns the exit code, 0 where all went well. It is for functions that run at exit."""
        if getattr(sys, "last_value", None) is not None:
            return 1  # an exception
        if self._noted is None or _has_run_through(self._first):
            return 0
        return self._noted if isinstance(self._noted, int) else 1  # anything else is printed, as the reason

    def _watch(self) -> bool:
        """Asks sys.monitoring for exceptions that leave the first frame; returns False where it cannot.

        This costs nothing while none is raised.
        """
        if sys.version_info < (3, 12):
            return False
        monitoring = sys.monitoring
        number = next((number for number in MONITORS if monitoring.get_tool(number) is None), None)
        if number is None:
            return False

        def left(code: CodeType, _offset: int, error: BaseException) -> None:
            """Notes the exit code of a SystemExit that leaves the script's outermost frame."""
            if code is self._first.f_code and isinstance(error, SystemExit):
                self._noted = error.code

        monitoring.use_tool_id(number, "paceline")
        monitoring.register_callback(number, monitoring.events.PY_UNWIND, left)
        monitoring.set_events(number, monitoring.events.PY_UNWIND)
        return True

    def _replace(self) -> None:
        """Replaces `sys.exit` by one that notes the code."""
        plain = sys.exit

        def noting(code: Any = None, /) -> NoReturn:
            """Notes the code, then exits as `sys.exit` does."""
            self._noted = code
            plain(code)

        sys.exit = noting


def say_nothing_of_lost_peers() -> None:
    """Prints no traceback, from now on, for a script that ends because another party was lost.

    The launcher says in its last line who was lost, and why; a traceback of each survivor would bury it. A script that
    comes when there is no coordinator has perhaps no launcher either: one line says so.
    """
    usual = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """Prints an error as usual, unless it says that another process was lost."""
        if isinstance(error, NoCoordinator):
            print(f"paceline: {error}", file=sys.stderr)
        elif not issubclass(kind, PeerLost):
            usual(kind, error, trace)

    sys.excepthook = hook


@contextlib.contextmanager
def exit_if_too_late(who: str) -> Iterator[None]:
    """Ends the script with exit code 0 and one line where the run is over before `who` takes part in it.

    So it is with a worker that is started again, or comes late, while the others finish. Where the run speaks another
    version of the protocol, one line says so, and the exit code tells the run's supervisor.
    """
    try:
        yield
    except CoordinatorVersion as error:
        print(f"paceline: {error}", file=sys.stderr)
        sys.exit(OTHER_VERSION_EXIT)
    except Stopped as over:
        why = f" ({over})" if str(over) else ""
        print(f"paceline: the run was over{why} before {who} took part: it has nothing to train", file=sys.stderr)
        sys.exit(0)


def _has_run_through(frame: FrameType) -> bool:
    """Returns True if that frame has come to its last instruction."""
    at = frame.f_lasti
    return at >= 0 and dis.opname[frame.f_code.co_code[at]].startswith("RETURN")
