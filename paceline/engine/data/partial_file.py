"""A file that is written beside the one that it will be."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def part_of(path: Path) -> Iterator[tuple[BinaryIO, Path]]:
    """The open file and its name; whoever has written it whole renames it to `path`. It is gone afterwards.

    Other processes may be at the same file, so each writes its own and holds a lock on it. What nobody holds was left
    by one that was killed, and is removed.
    """
    for name in glob.glob(f"{glob.escape(str(path))}*.part"):
        with contextlib.suppress(OSError), open(name, "rb") as left:  # somebody is at it, or removes it, too
            fcntl.flock(left, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
        fcntl.flock(out, fcntl.LOCK_EX)
        if os.path.exists(name):
            return out, Path(name)
        out.close()  # somebody took it for a left one before it was locked
