"""Memory without torch, for a party that keeps vectors and passes them on, but does not reckon with them.

The process of the command is such a one. To import torch would take it seconds, and most of its memory.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


class PlainMemory:
    """Its vectors are 1-D float32 arrays of numpy's, which nobody changes once their bytes have been asked for."""

    def empty(self, length: int) -> Any:
        return np.empty(length, np.float32)

    def bytes_of(self, v: Any) -> memoryview:
        """Writable the first time it is asked of a vector from `empty`, or of a slice of one; read-only otherwise."""
        view = memoryview(v.view(np.uint8))
        v.flags.writeable = False
        return view

    def mapped(self, memory: Any, *, writable: bool) -> None:
        """Has nothing to prepare."""

    def shareable(self, v: Any) -> Any:
        return v

    def address_of(self, v: Any) -> int:
        return int(v.__array_interface__["data"][0])

    def view(self, room: memoryview, begin: int, length: int, over: Callable[[int], object], loan: int) -> Any:
        """The `length` numbers that lie `begin` bytes into `room`, which nobody may write.

        `over(loan)` is called when the last array of them is gone.
        """
        v = np.frombuffer(room, np.float32, length, begin)
        weakref.finalize(v, over, loan).atexit = False
        return v

    def join(self, parts: Sequence[Any]) -> Any:
        """Returns one vector; this takes one copy unless there is one part only."""
        return parts[0] if len(parts) == 1 else np.concatenate(parts)
