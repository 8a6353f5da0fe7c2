"""Which checkpoints a store keeps, and which it takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.checkpoint.folder_store import FolderStore
from tests.checkpoint.saving import save

OLD, NEW = b"old" * 500, b"new" * 500


def test_the_last_healthy_one_is_never_rotated_away(tmp_path: Path) -> None:
    folder = FolderStore(tmp_path)
    save(folder, 1, OLD)
    save(folder, 2, OLD)
    for number in (3, 4, 5):
        save(folder, number, NEW, finite=False)
    assert folder.rotate(keep_last=2) == [1, 3]
    assert folder.numbers() == [2, 4, 5]
    assert folder.newest()[0] == 2


def test_the_best_one_that_is_healthy_stays_where_asked(tmp_path: Path) -> None:
    folder = FolderStore(tmp_path)
    for number, accuracy in enumerate([0.5, 0.9, 0.9, 0.95, 0.99, 0.6, 0.7, 0.8], 1):
        save(folder, number, NEW, finite=accuracy != 0.95, accuracy=accuracy)
    flipped = folder.place(5) / "a.safetensors"
    flipped.write_bytes(b"x" + flipped.read_bytes()[1:])
    assert folder.best() == 3, "4 is not finite, 5 is damaged, and of 2 and 3 it is the newer"
    assert folder.rotate(2, keep_best=True) == [1, 2, 4, 5, 6]
    assert folder.numbers() == [3, 7, 8]
    assert folder.rotate(2) == [3]


def test_the_best_one_does_not_drive_the_last_healthy_one_away(tmp_path: Path) -> None:
    folder = FolderStore(tmp_path)
    for number, (accuracy, finite) in enumerate([(0.9, True), (0.5, True), (0.1, False), (0.1, False)], 1):
        save(folder, number, NEW, finite=finite, accuracy=accuracy)
    assert folder.rotate(1, keep_best=True) == [3]
    assert (folder.newest()[0], folder.best()) == (2, 1)


def test_without_accuracies_there_is_no_best_one(tmp_path: Path) -> None:
    folder = FolderStore(tmp_path)
    for number in (1, 2, 3):
        save(folder, number, NEW)
    assert folder.best() is None
    assert folder.rotate(2, keep_best=True) == [1]


def test_what_has_just_been_written_is_not_read_again_and_nothing_is_before_there_are_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, read = FolderStore(tmp_path), list[int]()
    for number, accuracy in ((1, 0.5), (2, 0.6), (3, 0.9)):
        save(folder, number, NEW, accuracy=accuracy)
    real = FolderStore.verify
    monkeypatch.setattr(FolderStore, "verify", lambda self, number: (read.append(number), real(self, number))[1])
    assert folder.rotate(3, keep_best=True) == []
    assert folder.rotate(2, keep_best=True, healthy=3) == [1]
    assert read == []
    save(folder, 4, NEW, accuracy=0.1)
    assert folder.rotate(1, keep_best=True, healthy=4) == [2]
    assert read == [3], "the best, which is an old one"
