"""The checkpoints of a run, one numbered folder each. The manifest is written last: without it there is none."""

from __future__ import annotations

import contextlib
import shutil
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from paceline.checkpoint import files
from paceline.checkpoint.manifest import BYTES_MAX, Damaged, Entry, Manifest

CHECKPOINTS = "checkpoints"  # in the folder of a run
MANIFEST = "manifest.json"
CHUNK_BYTES = 1 << 22


class Folder:
    """Under `root`, which is made when it is first needed. One writer at a time."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def numbers(self) -> list[int]:
        """Of those that have a manifest, whole or not, oldest first."""
        found = self.root.glob(f"[0-9]*/{MANIFEST}") if self.root.is_dir() else ()
        return sorted(int(path.parent.name) for path in found if path.parent.name.isdecimal())

    def place(self, number: int) -> Path:
        return self.root / f"{number:08d}"

    def save(self, number: int, contents: Mapping[str, Iterable[bytes]], *, finite: bool, **facts: Any) -> Manifest:
        """Write checkpoint `number`. Raises OSError when the disk does not take it; then there is no such one."""
        place = self.place(number)
        shutil.rmtree(place, ignore_errors=True)
        try:
            place.mkdir(parents=True)
            written = [(name, *files.write(place / name, chunks)) for name, chunks in contents.items()]
            entries = tuple(Entry(name=name, size=size, crc32=crc) for name, size, crc in written)
            manifest = Manifest(files=entries, finite=finite, facts=facts)
            files.settle(self.root)
            files.write(place / MANIFEST, [manifest.to_bytes()])
        except OSError:
            shutil.rmtree(place, ignore_errors=True)
            raise
        return manifest

    def manifest(self, number: int) -> Manifest:
        """Raises Damaged."""
        return Manifest.from_bytes(self._read(number, MANIFEST, BYTES_MAX))

    def verify(self, number: int) -> Manifest:
        """Read all of it. Raises Damaged, naming the file."""
        manifest = self.manifest(number)
        for entry in manifest.files:
            self._check(number, entry)
        return manifest

    def load(self, number: int, entry: Entry) -> bytes:
        """The bytes of a file. Raises Damaged when they are not those that were written."""
        data = self._read(number, entry.name, entry.size)
        if len(data) != entry.size or zlib.crc32(data) != entry.crc32:
            raise Damaged(f"{self.place(number) / entry.name}: size or checksum is another one")
        return data

    def newest(self) -> tuple[int | None, list[str]]:
        """The newest one that is whole and finite, if any; of each that is newer, why not."""
        refused: list[str] = []
        for number in reversed(self.numbers()):
            try:
                if self.verify(number).finite:
                    return number, refused
                refused.append(f"checkpoint {number}: the model is not finite")
            except Damaged as error:
                refused.append(f"checkpoint {number}: {error}")
        return None, refused

    def best(self) -> int | None:
        """The one that is whole and finite with the highest `accuracy` among its facts; the newest of equals."""
        judged: list[tuple[float, int]] = []
        for number in self.numbers():
            with contextlib.suppress(Damaged):
                accuracy = self.manifest(number).facts.get("accuracy")
                if isinstance(accuracy, int | float):
                    judged.append((accuracy, number))
        for _, number in sorted(judged, reverse=True):
            with contextlib.suppress(Damaged):
                if self.verify(number).finite:
                    return number
        return None

    def rotate(self, keep_last: int, *, keep_best: bool = False) -> list[int]:
        """Delete all but the last `keep_last`, and the best one if asked for; the numbers of those deleted.

        The newest whole and finite one stays, however many bad ones have come since.
        """
        healthy, _ = self.newest()
        if healthy is None:
            return []
        stay = {healthy, self.best() if keep_best else healthy}
        old = [number for number in self.numbers()[: -max(1, keep_last)] if number not in stay]
        for number in old:
            with contextlib.suppress(OSError):
                (self.place(number) / MANIFEST).unlink()  # first, so that no half of it is taken for one
            shutil.rmtree(self.place(number), ignore_errors=True)
        return old

    def _check(self, number: int, entry: Entry) -> None:
        path, size, checksum = self.place(number) / entry.name, 0, 0
        try:
            with path.open("rb") as file:
                while chunk := file.read(CHUNK_BYTES):
                    size, checksum = size + len(chunk), zlib.crc32(chunk, checksum)
        except OSError as error:
            raise Damaged(f"{path}: {error.strerror}") from None
        if (size, checksum) != (entry.size, entry.crc32):
            raise Damaged(f"{path}: size or checksum is another one")

    def _read(self, number: int, name: str, bytes_max: int) -> bytes:
        path = self.place(number) / name
        try:
            with path.open("rb") as file:
                data = file.read(bytes_max + 1)
        except OSError as error:
            raise Damaged(f"{path}: {error.strerror}") from None
        if len(data) > bytes_max:
            raise Damaged(f"{path}: longer than {bytes_max} bytes")
        return data
