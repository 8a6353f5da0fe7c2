"""Locks a run's folder, so that only one run at a time writes into it.

The lock is the kernel's (flock), so that it ends with its process, however that ends. For folders that several
machines share, where the kernel of one may know nothing of the other's lock, the file also names its holder, which
renews it (`paceline.runtime.run_folder.lock_file`): a run that goes on with another one's work takes the lock of a
silent holder over, by a new file in the old one's place. The old holder, if it runs on, finds that and writes no
more.

    the lock file                                   a new run
    is not there, or names nobody                   takes it
    names a process of this host, which is dead     takes it: the kernel has released the lock
    names a process of this host, which lives       ConfigError
    names another host                              ConfigError; with `waits`, takes it once the lease has expired
"""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path

from paceline.core.errors import ConfigError
from paceline.core.files.file_lock import try_lock
from paceline.runtime.run_folder.lock_file import (
    BYTES_MAX,
    LOCK,
    LOOK_SECONDS,
    RENEW_SECONDS,
    LockFence,
    LockHolder,
    LockWatch,
    holder_in,
    read,
    this_process,
)
from paceline.runtime.run_folder.status_file import born


def _pause(seconds: float) -> None:
    """Waits, as `time.sleep` does; that is banned in this package, since handlers must not use it."""
    threading.Event().wait(seconds)


