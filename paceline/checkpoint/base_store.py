"""Where checkpoints are kept, by number: what a folder and a store have in common."""

from __future__ import annotations

import contextlib
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from paceline.checkpoint.manifest import NOT_FINITE, Damaged, FileEntry, Manifest

Contents = Mapping[str, Iterable[bytes]]


class CheckpointStore(ABC):
    """One writer at a time. A checkpoint is there once its manifest is, and gone once that is."""

    @abstractmethod
    def numbers(self) -> list[int]:
        """Of those that have a manifest, whole or not, oldest first."""

    @abstractmethod
    def name(self, number: int, file: str = "") -> str:
        """Of a checkpoint, or of a file of it, for people."""

    @abstractmethod
    def save(self, number: int, contents: Contents, *, finite: bool, **facts: Any) -> Manifest:
        """Write checkpoint `number`. Raises OSError when it cannot be written; then there is no such one."""

    @abstractmethod
    def delete(self, number: int) -> None:
        """Its manifest first, so that no half of it is taken for one; what cannot be deleted stays."""

    @abstractmethod
    def _manifest(self, number: int) -> bytes:
        """Raises Damaged."""

    @abstractmethod
    def _pieces(self, number: int, file: str) -> Iterator[bytes]:
        """Of a file, in order. Raises Damaged."""

    def manifest(self, number: int) -> Manifest:
        """Raises Damaged."""
        return Manifest.from_bytes(self._manifest(number))

    def verify(self, number: int) -> Manifest:
        """Read all of it. Raises Damaged, naming the file."""
        manifest = self.manifest(number)
        for entry in manifest.files:
            for _ in self.read(number, entry):
                pass
        return manifest

    def load(self, number: int, entry: FileEntry) -> bytes:
        """Returns the bytes of a file. Raises Damaged when they are not those that were written."""
        return b"".join(self.read(number, entry))

    def read(self, number: int, entry: FileEntry) -> Iterator[bytes]:
        """The same piece by piece; what is wrong may show at the last."""
        size = checksum = 0
        for piece in self._pieces(number, entry.name):
            size, checksum = size + len(piece), zlib.crc32(piece, checksum)
            if size > entry.size:
                break
            yield piece
        if (size, checksum) != (entry.size, entry.crc32):
            raise Damaged(f"{self.name(number, entry.name)}: size or checksum is another one")

    def newest(self, check: Callable[[int, Manifest], None] = lambda _, __: None) -> tuple[int | None, list[str]]:
        """The newest one that is whole and finite and passes `check`, if any; of each that is newer, why not.

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
        """The one that is whole and finite with the highest `accuracy` among its facts; the newest of equals.

        `healthy` is known to be whole and finite.
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
        """Delete all but the last `keep_last`, and the best one if asked for; the numbers of those deleted.

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
        """A copy of what `other` has. Raises Damaged, or OSError."""
        manifest = other.manifest(number)
        contents = {entry.name: other.read(number, entry) for entry in manifest.files}
        self.save(as_number, contents, finite=manifest.finite, **manifest.facts)
