"""Writes a file so that it is there whole or not at all, whenever its writer is killed.

    1. the bytes go into a draft beside the file's place
    2. fsync of the draft           its bytes are on the disk before it has the file's name
    3. rename                       replaces the old file at once
    4. fsync of the folder          the new name is on the disk

After an fsync that failed the draft is thrown away and not tried again: the kernel has marked its pages clean, so a
second fsync would succeed without writing them (Rebello et al., USENIX ATC 2020).
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Iterable
from pathlib import Path

from paceline.checkpoint.disk import REAL_DISK, Disk

DRAFT = ".draft-"


def write(path: Path, chunks: Iterable[bytes], disk: Disk = REAL_DISK) -> tuple[int, int]:
    """Puts `chunks` at `path`. Returns the bytes written and their CRC-32.

    Raises OSError; what was at `path` before is then still there.
    """
    draft = path.with_name(f"{DRAFT}{os.getpid()}-{path.name}")
    size = checksum = 0
    try:
        with disk.create(draft) as file:
            for chunk in chunks:
                file.write(chunk)
                size, checksum = size + len(chunk), zlib.crc32(chunk, checksum)
            file.sync()
        disk.replace(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):
            disk.unlink(draft)
        raise
    disk.settle(path.parent)
    return size, checksum