class RunLock:
    """Holds the lock of the folder `out`, which is made if need be, from now on until `release`."""

    def __init__(
        self,
        out: Path,
        token: str = "",
        *,
        waits: bool = False,
        say: Callable[[str], None] = lambda line: None,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] = _pause,
    ) -> None:
        """Takes the lock. Raises ConfigError, naming host and process, where another run writes there.

        `token`: of the run. `waits`: wait for the lease of a holder on another host to expire; `say` tells for whom.
        """
        self._path, self._waits, self._say, self._pause = out / LOCK, waits, say, pause
        self._watch = LockWatch(self._path, clock, pause)
        self._token = token or secrets.token_hex(16)
        self._me, self._beat = this_process(self._token), 0
        self.fence = LockFence(out, self._token)
        self._ends = threading.Event()
        self._renewing: threading.Thread | None = None
        try:
            out.mkdir(parents=True, exist_ok=True)
            self._file = self._taken()
        except OSError as error:
            raise self._unusable(error) from None

    # ---- while it is held --------------------------------------------------------------------------------
    def keep_renewing(self, lost: Callable[[str], None]) -> None:
        """Renews the lock on a thread of its own until `release`; calls `lost` once if another run has taken it."""

        def run() -> None:
            """Renews the lock until it ends, or is found to be another run's."""
            while not self._ends.wait(RENEW_SECONDS):
                if why := self.renew():
                    lost(why)
                    return

        self._renewing = threading.Thread(target=run, name="lock", daemon=True)
        self._renewing.start()

    def renew(self) -> str:
        """Shows that this process lives; returns why it does not hold the lock any more, or ""."""
        if why := self.fence.why_not:
            return why
        self._beat += 1
        with contextlib.suppress(OSError):  # a full or read-only disk is no reason to end; nobody else can write there
            os.pwrite(self._file, self._me.line(self._beat), 0)
            os.utime(self._file)  # NFS sends what was written before it sends this
        return ""

    def release(self) -> None:
        """Releases the lock. It is called once."""
        self._ends.set()
        if self._renewing is not None:
            self._renewing.join()
        with contextlib.suppress(OSError):  # the file system may have turned read-only; the kernel's lock goes anyway
            if not self.fence.why_not:  # else it is another run's by now
                self._path.unlink(missing_ok=True)
        os.close(self._file)

    # ---- how it is had -----------------------------------------------------------------------------------
    def _taken(self) -> int:
        """Returns the file, locked and with our name. Raises ConfigError and OSError."""
        while True:
            file, is_locked = self._opened()
            holder = _holder(file)
            if holder is None or holder.is_here(locks=is_locked is not None):
                # Its holder, if it names one, is dead: the kernel has given its lock away.
                if is_locked or (is_locked is None and not _is_held(holder)):
                    return self._named(file)
                os.close(file)
                raise self._refusal(holder)
            try:
                taken = self._from_elsewhere(holder, is_locked=is_locked is not False)
            finally:
                os.close(file)  # not before: who else of this host waits as well is kept out by its lock
            if taken is not None:
                return taken

    def _opened(self) -> tuple[int, bool | None]:
        """Opens the lock file; returns it, and whether this process holds it now, as in `try_lock`. Raises OSError."""
        while True:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                is_locked = try_lock(file)
            except OSError:
                os.close(file)
                raise
            with contextlib.suppress(FileNotFoundError):
                # Between open and lock its holder may have removed the file: we would hold a lock on a file that nobody
                # else finds.
                if is_locked is False or os.path.samestat(os.fstat(file), os.stat(self._path)):
                    return file, is_locked
            os.close(file)  # its holder has just removed it

    def _from_elsewhere(self, holder: LockHolder, *, is_locked: bool) -> int | None:
        """Returns the file that replaces the one of a holder on another host, whose lease has expired.

        Returns None where the holder has released it: try again. Raises ConfigError.
        """
        out = self._path.parent
        if not (self._waits and holder.lease_s):
            if not is_locked:
                raise self._refusal(holder)
            raise ConfigError(
                f"--out {out}: a run of host {holder.host} (pid {holder.pid}) writes there, or ended without a word; "
                f"name another folder, or remove {self._path} if that run is over"
            )
        self._say(f"{out} is locked by a run of {holder}: waiting up to {holder.lease_s:g} s for a sign of life of it")
        if not self._watch.expires(holder.lease_s):
            raise self._refusal(holder)
        with contextlib.suppress(FileNotFoundError):
            now, _ = read(self._path)
            if now is not None and now.run != holder.run:
                raise self._refusal(now)
            file = self._replaced()
            self._say(f"{holder} was silent for {holder.lease_s:g} s: its lock of {out} is taken over")
            return file
        return None

    def _replaced(self) -> int:
        """Puts our own lock file in the place of the expired one. Where several runs do so, the last one has it.

        Raises ConfigError if another run was later.
        """
        draft = self._path.with_name(f"{LOCK}.{self._me.run}")
        file = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            try_lock(file)
            os.pwrite(file, self._me.line(0), 0)
            os.replace(draft, self._path)
            self._pause(2 * LOOK_SECONDS)  # for others that waited as long
            if self.fence.why_not:
                raise self._refusal(read(self._path)[0])
        except BaseException:
            os.close(file)
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)
            raise
        return file

    def _named(self, file: int) -> int:
        """Writes our name into `file`, and returns it. Raises OSError."""
        try:
            os.ftruncate(file, 0)
            os.pwrite(file, self._me.line(0), 0)
        except OSError:  # a disk that is full takes the name and nothing else
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)
            os.close(file)
            raise
        return file

    def _refusal(self, holder: LockHolder | None) -> ConfigError:
        """Returns the error for a folder that another run holds."""
        who = f"another run ({holder})" if holder else "another run"
        return ConfigError(
            f"--out {self._path.parent}: {who} writes there now: wait for its end, or name another folder"
        )

    def _unusable(self, error: OSError) -> ConfigError:
        """Returns the error for a folder that cannot be used at all."""
        return ConfigError(f"--out {self._path.parent}: {error.strerror}")


def _holder(file: int) -> LockHolder | None:
    """Returns the holder that the open file names, or None."""
    return holder_in(os.pread(file, BYTES_MAX, 0))


def _is_held(holder: LockHolder | None) -> bool:
    """Returns True if another process of this host is the holder, as far as that can be told without a lock."""
    pid = holder.pid if holder is not None else ""
    return pid.isdecimal() and int(pid) != os.getpid() and bool(born(int(pid)))


def set_aside(trace: Path) -> None:
    """Renames the trace that an earlier run in this folder left: trace.1.jsonl, trace.2.jsonl, ..."""
    if trace.exists():
        names = (trace.with_name(f"trace.{n}.jsonl") for n in range(1, 1_000_000))
        trace.rename(next(path for path in names if not path.exists()))
