"""A file that is there whole or not at all, whenever its writer is killed.

Written beside its place, brought to the disk, and only then given its name. After an fsync that failed the draft is
thrown away and not tried again: the kernel has marked its pages clean (Rebello et al., USENIX ATC 2020).
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Iterable
from pathlib import Path

DRAFT = ".draft-"


def write(path: Path, chunks: Iterable[bytes]) -> tuple[int, int]:
    """Put `chunks` at `path`; bytes written and their CRC-32. Raises OSError, and what was at `path` is still there."""
    draft = path.with_name(f"{DRAFT}{os.getpid()}-{path.name}")
    size = checksum = 0
    try:
        with draft.open("wb") as file:
            for chunk in chunks:
                file.write(chunk)
                size, checksum = size + len(chunk), zlib.crc32(chunk, checksum)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
    settle(path.parent)
    return size, checksum


def settle(folder: Path) -> None:
    """Bring the names in `folder` to the disk. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
