"""Allocates vectors in a simulation: numpy arrays, or Ghosts (a length without content) if only time matters.

Arrays are handled through their own methods, so this package needs no numpy for a timing-only run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paceline.core.vector import Ghost, Memory


class ArrayMemory:
    """Allocates numpy arrays with the dtype of `like`."""

    def __init__(self, like: Any) -> None:
        self._one = like[:1]

    def empty(self, length: int) -> Any:
        """Returns a new array of `length` numbers of that dtype. Its contents are arbitrary."""
        return self._one.repeat(length)

    def bytes_of(self, v: Any) -> memoryview:
        """Returns the bytes of `v`, not a copy of them."""
        return memoryview(v).cast("B")

    def join(self, parts: Sequence[Any]) -> Any:
        """Returns the concatenation of `parts` as one new array: the shards of a model as one vector."""
        whole = self.empty(sum(map(len, parts)))
        begin = 0
        for part in parts:
            whole[begin : begin + len(part)] = part
            begin += len(part)
        return whole


class GhostMemory:
    """Allocates Ghosts, which have a length and no content."""

    def empty(self, length: int) -> Ghost:
        return Ghost(length)

    def bytes_of(self, v: Ghost) -> memoryview:
        """Raises TypeError, since a Ghost has no content that could be encoded."""
        raise TypeError(f"{v!r} has a size and no bytes")

    def join(self, parts: Sequence[Ghost]) -> Ghost:
        """Returns a Ghost as long as all `parts` together; numbers are counted as float32, 4 bytes each."""
        return Ghost(sum([part.nbytes for part in parts]) // 4)


def memory_for(w: Any) -> Memory:
    """Returns the memory for vectors of the kind of `w`, which may bring its own."""
    if isinstance(w, Ghost):
        return GhostMemory()
    own: Memory | None = getattr(w, "memory", None)
    return own or ArrayMemory(w)
