"""A disk in memory that fails as real ones do: it loses what was not synced, tears it, fills up, and lies.

    call                 in memory                at once on the disk
    write                yes                      no: at `sync` of the file, or perhaps before
    sync of a file       -                        its bytes, unless the disk lies
    a name that changes  yes                      no: at `settle` of its folder, or perhaps before
    settle of a folder   -                        its names, unless the disk lies
    kill                 stays                    -
    power cut            is lost                  a drawn part of what was under way comes on the disk
    rot                  one byte is another      one byte is another, and nobody is told

At a power cut each change of a name that was not settled has reached the disk or not, each on its own, as far as the
folder is there. Of the bytes of a file that were not synced some blocks have reached it; the others are as before, or
zero where nothing was before. That is as bad as POSIX allows (Pillai et al., All File Systems Are Not Created Equal,
OSDI 2014).

It has the methods of `paceline.checkpoint.disk.Disk`, so that the code that writes checkpoints runs on it. Times are
virtual seconds.
"""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

BLOCK_BYTES = 512


class PowerCut(BaseException):
    """Ends the process of whoever uses the disk: nothing may be cleaned up after it."""


@dataclass(slots=True, eq=False)
class _Content:
    """Holds the bytes of one file, or is a folder. `kept`: those that survive a power cut; `written`: all of them."""

    is_folder: bool = False
    written: bytes = b""
    kept: bytes = b""


@dataclass(frozen=True, slots=True)
class DiskFaults:
    """Says how a disk fails. All that is drawn is drawn from the disk's generator.

    capacity_bytes   of all files together; a write beyond that raises ENOSPC
    lies             fraction of syncs and settles that say they are done, and are not
    errors           fraction of syncs and settles that raise EIO; what they had to keep may be lost
    seconds_a_call   virtual seconds that each call takes; `seconds_a_mib` come on top for each MiB written
    stops_at         the power is cut before this call, counted from 1
    """

    capacity_bytes: float = math.inf
    lies: float = 0.0
    errors: float = 0.0
    seconds_a_call: float = 0.0
    seconds_a_mib: float = 0.0
    stops_at: float = math.inf


