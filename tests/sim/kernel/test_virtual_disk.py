"""A simulated disk keeps what it promises to keep, and may lose all else."""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random

import pytest

from paceline.sim.kernel.virtual_disk import BLOCK_BYTES, DiskFaults, PowerCut, VirtualDisk

A, B, FOLDER = Path("/a"), Path("/f/b"), Path("/f")


def written(disk: VirtualDisk, path: Path, data: bytes, *, synced: bool = True, settled: bool = True) -> None:
    with disk.create(path) as file:
        file.write(data)
        if synced:
            file.sync()
    if settled:
        disk.settle(path.parent)


def after_cuts(synced: bool, settled: bool, data: bytes = b"x" * 3 * BLOCK_BYTES) -> set[bytes | None]:
    """What 60 power cuts leave of a file; None where it has no name any more."""
    found: set[bytes | None] = set()
    for seed in range(60):
        disk = VirtualDisk(Random(seed))
        written(disk, A, data, synced=synced, settled=settled)
        disk.cut_power()
        found.add(b"".join(disk.read(A)) if disk.exists(A) else None)
    return found


def test_what_is_synced_and_settled_survives() -> None:
    data = b"x" * 3 * BLOCK_BYTES
    assert after_cuts(True, True) == {data}
    assert after_cuts(True, False) == {data, None}


def test_what_is_not_synced_is_lost_torn_or_there() -> None:
    found = after_cuts(False, True)
    assert {b"", b"x" * 3 * BLOCK_BYTES} <= found
    assert any(b"\0" in data and b"x" in data for data in found if data)
    assert None not in found


def test_one_byte_of_one_file_becomes_another_and_stays_so() -> None:
    disk, data = VirtualDisk(Random(1)), b"x" * 100
    assert disk.rot() is None
    written(disk, A, data)
    assert disk.rot() == A
    found = b"".join(disk.read(A))
    assert len(found) == len(data)
    assert sum(old != new for old, new in zip(data, found, strict=True)) == 1
    disk.cut_power()
    assert b"".join(disk.read(A)) == found


def test_a_kill_loses_nothing() -> None:
    disk = VirtualDisk(Random(1), DiskFaults(stops_at=3))
    with pytest.raises(PowerCut):
        written(disk, A, b"x")
    with pytest.raises(PowerCut):
        disk.unlink(A)
    disk.power_on()
    assert b"".join(disk.read(A)) == b"x"


def test_a_name_that_was_replaced_and_not_settled_stands_for_the_old_or_the_new() -> None:
    found = set()
    for seed in range(40):
        disk = VirtualDisk(Random(seed))
        written(disk, A, b"old")
        written(disk, Path("/draft"), b"new")
        disk.replace(Path("/draft"), A)
        disk.cut_power()
        found.add(b"".join(disk.read(A)))
    assert found == {b"old", b"new"}


def test_a_file_is_lost_with_its_folder() -> None:
    disk = VirtualDisk(Random(0))
    disk.make_folder(FOLDER)
    written(disk, B, b"x")
    disk.remove_tree(FOLDER)
    assert not disk.exists(B)
    assert disk.names(FOLDER) == disk.names(Path("/")) == []


def test_a_full_disk_takes_what_fits_and_says_so() -> None:
    disk = VirtualDisk(Random(0), DiskFaults(capacity_bytes=5))
    with pytest.raises(OSError) as full:
        written(disk, A, b"123456789")
    assert full.value.errno == errno.ENOSPC
    assert b"".join(disk.read(A)) == b"12345"


def test_a_disk_that_lies_says_that_it_has_synced() -> None:
    disk = VirtualDisk(Random(0), DiskFaults(lies=1.0))
    written(disk, A, b"x")
    assert disk.lied == 2
    with pytest.raises(OSError):
        written(VirtualDisk(Random(0), DiskFaults(errors=1.0)), A, b"x")


def test_a_slow_disk_takes_its_time() -> None:
    disk = VirtualDisk(Random(0), DiskFaults(seconds_a_call=0.5, seconds_a_mib=2.0))
    written(disk, A, bytes(2**20))
    assert disk.seconds == 4 * 0.5 + 2.0


@pytest.mark.parametrize("act", ["read", "unlink", "settle", "make_folder"])
def test_what_cannot_be_is_an_error_of_the_system(act: str) -> None:
    disk = VirtualDisk(Random(0))
    disk.make_folder(FOLDER)
    with pytest.raises(OSError):
        list(getattr(disk, act)(FOLDER if act == "make_folder" else A) or ())
