"""Chooses where a result of a run goes when its folder cannot be written: into another one, which is named.

A disk may be full, a file system may have turned read-only, a folder may have lost its permissions. A model or
summary is then put under the folder for temporary files, /var/tmp or /dev/shm, whichever takes it. All processes of
a run on one host find the same place; nobody else can have made it, since its name follows from the token of the
run.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

PREFIX = "paceline-result-"
"""Names of folders begin with this that are made where the run's own cannot be written."""


def put(out: Path, name: str, token: str, write: Callable[[Path], None]) -> str:
    """Writes file `name` of the run in `out`, by `write`; returns a line that says where it is if it is not in `out`.

    `write` gets a path, and leaves a whole file there or raises OSError. Raises the OSError of `out` if no other
    folder takes the file either.
    """
    try:
        write(out / name)
        return ""
    except OSError as error:
        reason = error.strerror or str(error)
        for folder in _folders(token):
            try:
                folder.mkdir(mode=0o700, exist_ok=True)
                if _ours(folder):
                    write(folder / name)
                    return f"{name} is in {folder}, as {out} cannot be written: {reason}"
            except OSError:
                with contextlib.suppress(OSError):  # it is full as well: nothing is left there
                    folder.rmdir()
        raise


def found(name: str, token: str) -> Path | None:
    """Returns the file that `put` has written elsewhere, or None."""
    return next((folder / name for folder in _folders(token) if _ours(folder) and os.path.exists(folder / name)), None)


def _folders(token: str) -> Iterator[Path]:
    """Yields the folders that are tried, in order, each named by a hash of the token."""
    name = PREFIX + hashlib.sha256(token.encode()).hexdigest()[:16]
    for base in dict.fromkeys((tempfile.gettempdir(), "/var/tmp", "/dev/shm")):
        yield Path(base) / name


def _ours(folder: Path) -> bool:
    """Returns True for a folder that only this user can enter. In a folder like /tmp another user could have made it,
    or a link."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not stat.S_IMODE(status.st_mode) & 0o077
