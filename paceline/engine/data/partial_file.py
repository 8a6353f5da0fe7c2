"""Writes a file beside the place where it will be, so that nobody sees half of it."""

from __future__ import annotations

import contextlib
import glob
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from paceline.core.files.file_lock import try_lock


@contextlib.contextmanager
def part_of(path: Path) -> Iterator[tuple[BinaryIO, Path]]:
    """Yields an open file and its name. The caller writes it whole and renames it to `path`; otherwise it is removed.

    Other processes may write the same file, so each writes its own and holds a lock on it. A file without a lock was
    left by a process that was killed, and is removed. Where there are no locks nothing is removed.
    """
    for name in glob.glob(f"{glob.escape(str(path))}*.part"):
        with contextlib.suppress(OSError), open(name, "rb") as left:  # somebody is at it, or removes it, too
            if try_lock(left.fileno()):
                os.unlink(name)
    out, part = _held(path)
    try:
        with out:
            yield out, part
    finally:
        part.unlink(missing_ok=True)


def _held(path: Path) -> tuple[BinaryIO, Path]:
    while True:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
        out = os.fdopen(handle, "wb")
        if try_lock(out.fileno()) is not False and os.path.exists(name):
            return out, Path(name)
        out.close()  # another process took it for a left one before it was locked, and removes it
