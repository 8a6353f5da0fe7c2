"""The command of a helper process: a program of Paceline's own, which does not see the current folder.

`python -m` puts that folder before the standard library, so a user's `signal.py`, `queue.py` or `torch/` would be
imported in place of the real ones. Only a script sees the folder from which it is run, as under plain Python.
"""

from __future__ import annotations

import os
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3))
"""The folder in which the package lies."""
FOLDER_LAST = (
    "import sys; sys.path.append(sys.path.pop(0)); import runpy; "
    "runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
)
"""A program for another host, where Paceline may lie in the current folder: that comes behind all others."""


def helper_command(module: str, *words: str) -> list[str]:
    """Returns the command that runs `module` with this interpreter.

    Where Paceline itself is imported from the current folder, as in a checkout, that folder stays visible.
    """
    return [sys.executable, *([] if _lies_in_current_folder() else ["-P"]), "-m", module, *words]


def words_on_host(module: str) -> list[str]:
    """Returns the words behind the interpreter of another host that run `module` there."""
    return ["-c", FOLDER_LAST.format(module=module)]


def hide_current_folder() -> None:
    """Takes the current folder off the path, where `python -m paceline` has put it in front."""
    if not sys.flags.safe_path and not _lies_in_current_folder():
        sys.path[:1] = []


def _lies_in_current_folder() -> bool:
    try:
        return os.path.samefile(os.getcwd(), ROOT)
    except FileNotFoundError:  # the current folder was deleted
        return False
