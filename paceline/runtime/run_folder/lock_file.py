"""Reads and judges the lock file of a run's folder: who holds the lock, and whether that process still renews it.

    HOST PID BOOT RUN LEASE BEAT        one line; BOOT and RUN tell hosts and runs of one name apart

The holder changes BEAT and the file's time every RENEW_SECONDS. Whoever waits looks at the file every LOOK_SECONDS:
when nothing of it changed for LEASE seconds of the waiter's own monotonic clock, the lease has expired. Clocks of
two hosts are never compared.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from paceline.core.errors import LockLost
from paceline.core.files.regular_file import open_regular
from paceline.live.host_info import boot_id

LOCK = ".lock"
"""The lock's file, in the run's folder."""
LEASE_SECONDS = 20.0
"""Seconds without a renewal after which a lock counts as abandoned: ten renewals, so that a slow file server is no
reason."""
RENEW_SECONDS = 2.0
"""Seconds between two renewals of a lock."""
LOOK_SECONDS = 0.5
"""Seconds between two looks of whoever waits for a lock."""
BYTES_MAX = 512
"""Bytes of the file that are read; a line is shorter."""
UNKNOWN = "-"
"""Stands for a boot that this system does not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockHolder:
    """Describes the holder of a lock. `run` is derived from the run's token.

    `lease_s` is 0 for a lock that nobody renews, as earlier versions wrote it.
    """

    host: str
    pid: str
    boot: str = UNKNOWN
    run: str = ""
    lease_s: float = 0.0

    def __str__(self) -> str:
        return f"host {self.host}, pid {self.pid}"

    def line(self, beat: int) -> bytes:
        """Returns the line that the holder writes; it is always of one length, so that a full disk has room for it."""
        return f"{self.host} {self.pid} {self.boot} {self.run} {self.lease_s:g} {beat:012}\n".encode()

    def is_here(self, *, locks: bool) -> bool:
        """Returns True if the holder runs on this machine since its present boot, so that its process can be looked up.

        `locks`: the file system has locks, which reach into other containers; process IDs do not.
        """
        here = self.boot in (UNKNOWN, boot_id() or UNKNOWN)
        return here and (self.host == socket.gethostname() or (locks and self.boot != UNKNOWN))


def this_process(token: str) -> LockHolder:
    """Returns the holder that this process is, for the run with that token."""
    run = run_id(token)
    return LockHolder(
        host=socket.gethostname(), pid=str(os.getpid()), boot=boot_id() or UNKNOWN, run=run, lease_s=LEASE_SECONDS
    )


def run_id(token: str) -> str:
    """Returns 16 hexadecimal digits for a run's token, which does not reveal it."""
    return hashlib.sha256(f"lock {token}".encode()).hexdigest()[:16]


def holder_in(data: bytes) -> LockHolder | None:
    """Returns the holder that the file names, or None; whatever cannot be read is left out."""
    host, pid, boot, run, lease, *_ = [*data[:BYTES_MAX].decode(errors="replace").split(), *[""] * 5]
    if not host:
        return None
    seconds = 0.0
    with contextlib.suppress(ValueError):
        seconds = float(lease or 0.0)
    within = 0.0 < seconds <= 10 * LEASE_SECONDS  # what nobody can have written is no lease
    return LockHolder(host=host, pid=pid or "?", boot=boot or UNKNOWN, run=run, lease_s=seconds if within else 0.0)


def read(path: Path) -> tuple[LockHolder | None, tuple[object, ...]]:
    """Returns the holder, and all that a renewal would change. Raises OSError.

    The file is opened anew each time, because NFS then asks the server instead of its cache.
    """
    with open_regular(path) as file:
        data, status = file.read(BYTES_MAX), os.fstat(file.fileno())
    return holder_in(data), (data, status.st_ino, status.st_mtime_ns)


class LockWatch:
    """Watches a lock file for signs of life.

    Time in which this process itself did not look, as when it was stopped, does not count.
    """

    def __init__(self, path: Path, clock: Callable[[], float], pause: Callable[[float], object]) -> None:
        self._path, self._clock, self._pause = path, clock, pause

    def expires(self, lease_s: float) -> bool:
        """Waits until the lock was not renewed for `lease_s` seconds or is gone (True), or is renewed after that time
        (False).

        So a holder that ends within the first `lease_s` is waited for, at most as long again.
        """
        seen = self._look()
        silent = watched = 0.0
        before = self._clock()
        while seen is not None and silent < lease_s:
            self._pause(LOOK_SECONDS)
            now, look = self._clock(), self._look()
            # If this process was stopped (SIGSTOP, a suspended machine), the holder may have renewed unseen.
            passed = min(now - before, 2 * LOOK_SECONDS)
            before, watched = now, watched + passed
            silent = silent + passed if look == seen else 0.0
            if look is not None and look != seen and watched >= lease_s:
                return False
            seen = look
        return True

    def _look(self) -> tuple[object, ...] | None:
        """Returns what a renewal would change; None where the file is gone.

        A file that cannot be read, as while a file server restarts, counts as unchanged.
        """
        try:
            return read(self._path)[1]
        except FileNotFoundError:
            return None
        except OSError as error:
            return (error.errno,)


class LockFence:
    """Lets the processes of a run write into its folder only as long as that run holds the lock.

    Whoever writes a result checks it first. A write that began before another run took the folder may still end after
    that.
    """

    def __init__(self, out: Path, token: str) -> None:
        self._out, self._run = out, run_id(token)

    @property
    def why_not(self) -> str:
        """Returns why this run may not write any more; "" while it may, or while nobody can tell."""
        try:
            holder, _ = read(self._out / LOCK)
        except FileNotFoundError:
            return f"the lock of {self._out} was removed" if self._out.is_dir() else ""
        except OSError:
            return ""  # where nothing can be read, nobody else writes either
        if holder is not None and holder.run == self._run:
            return ""
        who = f"another run ({holder})" if holder else "another run"  # it has emptied the file, and is about to write
        return f"{who} has taken {self._out} over"

    def check(self) -> None:
        """Raises LockLost if this run may not write into its folder any more."""
        if why := self.why_not:
            raise LockLost(f"{why}: this run writes nothing there any more")
