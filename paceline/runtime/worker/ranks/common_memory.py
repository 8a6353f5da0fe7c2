"""Memory that all ranks of a worker read and write: a vector of the model's length, without a name in the file system.

The first rank makes an anonymous file (memfd) and tells the others where the kernel shows its descriptor
(`/proc/PID/fd/N`). Only processes of the same user can open that, and only on the same machine. The file has no
descriptor any more once all have it mapped; its memory goes back to the kernel when the last of them ends.

Linux only. Elsewhere, and where a rank cannot open it, as in a container of its own, vectors go over the ranks'
connections.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import torch
from torch import Tensor

from paceline.live.same_host.file_mapping import map_shared

FLOAT_BYTES = 4


@contextlib.contextmanager
def offered(length: int) -> Iterator[tuple[Tensor, str] | None]:
    """Gives zeros in such memory, and the path by which others attach to it within the context.

    Gives None where there is no such memory.
    """
    if not hasattr(os, "memfd_create") or not length:
        yield None
        return
    try:
        descriptor = os.memfd_create("paceline ranks", os.MFD_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        os.ftruncate(descriptor, FLOAT_BYTES * length)
        yield _mapped(descriptor, length), f"/proc/{os.getpid()}/fd/{descriptor}"
    finally:
        os.close(descriptor)


def attached(path: str, length: int) -> Tensor | None:
    """Returns the vector that another rank offers at `path`; None where it cannot be had or is of another length."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        # A shorter file would end this process when it reads beyond the end.
        return _mapped(descriptor, length) if os.fstat(descriptor).st_size == FLOAT_BYTES * length else None
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _mapped(descriptor: int, length: int) -> Tensor:
    """Returns the file as a tensor, which keeps the mapping. Raises OSError."""
    return torch.frombuffer(map_shared(descriptor, FLOAT_BYTES * length, write=True), dtype=torch.float32)
