"""The disk of this machine and the simulated one do the same."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from paceline.checkpoint.disk import REAL_DISK, Disk
from paceline.sim.kernel.virtual_disk import VirtualDisk

Place = Callable[[str], Path]


@pytest.fixture(params=["real", "simulated"])
def disk(request: pytest.FixtureRequest) -> Disk:
    return REAL_DISK if request.param == "real" else VirtualDisk(Random(0))


@pytest.fixture
def at(disk: Disk, tmp_path: Path) -> Place:
    if disk is not REAL_DISK:
        disk.make_folder(tmp_path)
    return lambda name: tmp_path / name


def write(disk: Disk, path: Path, data: bytes) -> None:
    with disk.create(path) as file:
        file.write(data)
        file.sync()
    disk.settle(path.parent)


def test_what_was_written_is_read_under_its_last_name(disk: Disk, at: Place) -> None:
    disk.make_folder(at("x/y"))
    write(disk, at("x/y/a"), b"old")
    write(disk, at("x/y/b"), b"new")
    disk.replace(at("x/y/b"), at("x/y/a"))
    assert b"".join(disk.read(at("x/y/a"))) == b"new"
    assert disk.names(at("x/y")) == ["a"]
    assert (disk.exists(at("x/y/a")), disk.exists(at("x/y/b")), disk.exists(at("x"))) == (True, False, True)
    assert not disk.is_link(at("x"))


def test_what_is_removed_is_gone(disk: Disk, at: Place) -> None:
    disk.make_folder(at("x"))
    write(disk, at("x/a"), b"1")
    write(disk, at("b"), b"2")
    disk.unlink(at("b"))
    disk.remove_tree(at("x"))
    disk.remove_tree(at("x"))
    assert not any(map(disk.exists, (at("x"), at("x/a"), at("b"))))
    assert disk.names(at("x")) == []


@pytest.mark.parametrize("act", ["read", "unlink", "settle"])
def test_what_is_not_there_is_an_oserror(disk: Disk, at: Place, act: str) -> None:
    with pytest.raises(FileNotFoundError):
        list(getattr(disk, act)(at("none")) or ())
    with pytest.raises(FileNotFoundError), disk.create(at("none/a")):
        pass


def test_a_folder_that_is_there_is_not_made_again(disk: Disk, at: Place) -> None:
    disk.make_folder(at("x"))
    with pytest.raises(FileExistsError):
        disk.make_folder(at("x"))


def test_links_and_fifos_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    os.mkfifo(tmp_path / "fifo")
    for name in ("link", "fifo"):
        with pytest.raises(OSError):
            list(REAL_DISK.read(tmp_path / name))
    assert REAL_DISK.is_link(tmp_path / "link")


def test_the_name_of_each_folder_that_is_made_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(os.readlink(f"/proc/self/fd/{fd}")), fsync(fd))[1])
    REAL_DISK.make_folder(tmp_path / "x" / "y")
    assert synced == [str(tmp_path), str(tmp_path / "x")]


def test_a_folder_is_gone_again_where_its_name_cannot_be_brought_to_the_disk(
    disk: Disk, at: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were it left, the next attempt would take its name for one that is on the disk."""

    def fails(folder: Path) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(disk, "settle", fails)
        with pytest.raises(OSError, match="Input/output error"):
            disk.make_folder(at("x/y"))
    assert not disk.exists(at("x"))
    disk.make_folder(at("x/y"))
    assert disk.exists(at("x/y"))
