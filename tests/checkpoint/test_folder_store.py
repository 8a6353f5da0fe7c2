from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest

from paceline.checkpoint.folder_store import MANIFEST, FolderStore
from paceline.checkpoint.manifest import Damaged, FileEntry, Manifest
from paceline.sim.kernel.virtual_disk import DiskFaults, PowerCut, VirtualDisk
from tests.checkpoint.saving import contents, save

OLD, NEW = b"old" * 500, b"new" * 500


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


@pytest.mark.parametrize("killed_at", range(1, 16))
def test_what_is_saved_after_a_kill_survives_a_power_cut(killed_at: int) -> None:
    """Also where the kill came between a folder and its name on the disk: the next process finds the folder there."""
    disk, root = VirtualDisk(random.Random(killed_at)), Path("/runs/one/checkpoints")
    disk.make_folder(root.parent)
    disk.power_on(DiskFaults(stops_at=killed_at))
    with contextlib.suppress(PowerCut):
        save(FolderStore(root, disk), 1, OLD)
    disk.power_on()
    save(FolderStore(root, disk), 2, NEW)
    disk.cut_power()
    disk.power_on()
    assert FolderStore(root, disk).newest()[0] == 2
