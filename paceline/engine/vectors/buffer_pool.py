"""Recycles memory for vectors: it is to the host what torch's caching allocator is to a GPU.

Fresh pages cost more than the arithmetic that fills them, so a buffer is kept when nobody needs it any more. No count
says who needs it. A buffer is lent as a tensor over the same memory whose storage keeps a `LentArray` alive (a
`BufferRef` where the buffer is on a GPU). Every tensor, view, numpy array or memoryview of that memory keeps the
storage, so the loan ends exactly when the last of them is gone, on whatever thread that happens.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

FLOAT32 = np.dtype(np.float32)
PAGE_BYTES, WITHIN_PAGE = 4096, 2048
"""Where in a page a new buffer begins. The kernel copies what it receives by one instruction, which takes four times as
long on AMD's processors where the target lies 1 to 63 bytes further into its page than the source. Bytes of a message
begin a header into a page, and large ones of the C library 64 bytes into one, which is just that. Half a page is far
from both (docs/benchmarks.md).
"""


class LentArray(np.ndarray[Any, np.dtype[np.float32]]):
    """Lends host memory once: numbers over a buffer, of which `lent` makes a tensor.

    When the last tensor over it, and everything made from that, is gone, `give_back(token)` is called. It may be called
    on any thread and in the middle of anything, so it must neither wait nor take a lock. Views of it have no
    `give_back`, and keep it alive.
    """

    give_back: Callable[[Any], object] | None = None
    token: Any = None

    def __del__(self) -> None:
        if self.give_back is not None:
            self.give_back(self.token)


def lent(buffer: Any, begin: int, length: int, give_back: Callable[[Any], object], token: Any) -> Tensor:
    """Returns a tensor of `length` numbers that lie `begin` bytes into `buffer`, as a loan that ends with it.

    buffer: anything that gives writable memory. Memory that must not be written to has to be declared writable all the
    same, because torch warns of tensors over read-only arrays; writing to it would end the process.
    """
    array: LentArray = LentArray((length,), FLOAT32, buffer, begin)
    array.give_back, array.token = give_back, token
    return torch.from_numpy(array)


class BufferRef:
    """Lends `buffer` once: a contiguous 1-D float32 tensor of at least one element, on any device.

    `tensor()` makes a tensor over the buffer's memory that keeps this loan alive. When the last such tensor, and
    everything made from it, is gone, so is the loan, and `give_back(buffer)` is called. It may be called on any thread
    and in the middle of anything, so it must neither wait nor take a lock.
    """

    __slots__ = ("__weakref__", "_give_back", "buffer")

    def __init__(self, buffer: Tensor, give_back: Callable[[Any], object] | None = None) -> None:
        self.buffer = buffer
        self._give_back = give_back

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        place = self.buffer.data_ptr()
        return {"shape": (self.buffer.numel(),), "typestr": "<f4", "data": (place, False), "version": 3}

    def tensor(self) -> Tensor:
        """Returns a tensor over the buffer, which keeps this reference, and so the loan, alive."""
        if self.buffer.is_cuda:
            return torch.as_tensor(self, device=self.buffer.device)
        array: LentArray = LentArray((self.buffer.numel(),), FLOAT32, self.buffer.numpy())
        array.token = self
        return torch.from_numpy(array)

    def __del__(self) -> None:
        give_back = getattr(self, "_give_back", None)  # not set where Ctrl-C came before `__init__`
        if give_back is not None:
            give_back(self.buffer)


Source = Callable[[int], memoryview | None]
"""Returns room for so many bytes, free again when nothing refers to it any more; None when there is none left."""


class Pool:
    """Keeps idle host buffers by length: `idle_max` of each, or more up to `idle_bytes`; the others go back to the
    system.

    A vector that travels in slices takes as many buffers of one length as it has slices, hence the second limit.

    length_min: for anything shorter, the C library's own recycling is faster. made: buffers allocated so far.
    lent_bytes: of all that was taken so far.
    source: where their memory comes from; the C library's as long as there is none.
    """

    def __init__(self, *, idle_max: int = 4, idle_bytes: int = 256 << 20, length_min: int = 16384) -> None:
        self.idle_max, self.idle_bytes = idle_max, idle_bytes
        self.source: Source | None = None
        self.length_min = max(1, length_min)
        self.made = self.lent_bytes = 0
        self._idle: dict[int, deque[np.ndarray[Any, Any]]] = {}

    def take(self, length: int) -> Tensor:
        """Returns a float32 tensor of `length` arbitrary numbers; its memory is recycled when nobody refers to it."""
        self.lent_bytes += 4 * length
        if length < self.length_min:
            return torch.empty(length, dtype=torch.float32)
        try:
            buffer = self._idle[length].pop()  # the one used last is the one most likely in cache
        except (KeyError, IndexError):
            self.made += 1
            buffer = self._make(length)
        return lent(buffer, 0, length, self._give_back, buffer)

    def _make(self, length: int) -> np.ndarray[Any, Any]:
        """Returns a new buffer, of shared memory if there is a source of that and it has room."""
        room = self.source(4 * length) if self.source else None
        if room is not None:
            return np.frombuffer(room, FLOAT32)
        whole = torch.empty(length + PAGE_BYTES // FLOAT32.itemsize, dtype=torch.float32)
        begin = (WITHIN_PAGE - whole.data_ptr()) % PAGE_BYTES // FLOAT32.itemsize
        made: np.ndarray[Any, Any] = whole.numpy()[begin : begin + length]
        return made

    def idle(self, length: int) -> int:
        """Returns how many buffers of this length wait to be used again."""
        return len(self._idle.get(length, ()))

    def clear(self) -> None:
        """Gives all idle memory back to the system."""
        self._idle.clear()

    def _give_back(self, buffer: np.ndarray[Any, Any]) -> None:
        # Each of these operations is atomic. A lock would deadlock when garbage collection strikes while it is held.
        idle = self._idle.get(buffer.size)
        if idle is None:
            most = max(self.idle_max, self.idle_bytes // (4 * buffer.size))
            idle = self._idle.setdefault(buffer.size, deque(maxlen=most))
        idle.append(buffer)


# There is one pool for the process, as of any allocator: nothing of it can be observed but speed.
_HOST = Pool()


def take_memory_from(source: Source) -> None:
    """Lets the process's pool make its buffers of what `source` gives from now on; a forked child's pool does not."""
    _HOST.clear()
    _HOST.source = source


def passed_bytes() -> int:
    """Returns the bytes of host memory that this process has taken for vectors so far: a pass of arithmetic fills as
    many as its result has."""
    return _HOST.lent_bytes


def _start_over() -> None:
    """Empties the pool in a forked child: memory that may be shared is the parent's to write."""
    _HOST.clear()
    _HOST.source = None


os.register_at_fork(after_in_child=_start_over)


def spare(length: int, device: torch.device | None = None, *, pinned: bool = False) -> Tensor:
    """Returns `length` float32 numbers to be overwritten, on `device` (the host when None).

    pinned: in page-locked host memory, for traffic with a GPU. torch recycles that and device memory itself. Where this
    process shares its memory with others of the host, the shared memory is page-locked, and taken.
    """
    if pinned and not (_HOST.source and length >= _HOST.length_min):
        return torch.empty(length, dtype=torch.float32, pin_memory=True)
    if device is not None and device.type != "cpu":
        return torch.empty(length, dtype=torch.float32, device=device)
    return _HOST.take(length)
