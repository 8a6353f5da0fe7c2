"""This makes folders for temporary files that no process leaves behind for good.

A folder goes with the process that made it. One that was killed (SIGKILL, a lost power supply) leaves its folder, with
keys in it at times; the next run of the same user on this host removes it. Whether a folder has an owner is told by a
lock of the kernel's on a file in it, which ends with its holders however they end.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from pathlib import Path

from paceline.core.files.file_lock import try_lock

PREFIX = "paceline-"
OWNER = ".owner"
"""The file that is locked. A folder without one, such as of results that had to go elsewhere, is nobody's to remove."""


class TemporaryFolder(tempfile.TemporaryDirectory):  # type: ignore[type-arg]
    """Like `tempfile.TemporaryDirectory`, readable by its owner alone; removes those of the dead when it is made."""

    def __init__(self, purpose: str = "") -> None:
        """`purpose`: part of its name, such as `keys`. Raises OSError where none can be made."""
        sweep(Path(tempfile.gettempdir()))
        super().__init__(prefix=f"{PREFIX}{purpose}-" if purpose else PREFIX)
        self._lock = _locked(Path(self.name))

    def cleanup(self) -> None:
        super().cleanup()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _locked(folder: Path) -> int | None:
    """A descriptor that holds the lock of `folder`; None where its file system has no locks, and nobody sweeps it."""
    draft = folder / f"{OWNER}.draft"  # gets its name once it is locked, lest somebody find it before
    descriptor = os.open(draft, os.O_CREAT | os.O_RDWR | os.O_EXCL | os.O_CLOEXEC, 0o600)
    if not _locks(descriptor):
        os.close(descriptor)
        draft.unlink()
        return None
    draft.rename(folder / OWNER)
    return descriptor


def sweep(among: Path) -> list[Path]:
    """Removes folders in `among` that processes of this user have left when they were killed; returns them."""
    swept: list[Path] = []
    if not hasattr(os, "getuid"):  # Windows: neither owners nor locks are known
        return swept
    with contextlib.suppress(OSError):
        for folder in sorted(among.glob(f"{PREFIX}*")):
            if _has_no_owner(folder):
                shutil.rmtree(folder, ignore_errors=True)
                swept.append(folder)
    return swept


def _has_no_owner(folder: Path) -> bool:
    """Is it a folder of this user's, whose lock nobody holds? Links are not followed."""
    try:
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            return False
        descriptor = os.open(folder / OWNER, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return _locks(descriptor)
    finally:
        os.close(descriptor)


def _locks(descriptor: int) -> bool:
    """Returns True if the file is locked now; False if another process holds it, or there are no locks."""
    try:
        return try_lock(descriptor) is True
    except OSError:
        return False
