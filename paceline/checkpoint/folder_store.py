"""Keeps the checkpoints of a run in one numbered folder each.

    checkpoints/00000012/model.safetensors, ...     the files
    checkpoints/00000012/manifest.json              sizes and checksums of the files

The manifest is written last: without it there is no checkpoint.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paceline.checkpoint import atomic_file
from paceline.checkpoint.base_store import CheckpointStore, Contents
from paceline.checkpoint.disk import REAL_DISK, Disk
from paceline.checkpoint.manifest import BYTES_MAX, Damaged, FileEntry, Manifest

CHECKPOINTS = "checkpoints"  # in the folder of a run
MANIFEST = "manifest.json"
MODEL = "model.safetensors"  # of a checkpoint, and of a run
PLACE = re.compile(r"[0-9]{8,15}")
"""Names of folders that hold a checkpoint: at least eight digits, so that they sort as their numbers do."""


class FolderStore(CheckpointStore):
    """Keeps them under `root`, which is made when it is first needed."""

    def __init__(self, root: Path, disk: Disk = REAL_DISK) -> None:
        self.root, self._disk = root, disk
        self._is_settled = False  # the name of `root`, by this process

    def __str__(self) -> str:
        return str(self.root)

    def numbers(self) -> list[int]:
        """Returns the numbers of the folders with a manifest, oldest first.

        A folder such as `0000000012`, which another number would not be written as, is no checkpoint.
        """
        names = [name for name in self._disk.names(self.root) if PLACE.fullmatch(name)]
        numbers = [int(name) for name in names if self._disk.exists(self.root / name / MANIFEST)]
        return sorted(number for number in numbers if self.place(number).name in names)

    def place(self, number: int) -> Path:
        """Returns the folder of a checkpoint, whether it exists or not."""
        return self.root / f"{number:08d}"

    def name(self, number: int, file: str = "") -> str:
        """Returns the path of a checkpoint, or of a file of it."""
        return str(self.place(number) / file)

    def save(self, number: int, contents: Contents, *, finite: bool, **facts: Any) -> Manifest:
        """Writes a checkpoint. Raises OSError when the disk does not take it; then there is no such one."""
        place, disk = self.place(number), self._disk
        disk.remove_tree(place)
        try:
            disk.make_folder(place)  # with its name on the disk before the manifest, which makes the checkpoint exist
            self._settle()
            written = [(name, *atomic_file.write(place / name, chunks, disk)) for name, chunks in contents.items()]
            entries = tuple(FileEntry(name=name, size=size, crc32=crc) for name, size, crc in written)
            manifest = Manifest(files=entries, finite=finite, facts=facts)
            atomic_file.write(place / MANIFEST, [manifest.to_bytes()], disk)
        except BaseException:
            disk.remove_tree(place)
            raise
        return manifest

    def _settle(self) -> None:
        """Brings the names of the run's folder and of that of its checkpoints on the disk, once. Raises OSError.

        A process that was killed may have made them just before that, and a power cut would take all checkpoints.
        """
        if self._is_settled:
            return
        self._disk.settle(self.root.parent)
        with contextlib.suppress(OSError):  # the folder of all runs need not be one that may be opened
            self._disk.settle(self.root.parent.parent)
        self._is_settled = True

    def rotate(self, keep_last: int, *, keep_best: bool = False, healthy: int | None = None) -> list[int]:
        """Deletes old checkpoints, and what is left of older ones whose writing or deleting was cut short.

        A folder that is newer than the newest checkpoint is left alone: it may be the one that is being written.
        """
        numbers = self.numbers()
        for name in self._disk.names(self.root) if numbers else ():
            place = self.root / name
            if name.isdecimal() and int(name) < numbers[-1] and not self._disk.exists(place / MANIFEST):
                self._disk.remove_tree(place)
        return super().rotate(keep_last, keep_best=keep_best, healthy=healthy)

    def delete(self, number: int) -> None:
        """Removes a checkpoint, its manifest first; a link in its place is removed, not followed."""
        place = self.place(number)
        with contextlib.suppress(OSError):
            if self._disk.is_link(place):  # what it leads to is not ours
                self._disk.unlink(place)
                return
            self._disk.unlink(place / MANIFEST)
        self._disk.remove_tree(place)

    def _manifest(self, number: int) -> bytes:
        """Returns the bytes of the manifest. Raises Damaged, also for one that is too long to be read."""
        data = b""
        for piece in self._pieces(number, MANIFEST):
            data += piece
            if len(data) > BYTES_MAX:
                raise Damaged(f"{self.name(number, MANIFEST)}: longer than {BYTES_MAX} bytes")
        return data

    def _pieces(self, number: int, file: str) -> Iterator[bytes]:
        """Yields the bytes of a file, piece by piece. Raises Damaged where it cannot be read."""
        path = self.place(number) / file
        try:
            yield from self._disk.read(path)
        except OSError as error:
            raise Damaged(f"{path}: {error.strerror}") from None
