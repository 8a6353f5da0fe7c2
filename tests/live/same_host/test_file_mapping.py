"""Memory of another process, mapped to be read and nothing else."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os

import pytest

from paceline.core.errors import ConfigError
from paceline.live.same_host import file_mapping, unix_socket
from paceline.live.same_host.shared_memory import Segments, segments_for
from tests.live.same_host.test_shared_memory import begin

pytestmark = pytest.mark.skipif(not Segments.available(), reason="memory is shared on Linux only")


PIECE_BYTES = 4 << 20  # whole pages, also where those are huge


SHORT_BYTES = 100_000


@pytest.fixture(params=[SHORT_BYTES, PIECE_BYTES])
def lent(request: pytest.FixtureRequest) -> tuple[memoryview, int, int, int]:
    """What the lender writes to; and where it is: the borrower's descriptor, its length, and the offset."""
    segments = Segments()
    room = segments.make(request.param)
    assert room is not None
    number, offset = segments.find(begin(room), 1) or (0, 0)
    return room, *segments.opened(number), offset


def test_a_borrower_sees_what_the_lender_writes(lent: tuple[memoryview, int, int, int]) -> None:
    room, descriptor, nbytes, offset = lent
    seen = unix_socket.map_read_only(descriptor, nbytes)
    for value in (1, 2):
        room[7] = value
        assert seen[offset + 7] == value
    assert seen.readonly


@pytest.mark.parametrize("how", [os.O_RDONLY, os.O_RDWR])
def test_a_borrower_cannot_write_whichever_way_it_opens_the_memory(
    lent: tuple[memoryview, int, int, int], how: int
) -> None:
    """The file has the borrower's own user as its owner, so that it may be opened for writing; the seal holds."""
    room, descriptor, nbytes, _ = lent
    room[0] = 5
    opened = os.open(f"/proc/self/fd/{descriptor}", how)
    libc = file_mapping._libc()
    try:
        for flags in (mmap.PROT_WRITE, mmap.PROT_READ | mmap.PROT_WRITE):
            with pytest.raises(PermissionError):
                mmap.mmap(opened, nbytes, mmap.MAP_SHARED, flags)
        with pytest.raises(OSError):
            os.pwrite(opened, b"x", 0)
        with pytest.raises(OSError):
            os.ftruncate(opened, 0)
        with pytest.raises(OSError):
            os.posix_fallocate(opened, 0, 2 * nbytes)
        with pytest.raises(PermissionError):
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
        seen = file_mapping.map_shared(opened, nbytes, write=False)
        address = ctypes.c_void_p(ctypes.addressof(seen))
        assert libc.mprotect(address, ctypes.c_size_t(nbytes), mmap.PROT_READ | mmap.PROT_WRITE) == -1
        assert ctypes.get_errno() == errno.EACCES
        assert libc.madvise(address, nbytes, mmap.MADV_REMOVE) == -1, "a hole is written, too"
        assert (seen[0], room[0]) == (b"\x05", 5)
    finally:
        os.close(opened)


def test_without_such_seals_no_memory_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_old(descriptor: int) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    file_mapping.can_seal.cache_clear()
    monkeypatch.setattr(file_mapping, "seal", too_old)
    assert segments_for("auto") is None
    with pytest.raises(ConfigError, match=r"only Linux 5.1 and later can: use --transport auto"):
        segments_for("shm")
    file_mapping.can_seal.cache_clear()


def test_a_mapping_keeps_no_descriptor(lent: tuple[memoryview, int, int, int]) -> None:
    _, descriptor, nbytes, _ = lent
    before = {*os.listdir("/proc/self/fd")}
    seen = unix_socket.map_read_only(descriptor, nbytes)
    assert {*os.listdir("/proc/self/fd")} <= before, "others may have been closed meanwhile"
    assert seen.nbytes == nbytes


def test_what_cannot_be_mapped_is_said() -> None:
    with pytest.raises(OSError):
        file_mapping.map_shared(-1, 4096, write=False)