class VirtualDisk:
    """Files and folders in memory. `calls`: how many changed something; `seconds`: how long all calls took."""

    def __init__(self, random: Random, faults: DiskFaults = DiskFaults()) -> None:  # a value
        self.faults, self._random = faults, random
        self.calls, self.seconds, self.lied = 0, 0.0, 0
        self._off = False
        root = _Content(is_folder=True)
        self._names: dict[Path, _Content] = {Path("/"): root}
        self._kept: dict[Path, _Content] = {Path("/"): root}
        self._unsettled: list[tuple[Path, _Content | None]] = []  # what a name stands for since; None: nothing

    # ---- what a process does -----------------------------------------------------------------------------
    @contextmanager
    def create(self, path: Path) -> Iterator[_Writing]:
        self._call()
        self._need_folder(path.parent)
        content = _Content()
        self._name(path, content)
        yield _Writing(self, content)

    def read(self, path: Path) -> Iterator[bytes]:
        content = self._names.get(path)
        if content is None or content.is_folder:
            raise _error(errno.ENOENT if content is None else errno.EISDIR, path)
        yield content.written

    def replace(self, old: Path, new: Path) -> None:
        self._call()
        content = self._need(old)
        self._need_folder(new.parent)
        self._name(new, content)
        self._name(old, None)

    def settle(self, folder: Path) -> None:
        self._call()
        self._need_folder(folder)
        if self._keeps_its_word():
            self._keep([change for change in self._unsettled if change[0].parent == folder])
            self._unsettled = [change for change in self._unsettled if change[0].parent != folder]

    def make_folder(self, path: Path) -> None:
        if path in self._names:
            raise _error(errno.EEXIST, path)
        for folder in [path, *path.parents][::-1]:
            if folder not in self._names:
                self._call()
                self._name(folder, _Content(is_folder=True))
                try:
                    self.settle(folder.parent)
                except OSError:
                    self._name(folder, None)
                    raise

    def names(self, folder: Path) -> list[str]:
        return [path.name for path in self._names if path.parent == folder and path != folder]

    def exists(self, path: Path) -> bool:
        return path in self._names

    def is_link(self, path: Path) -> bool:
        return False

    def unlink(self, path: Path) -> None:
        self._call()
        self._need(path)
        self._name(path, None)

    def remove_tree(self, path: Path) -> None:
        for name in sorted((name for name in self._names if name == path or path in name.parents), reverse=True):
            self._call()
            self._name(name, None)

    def write(self, content: _Content, data: bytes) -> None:
        """Appends to a file; where not all of it fits, as much as fits. Raises ENOSPC then."""
        self._call(len(data))
        files = {id(one): one for one in self._names.values()}.values()
        room = self.faults.capacity_bytes - sum(len(one.written) for one in files)
        content.written += data[: max(0, int(room))] if room < len(data) else data
        if room < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def sync(self, content: _Content) -> None:
        """Brings the bytes of a file on the disk, or says so. Raises EIO."""
        self._call()
        if self._keeps_its_word():
            content.kept = content.written

    # ---- what happens to it ------------------------------------------------------------------------------
    def power_on(self, faults: DiskFaults = DiskFaults()) -> None:  # a value
        """Lets another process use the disk after a kill: nothing of what was written is lost."""
        self._off, self.faults, self.calls = False, faults, 0

    def rot(self) -> Path | None:
        """Changes one byte of a drawn file that has any, unnoticed, and returns its path; None without a file."""
        files = sorted(path for path, content in self._names.items() if content.written)
        if not files:
            return None
        path = self._random.choice(files)
        content = self._names[path]
        at, flipped = self._random.randrange(len(content.written)), self._random.randint(1, 255)
        changed = bytes([content.written[at] ^ flipped])
        content.written = content.kept = content.written[:at] + changed + content.written[at + 1 :]
        return path

    def cut_power(self) -> None:
        """Loses what was not on the disk, but for a drawn part that had reached it."""
        self._keep([change for change in self._unsettled if self._random.random() < 0.5])
        self._unsettled = []
        whole = {path for path in self._kept if all(above in self._kept for above in path.parents)}
        self._kept = {path: content for path, content in self._kept.items() if path in whole}
        self._names = dict(self._kept)
        for content in {id(one): one for one in self._kept.values()}.values():
            content.written = content.kept = self._torn(content)

    # ---- inside ------------------------------------------------------------------------------------------
    def _call(self, data_bytes: int = 0) -> None:
        self.calls += 1
        self.seconds += self.faults.seconds_a_call + self.faults.seconds_a_mib * data_bytes / 2**20
        if self._off or self.calls >= self.faults.stops_at:
            self._off = True
            raise PowerCut

    def _keeps_its_word(self) -> bool:
        """Returns False where the disk lies. Raises EIO where it fails, and says so."""
        drawn = self._random.random()
        if drawn < self.faults.errors:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        lies = drawn < self.faults.errors + self.faults.lies
        self.lied += lies
        return not lies

    def _name(self, path: Path, content: _Content | None) -> None:
        if content is None:
            del self._names[path]
        else:
            self._names[path] = content
        self._unsettled.append((path, content))

    def _keep(self, changes: list[tuple[Path, _Content | None]]) -> None:
        for path, content in changes:
            if content is None:
                self._kept.pop(path, None)
            else:
                self._kept[path] = content

    def _torn(self, content: _Content) -> bytes:
        """Returns what is on the disk of a file: of each block the old bytes or the new ones."""
        old, new = content.kept, content.written
        if old == new:
            return old
        length = self._random.choice((len(old), len(new), self._random.randint(0, len(new))))
        pick: Callable[[], bool] = self._random.choice(
            (lambda: True, lambda: False, lambda: self._random.random() < 0.5)
        )
        blocks = []
        for at in range(0, length, BLOCK_BYTES):
            source = new if pick() else old
            block = source[at : min(at + BLOCK_BYTES, length)]
            blocks.append(block.ljust(min(BLOCK_BYTES, length - at), b"\0"))
        return b"".join(blocks)

    def _need(self, path: Path) -> _Content:
        if path not in self._names:
            raise _error(errno.ENOENT, path)
        return self._names[path]

    def _need_folder(self, path: Path) -> None:
        if not self._need(path).is_folder:
            raise _error(errno.ENOTDIR, path)


class _Writing:
    """A file of a virtual disk that is being written."""

    def __init__(self, disk: VirtualDisk, content: _Content) -> None:
        self._disk, self._content = disk, content

    def write(self, data: bytes, /) -> object:
        self._disk.write(self._content, data)
        return len(data)

    def sync(self) -> None:
        self._disk.sync(self._content)


def _error(number: int, path: Path) -> OSError:
    return OSError(number, os.strerror(number), str(path))
