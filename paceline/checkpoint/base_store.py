"""A store keeps checkpoints by number: this is what a folder and Redis have in common.

    save     files first, the manifest last: from then on the checkpoint exists
    delete   the manifest first: from then on it does not
    read     sizes and checksums of the manifest are compared; anything else is Damaged, and an older one is taken

So a process that is killed at any moment leaves whole checkpoints, and perhaps files without a manifest, which no
reader sees. In a folder the next `rotate` removes them; in Redis they expire.
"""

from __future__ import annotations

import contextlib
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from paceline.checkpoint.manifest import NOT_FINITE, Damaged, FileEntry, Manifest

Contents = Mapping[str, Iterable[bytes]]


class CheckpointStore(ABC):
    """A store has one writer at a time. A checkpoint exists as long as its manifest does."""

    @abstractmethod
    def numbers(self) -> list[int]:
        """Returns the numbers of those that have a manifest, whole or not, oldest first."""

    @abstractmethod
    def name(self, number: int, file: str = "") -> str:
        """Returns the name of a checkpoint, or of a file of it, for messages."""

    @abstractmethod
    def save(self, number: int, contents: Contents, *, finite: bool, **facts: Any) -> Manifest:
        """Writes checkpoint `number`: `contents` by file name, and `facts` into its manifest.

        Raises OSError when it cannot be written; then there is no such one.
        """

    @abstractmethod
    def delete(self, number: int) -> None:
        """Deletes it, the manifest first, so that no half of it is taken for one; what cannot be deleted stays."""

    @abstractmethod
    def _manifest(self, number: int) -> bytes:
        """Returns the bytes of the manifest. Raises Damaged."""

    @abstractmethod
    def _pieces(self, number: int, file: str) -> Iterator[bytes]:
        """Yields the bytes of a file, in order. Raises Damaged."""

    def manifest(self, number: int) -> Manifest:
        """Returns the manifest. Raises Damaged."""
        return Manifest.from_bytes(self._manifest(number))

    def verify(self, number: int) -> Manifest:
        """Reads all of it, and returns its manifest. Raises Damaged, naming the file."""
        manifest = self.manifest(number)
        for entry in manifest.files:
            for _ in self.read(number, entry):
                pass
        return manifest

    def load(self, number: int, entry: FileEntry) -> bytes:
        """Returns the bytes of a file. Raises Damaged when they are not those that were written."""
        return b"".join(self.read(number, entry))

    def read(self, number: int, entry: FileEntry) -> Iterator[bytes]:
        """Yields the bytes of a file piece by piece. Raises Damaged, perhaps only after the last piece."""
        size = checksum = 0
        for piece in self._pieces(number, entry.name):
            size, checksum = size + len(piece), zlib.crc32(piece, checksum)
            if size > entry.size:
                break
            yield piece
        if (size, checksum) != (entry.size, entry.crc32):
            raise Damaged(f"{self.name(number, entry.name)}: size or checksum differs from the manifest")

    def newest(self, check: Callable[[int, Manifest], None] = lambda _, __: None) -> tuple[int | None, list[str]]:
        """Returns the newest that is whole, finite and passes `check`, or None; and for each newer one why it was not
        taken.

        `check` raises Damaged.
        """
        refused: list[str] = []
        for number in reversed(self.numbers()):
            try:
                manifest = self.verify(number)
                if not manifest.finite:
                    raise Damaged(NOT_FINITE)
                check(number, manifest)
                return number, refused
            except Damaged as error:
                refused.append(f"checkpoint {number} is passed over: {error}")
        return None, refused

    def best(self, healthy: int | None = None) -> int | None:
        """Returns the one that is whole and finite with the highest `accuracy` among its facts; the newest of equals;
        or None.

        `healthy` is known to be whole and finite, and so is not read.
        """
        judged: list[tuple[float, int]] = []
        for number in self.numbers():
            with contextlib.suppress(Damaged):
                accuracy = self.manifest(number).facts.get("accuracy")
                if isinstance(accuracy, int | float):
                    judged.append((accuracy, number))
        for _, number in sorted(judged, reverse=True):
            with contextlib.suppress(Damaged):
                if number == healthy or self.verify(number).finite:
                    return number
        return None

    def rotate(self, keep_last: int, *, keep_best: bool = False, healthy: int | None = None) -> list[int]:
        """Deletes all but the last `keep_last`, and the best one if asked for. Returns the numbers of those deleted.

        The newest whole and finite one stays, however many bad ones have come since. `healthy` is known to be one of
        them, as what has just been written is, and so is not read again.
        """
        candidates = self.numbers()[: -max(1, keep_last)]
        if not candidates:
            return []
        healthy = self.newest()[0] if healthy is None else healthy
        if healthy is None:
            return []
        stay = {healthy, self.best(healthy) if keep_best else healthy}
        old = [number for number in candidates if number not in stay]
        for number in old:
            self.delete(number)
        return old

    def take(self, other: CheckpointStore, number: int, as_number: int) -> None:
        """Copies checkpoint `number` of `other` to `as_number` here. Raises Damaged, or OSError."""
        manifest = other.manifest(number)
        contents = {entry.name: other.read(number, entry) for entry in manifest.files}
        self.save(as_number, contents, finite=manifest.finite, **manifest.facts)
