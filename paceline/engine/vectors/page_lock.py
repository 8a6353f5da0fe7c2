"""Page-locks shared memory, so that a GPU reads and writes it directly.

A copy between a GPU and ordinary memory goes through a buffer of the driver, at a fifth of what the bus allows, and
holds up the thread that asks for it. Memory that is page-locked (`cudaHostRegister`) has neither cost. A gradient then
leaves the GPU for the very memory in which a server of this host reads it, and weights come onto the GPU from where the
server wrote them.
"""

from __future__ import annotations

import contextlib
import ctypes
import weakref
from typing import Any

import torch

PORTABLE = 1
"""cudaHostRegisterPortable: for all devices of this process."""
READ_ONLY = 8
"""cudaHostRegisterReadOnly: memory that is mapped for reading only."""


def page_lock(mapped: ctypes.Array[ctypes.c_char], *, writable: bool) -> bool:
    """Page-locks a whole mapping, for as long as `mapped` exists. Returns False where the driver refuses.

    Without it everything is as before, but slower: who asks need not look at the answer.
    """
    runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    address, nbytes = ctypes.addressof(mapped), ctypes.sizeof(mapped)
    if _register(runtime, address, nbytes, PORTABLE if writable else PORTABLE | READ_ONLY) != 0:
        return False
    # Before the pages are unmapped: finalizers of an object are called in the reverse of their order here.
    weakref.finalize(mapped, runtime.cudaHostUnregister, address).atexit = False
    return True


def _register(runtime: Any, address: int, nbytes: int, flags: int) -> int:
    """Returns CUDA's error code; 0: none."""
    code = int(runtime.cudaHostRegister(address, nbytes, flags))
    if code:
        _forget_error()
    return code


def _forget_error() -> None:
    """Clears the error that CUDA keeps for whoever asks next, which would be torch."""
    with contextlib.suppress(RuntimeError):
        torch.zeros(1, device="cuda")
        torch.cuda.synchronize()
