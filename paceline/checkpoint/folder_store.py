"""Keeps the checkpoints of a run in one numbered folder each.

    checkpoints/00000012/model.safetensors, ...     the files
    checkpoints/00000012/manifest.json              sizes and checksums of the files

The manifest is written last: without it there is no checkpoint.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from paceline.checkpoint import atomic_file
from paceline.checkpoint.base_store import CheckpointStore, Contents
from paceline.checkpoint.manifest import BYTES_MAX, Damaged, FileEntry, Manifest

CHECKPOINTS = "checkpoints"  # in the folder of a run
MANIFEST = "manifest.json"
MODEL = "model.safetensors"  # of a checkpoint, and of a run
CHUNK_BYTES = 1 << 22
"""Bytes that are read of a file at a time."""
PLACE = re.compile(r"[0-9]{8,15}")
"""Names of folders that hold a checkpoint: at least eight digits, so that they sort as their numbers do."""


class FolderStore(CheckpointStore):
    """Keeps them under `root`, which is made when it is first needed."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __str__(self) -> str:
        return str(self.root)

    def numbers(self) -> list[int]:
        """Returns the numbers of the folders with a manifest, oldest first.

        A folder such as `0000000012`, which another number would not be written as, is no checkpoint.
        """
        found = self.root.glob(f"[0-9]*/{MANIFEST}") if self.root.is_dir() else ()
        numbers = [(int(path.parent.name), path.parent) for path in found if PLACE.fullmatch(path.parent.name)]
        return sorted(number for number, place in numbers if place == self.place(number))

    def place(self, number: int) -> Path:
        """Returns the folder of a checkpoint, whether it exists or not."""
        return self.root / f"{number:08d}"

    def name(self, number: int, file: str = "") -> str:
        """Returns the path of a checkpoint, or of a file of it."""
        return str(self.place(number) / file)

    def save(self, number: int, contents: Contents, *, finite: bool, **facts: Any) -> Manifest:
        """Writes a checkpoint. Raises OSError when the disk does not take it; then there is no such one."""
        place = self.place(number)
        shutil.rmtree(place, ignore_errors=True)
        try:
            place.mkdir(parents=True)
            written = [(name, *atomic_file.write(place / name, chunks)) for name, chunks in contents.items()]
            entries = tuple(FileEntry(name=name, size=size, crc32=crc) for name, size, crc in written)
            manifest = Manifest(files=entries, finite=finite, facts=facts)
            # The folder's own name must be on the disk before the manifest, which makes the checkpoint exist.
            atomic_file.settle(self.root)
            atomic_file.write(place / MANIFEST, [manifest.to_bytes()])
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise
        return manifest

    def rotate(self, keep_last: int, *, keep_best: bool = False, healthy: int | None = None) -> list[int]:
        """Deletes old checkpoints, and what is left of older ones whose writing or deleting was cut short.

        A folder that is newer than the newest checkpoint is left alone: it may be the one that is being written.
        """
        numbers = self.numbers()
        for place in self.root.glob("[0-9]*") if numbers else ():
            if place.name.isdecimal() and int(place.name) < numbers[-1] and not (place / MANIFEST).exists():
                shutil.rmtree(place, ignore_errors=True)
        return super().rotate(keep_last, keep_best=keep_best, healthy=healthy)

    def delete(self, number: int) -> None:
        """Removes a checkpoint, its manifest first; a link in its place is removed, not followed."""
        place = self.place(number)
        with contextlib.suppress(OSError):
            if place.is_symlink():  # what it leads to is not ours
                place.unlink()
                return
            (place / MANIFEST).unlink()
        shutil.rmtree(place, ignore_errors=True)

    def _manifest(self, number: int) -> bytes:
        """Returns the bytes of the manifest. Raises Damaged, also for one that is too long to be read."""
        data = b""
        for piece in self._pieces(number, MANIFEST):
            data += piece
            if len(data) > BYTES_MAX:
                raise Damaged(f"{self.name(number, MANIFEST)}: longer than {BYTES_MAX} bytes")
        return data

    def _pieces(self, number: int, file: str) -> Iterator[bytes]:
        path = self.place(number) / file
        try:
            with _regular(path) as source:
                while chunk := source.read(CHUNK_BYTES):
                    yield chunk
        except OSError as error:
            raise Damaged(f"{path}: {error.strerror}") from None


def _regular(path: Path) -> BinaryIO:
    """Opens a regular file. Opening a FIFO would wait for ever, and a device need not end. Raises OSError for both."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    file = os.fdopen(descriptor, "rb") if stat.S_ISREG(os.fstat(descriptor).st_mode) else None
    if file is None:
        os.close(descriptor)
        raise OSError(0, "not a regular file")
    return file
