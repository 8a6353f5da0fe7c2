"""Locks an open file for one process at a time, by the kernel's `flock`.

The kernel releases such a lock when its process ends, however it ends. So a file without a lock has no live owner.

Not every system has it: Windows has no `fcntl`, and some network file systems refuse. Callers are told so (`None`) and
do without: nothing is swept, and a folder is not guarded against a second run.
"""

from __future__ import annotations

import errno

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

WITHOUT_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOLCK)
"""Errors of `flock` on file systems that have no locks."""


def try_lock(descriptor: int) -> bool | None:
    """Returns True if this process holds the lock of the open file now, and False if another one holds it.

    Returns None where the system or the file system has no locks. Never waits. Raises OSError for any other failure.
    """
    if fcntl is None:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in WITHOUT_LOCKS:
            raise
        return None
    return True
