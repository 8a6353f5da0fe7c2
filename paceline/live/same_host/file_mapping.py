"""Shared mappings of files that keep no descriptor, and what the kernel is asked about them. Linux only.

Python's `mmap` duplicates the descriptor for as long as the mapping lives; with hundreds of files, each read by several
processes, that would use up the descriptors that a process may have.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import mmap
import os
import weakref
from typing import Any

try:
    import fcntl
except ImportError:  # Windows; `can_seal` says no there, as on macOS, and nothing else here is called
    fcntl = None  # type: ignore[assignment]

SEAL_FUTURE_WRITE = 0x10  # F_SEAL_FUTURE_WRITE: Linux 5.1; Python has no name for it


@functools.cache
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_int64]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return libc


def map_shared(descriptor: int, nbytes: int, *, write: bool) -> ctypes.Array[ctypes.c_char]:
    """The file's first `nbytes`, mapped until nothing refers to the array or a view of it. Raises OSError."""
    libc = _libc()
    protection = mmap.PROT_READ | (mmap.PROT_WRITE if write else 0)
    address = libc.mmap(None, nbytes, protection, mmap.MAP_SHARED, descriptor, 0)
    if address is None or address == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    mapped = (ctypes.c_char * nbytes).from_address(address)
    weakref.finalize(mapped, libc.munmap, address, nbytes).atexit = False
    return mapped


def use_huge_pages(mapped: ctypes.Array[ctypes.c_char]) -> None:
    """Asks for huge pages, where the kernel has them for such memory."""
    _libc().madvise(ctypes.addressof(mapped), ctypes.sizeof(mapped), mmap.MADV_HUGEPAGE)


def seal(descriptor: int) -> None:
    """From now on nobody changes the file's length or maps it for writing; who has mapped it may go on writing.

    Raises OSError: EINVAL where the kernel is older than 5.1.
    """
    lent = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | SEAL_FUTURE_WRITE | fcntl.F_SEAL_SEAL
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, lent)


def keeps_its_length(descriptor: int) -> bool:
    """Returns True if the file has been sealed against becoming shorter. Raises OSError."""
    return bool(fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK)


@functools.cache
def can_seal() -> bool:
    """Has the kernel files without names that can be sealed against writing?"""
    if fcntl is None or not hasattr(os, "memfd_create"):
        return False
    try:
        file = os.memfd_create("paceline", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError:
        return False
    try:
        seal(file)
    except OSError as error:
        return error.errno not in (errno.EINVAL, errno.EPERM)
    finally:
        os.close(file)
    return True
