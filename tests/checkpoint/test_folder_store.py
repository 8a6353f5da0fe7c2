from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.checkpoint import atomic_file
from paceline.checkpoint.folder_store import MANIFEST, FolderStore
from paceline.checkpoint.manifest import Damaged, FileEntry, Manifest

OLD, NEW = b"old" * 500, b"new" * 500


def save(folder: FolderStore, number: int, data: bytes, finite: bool = True, **facts: object) -> Manifest:
    chunks = [data[i : i + 100] for i in range(0, len(data), 100)]
    contents = {"a.safetensors": chunks, "b.safetensors": chunks}
    return folder.save(number, contents, finite=finite, step=number, **facts)


def contents(folder: FolderStore) -> list[bytes]:
    number, _ = folder.newest()
    assert number is not None
    return [folder.load(number, entry) for entry in folder.manifest(number).files]


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    folder = FolderStore(tmp_path / "checkpoints")
    save(folder, 1, OLD)
    assert contents(folder) == [OLD, OLD]
    assert folder.manifest(1).facts == {"step": 1}


def test_every_flipped_byte_is_noticed_and_the_one_before_is_taken(tmp_path: Path) -> None:
    folder, random_state = FolderStore(tmp_path), random.Random(1)
    save(folder, 1, OLD)
    save(folder, 2, NEW)
    for _ in range(300):
        path = random_state.choice(sorted(folder.place(2).iterdir()))
        whole = path.read_bytes()
        at = random_state.randrange(len(whole))
        path.write_bytes(whole[:at] + bytes([whole[at] ^ random_state.randrange(1, 256)]) + whole[at + 1 :])
        number, refused = folder.newest()
        assert (number, len(refused)) == (1, 1), (path, at)
        path.write_bytes(whole)
    assert folder.newest() == (2, [])


def test_a_writer_killed_at_any_system_call_leaves_the_old_or_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child is ended at each fsync and rename in turn, as by kill -9: no clean-up of its own runs."""
    outcomes = []
    for calls in range(1, 12):
        folder = FolderStore(tmp_path / str(calls))
        save(folder, 1, OLD)
        child = os.fork()
        if child == 0:
            left = calls

            def count(*_: object) -> None:
                nonlocal left
                left -= 1
                if not left:
                    os._exit(9)

            for name in ("fsync", "replace"):
                real = getattr(os, name)
                monkeypatch.setattr(os, name, lambda *a, real=real: (count(), real(*a))[1])
            save(folder, 2, NEW)
            os._exit(0)
        os.waitpid(child, 0)
        assert contents(folder) in ([OLD, OLD], [NEW, NEW])
        outcomes.append(contents(folder)[0] == NEW)
    assert outcomes == sorted(outcomes)
    assert {False, True} == set(outcomes)


def test_a_full_disk_leaves_no_checkpoint_and_no_draft(tmp_path: Path) -> None:
    def full() -> Iterator[bytes]:
        yield b"some"
        raise OSError(28, "No space left on device")

    folder = FolderStore(tmp_path)
    save(folder, 1, OLD)
    with pytest.raises(OSError):
        folder.save(2, {"a": full()}, finite=True)
    assert contents(folder) == [OLD, OLD]
    assert [path.name for path in tmp_path.iterdir()] == ["00000001"]
    assert not list(tmp_path.rglob(f"{atomic_file.DRAFT}*"))


def test_a_disk_that_fails_when_it_is_to_keep_what_was_written_leaves_the_old_or_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each fsync in turn: what one says that failed may have lost is not trusted again."""
    fsync, came, failed = os.fsync, 0, []
    folder = FolderStore(tmp_path)
    save(folder, 1, OLD)
    for fails in range(1, 20):
        came = 0

        def failing(descriptor: int, fails: int = fails) -> None:
            nonlocal came
            came += 1
            if came == fails:
                raise OSError(5, "Input/output error")
            fsync(descriptor)

        monkeypatch.setattr(os, "fsync", failing)
        try:
            save(folder, 2, NEW)
        except OSError:
            failed.append(fails)
        monkeypatch.setattr(os, "fsync", fsync)
        assert contents(folder) in ([OLD, OLD], [NEW, NEW])
        assert not list(tmp_path.rglob(f"{atomic_file.DRAFT}*"))
        if came < fails:
            break
    assert failed[:4] == [1, 2, 3, 4], "two files, what they are called, and the manifest"


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


@pytest.mark.parametrize("name", ["../a", "/etc/passwd", "a/b", ".hidden", "", "x" * 65])
def test_a_name_that_leads_elsewhere_is_refused(name: str) -> None:
    data = Manifest(files=(FileEntry(name=name, size=1, crc32=0),), finite=True, facts={}).to_bytes()
    with pytest.raises(Damaged):
        Manifest.from_bytes(data)


def test_a_file_that_is_short_long_or_missing_is_noticed_and_the_one_before_is_taken(tmp_path: Path) -> None:
    folder = FolderStore(tmp_path)
    save(folder, 1, OLD)
    save(folder, 2, NEW)
    for path in [path for path in sorted(folder.place(2).iterdir()) if path.name != MANIFEST]:
        whole = path.read_bytes()
        for data in (None, b"", whole[:-1], whole + b"x"):
            path.unlink()
            if data is not None:
                path.write_bytes(data)
            number, refused = folder.newest()
            assert number == 1, (path, data)
            assert path.name in refused[0]
            path.write_bytes(whole)
    assert folder.newest() == (2, [])


def test_without_a_manifest_there_is_no_checkpoint(tmp_path: Path) -> None:
    folder = FolderStore(tmp_path)
    save(folder, 1, OLD)
    (folder.place(1) / MANIFEST).unlink()
    assert folder.newest() == (None, [])


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


def test_what_a_deletion_that_was_cut_short_has_left_is_swept_up(tmp_path: Path) -> None:
    folder = FolderStore(tmp_path)
    for number in (1, 2, 3):
        save(folder, number, NEW)
    for number in (1, 3):
        (folder.place(number) / MANIFEST).unlink()
    (tmp_path / "notes").mkdir()
    assert folder.rotate(5) == []
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["00000002", "00000003", "notes"], "3 may be one that is being written"
