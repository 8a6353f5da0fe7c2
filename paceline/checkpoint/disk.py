"""What checkpoints need of a disk, and the disk of this machine.

Whoever writes checkpoints takes a `Disk`. So the same code runs on a simulated one that is full, tears what it writes,
or says that it has written what it has not (`paceline.sim.kernel.virtual_disk`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO, Protocol

from paceline.core.files.regular_file import open_regular

CHUNK_BYTES = 1 << 22
"""Bytes that are read of a file at a time."""


class DiskFile(Protocol):
    """A new file that is being written."""

    def write(self, data: bytes, /) -> object: ...

    def sync(self) -> None:
        """Returns when all that was written is on the disk."""


class Disk(Protocol):
    """Files and folders by path. All methods raise OSError but those that say otherwise."""

    def create(self, path: Path) -> AbstractContextManager[DiskFile]:
        """Makes a file, empty at first; one of that name is emptied."""

    def read(self, path: Path) -> Iterator[bytes]:
        """Yields the bytes of a regular file; of a link, a device or a FIFO nothing is read."""

    def replace(self, old: Path, new: Path) -> None:
        """Gives a file another name, in the place of one that has it."""

    def settle(self, folder: Path) -> None:
        """Returns when the names in `folder` are on the disk."""

    def make_folder(self, path: Path) -> None:
        """Makes a folder that is not there yet, and those above it; their names are on the disk then."""

    def names(self, folder: Path) -> list[str]:
        """Returns the names in a folder; none where there is no folder. Does not raise."""

    def exists(self, path: Path) -> bool:
        """Returns True if a file or a folder has that name. Does not raise."""

    def is_link(self, path: Path) -> bool:
        """Returns True for a link, whatever it leads to. Does not raise."""

    def unlink(self, path: Path) -> None:
        """Removes a file or a link."""

    def remove_tree(self, path: Path) -> None:
        """Removes a folder and all in it, as far as possible. Does not raise."""


class _SyncedFile:
    """A file of this machine."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.write = file.write

    def sync(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())


class _Created(AbstractContextManager[DiskFile]):
    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")

    def __enter__(self) -> DiskFile:
        return _SyncedFile(self._file)

    def __exit__(self, *_: object) -> None:
        self._file.close()


class RealDisk:
    """The disks of this machine."""

    def create(self, path: Path) -> AbstractContextManager[DiskFile]:
        return _Created(path)

    def read(self, path: Path) -> Iterator[bytes]:
        with open_regular(path) as source:
            while chunk := source.read(CHUNK_BYTES):
                yield chunk

    def replace(self, old: Path, new: Path) -> None:
        os.replace(old, new)

    def settle(self, folder: Path) -> None:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def make_folder(self, path: Path) -> None:
        missing = [folder for folder in path.parents if not folder.exists()]
        for folder in [*reversed(missing), path]:
            folder.mkdir(exist_ok=folder != path)  # another process may make one of those above
            try:
                self.settle(folder.parent)
            except OSError:
                # Were it left there, the next attempt would take its name for one that is on the disk.
                with contextlib.suppress(OSError):
                    folder.rmdir()
                raise

    def names(self, folder: Path) -> list[str]:
        try:
            return os.listdir(folder)
        except OSError:
            return []

    def exists(self, path: Path) -> bool:
        return os.path.exists(path)

    def is_link(self, path: Path) -> bool:
        return os.path.islink(path)

    def unlink(self, path: Path) -> None:
        path.unlink()

    def remove_tree(self, path: Path) -> None:
        shutil.rmtree(path, ignore_errors=True)


REAL_DISK = RealDisk()
