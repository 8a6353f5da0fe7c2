"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.checkpoint import atomic_file
from paceline.checkpoint.folder_store import FolderStore
from tests.checkpoint.saving import contents, save

OLD, NEW = b"old" * 500, b"new" * 500


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
