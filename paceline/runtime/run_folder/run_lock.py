"""One run at a time writes into a folder.

The lock is the kernel's (flock), so that it ends with its process, however that ends. Who holds it is written into the
file: for the line that the second one reads, and for folders that several machines share, where the kernel of one may
know nothing of the other's lock. On file systems without locks that is all there is.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
from pathlib import Path

from paceline.core.errors import ConfigError
from paceline.runtime.run_folder.status_file import born

LOCK = ".lock"
WITHOUT_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOLCK)


class Claim:
    """On the folder `out`, which is made if need be, from now on until `release`."""

    def __init__(self, out: Path) -> None:
        """Raises ConfigError, naming host and process, where another run writes there."""
        self._path = out / LOCK
        try:
            out.mkdir(parents=True, exist_ok=True)
            self._file = self._locked()
        except OSError as error:
            raise self._unusable(error) from None
        host, pid = _holder(self._file)
        if host and host != socket.gethostname():
            os.close(self._file)
            raise ConfigError(
                f"--out {out}: a run of host {host} (pid {pid}) writes there, or ended without a word; "
                f"name another folder, or remove {self._path} if that run is over"
            )
        try:  # of this host, it is dead: the kernel has given its lock away
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"{socket.gethostname()} {os.getpid()}\n".encode(), 0)
        except OSError as error:  # a disk that is full takes the name and nothing else
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)
            os.close(self._file)
            raise self._unusable(error) from None

    def release(self) -> None:
        """Once."""
        with contextlib.suppress(OSError):  # the file system may have turned read-only; the kernel's lock goes anyway
            self._path.unlink(missing_ok=True)
        os.close(self._file)

    def _unusable(self, error: OSError) -> ConfigError:
        return ConfigError(f"--out {self._path.parent}: {error.strerror}")

    def _locked(self) -> int:
        while True:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise self._taken(file) from None
            except OSError as error:
                if error.errno not in WITHOUT_LOCKS:
                    os.close(file)
                    raise
                if _is_held(file):
                    raise self._taken(file) from None
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file), os.stat(self._path)):
                    return file
            os.close(file)  # its holder has just removed it

    def _taken(self, file: int) -> ConfigError:
        host, pid = _holder(file)
        os.close(file)
        who = f"another run (host {host}, pid {pid})" if pid else "another run"
        return ConfigError(
            f"--out {self._path.parent}: {who} writes there now: wait for its end, or name another folder"
        )


def _holder(file: int) -> tuple[str, str]:
    """Host and number of the process that has written itself down; empty where there is none."""
    host, _, pid = os.pread(file, 512, 0).decode(errors="replace").strip().partition(" ")
    return host, pid


def _is_held(file: int) -> bool:
    """By another process of this host, as far as that can be told without a lock."""
    host, pid = _holder(file)
    return host == socket.gethostname() and pid.isdecimal() and int(pid) != os.getpid() and bool(born(int(pid)))


def set_aside(trace: Path) -> None:
    """What the lives of a run before this one left of their traces: trace.1.jsonl, trace.2.jsonl, ..."""
    if trace.exists():
        names = (trace.with_name(f"trace.{n}.jsonl") for n in range(1, 1_000_000))
        trace.rename(next(path for path in names if not path.exists()))
