"""Opens files of a folder that somebody else may have made: regular ones alone, and no more than is sensible."""

from __future__ import annotations

import errno
import os
import stat
from typing import BinaryIO

SMALL_BYTES_MAX = 64 << 20
"""Bytes of a file that is read as a whole, at most; the summary of 10,000 workers has 5 MiB."""


def open_regular(path: str | os.PathLike[str], *, follow: bool = False) -> BinaryIO:
    """Opens a file for reading. Raises OSError where it is none, or no regular file.

    Opening a FIFO would wait for ever, a device need not end, and a link may lead out of the folder. `follow`: links
    are followed, as where the user has named the file.
    """
    links = 0 if follow else os.O_NOFOLLOW
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | links | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
    except BaseException:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def read_regular(path: str | os.PathLike[str], bytes_max: int = SMALL_BYTES_MAX, *, follow: bool = False) -> bytes:
    """Returns what is in such a file. Raises OSError, also where that is more than `bytes_max`."""
    with open_regular(path, follow=follow) as file:
        content = file.read(bytes_max + 1)
    if len(content) > bytes_max:
        raise OSError(errno.EFBIG, f"more than {bytes_max} bytes", str(path))
    return content
