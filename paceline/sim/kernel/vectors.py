"""Allocates vectors in a simulation: numpy arrays, or Ghosts (a length without content) if only time matters.

Arrays are handled through their own methods, so this package needs no numpy for a timing-only run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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


class NotFinite(Ghost):
    """Stands for a vector with NaN where vectors have no numbers: whatever is added to it has NaN, too.

    number: of the bad result that it comes from, which arithmetic and slices keep.
    """

    __slots__ = ("number",)

    def __init__(self, length: int, number: int) -> None:
        super().__init__(length)
        self.number = number

    def norm(self) -> float:
        """Returns NaN, as the Euclidean length of such a vector is."""
        return math.nan

    def __getitem__(self, part: slice) -> NotFinite:
        begin, end, _ = part.indices(len(self))
        return NotFinite(max(0, end - begin), self.number)

    def _spoils(self, _other: object) -> NotFinite:
        return self

    # Python asks these before the methods of a Ghost on the left, because this class derives from Ghost.
    __radd__ = __rsub__ = __rmul__ = __rtruediv__ = _spoils

    def __repr__(self) -> str:
        return f"NotFinite({len(self)}, number {self.number})"


def ghost_norm(v: Ghost, _onto: Any) -> float:
    """Returns the norm by which the gradient check of a server judges a vector without numbers: NaN, or 1."""
    return v.norm() if isinstance(v, NotFinite) else 1.0


class PassCounter:
    """Counts what arithmetic writes: `nbytes` grows by the bytes of each vector that a pass over memory makes."""

    __slots__ = ("nbytes",)

    def __init__(self) -> None:
        self.nbytes = 0

    def __call__(self) -> int:
        """Returns the bytes so far."""
        return self.nbytes


class CountedGhost(Ghost):
    """A Ghost whose arithmetic is counted as that of a `Flat` costs.

    A product with a number is no pass over memory, all else is one. Arithmetic gives another object, as with numbers.
    """

    __slots__ = ("counter",)

    def __init__(self, length: int, counter: PassCounter) -> None:
        super().__init__(length)
        self.counter = counter

    def __getitem__(self, part: slice) -> CountedGhost:
        begin, end, _ = part.indices(len(self))
        return CountedGhost(max(0, end - begin), self.counter)

    def _passed(self, _other: object) -> CountedGhost:
        self.counter.nbytes += self.nbytes
        return CountedGhost(len(self), self.counter)

    def _scaled(self, _other: object) -> CountedGhost:
        if isinstance(_other, int | float):
            return CountedGhost(len(self), self.counter)
        return self._passed(_other)

    __add__ = __sub__ = __pow__ = _passed
    __mul__ = __rmul__ = __truediv__ = _scaled

    def spliced(self, part: slice, v: Ghost) -> CountedGhost:
        """Returns another vector; it takes one pass to copy this one."""
        return self._passed(v)

    def copied(self) -> CountedGhost:
        """Returns another vector of that length. Nothing is counted."""
        return CountedGhost(len(self), self.counter)


def counter_of(w: Any) -> Callable[[], int]:
    """Returns what counts the bytes that arithmetic with vectors of the kind of `w` has written so far.

    A vector may bring its own, `counter`. Where there is none, nothing is counted, and 0 is returned.
    """
    counter: Callable[[], int] = getattr(w, "counter", int)
    return counter


class CountedGhostMemory(GhostMemory):
    """Allocates vectors of `counter`."""

    def __init__(self, counter: PassCounter) -> None:
        self._counter = counter

    def empty(self, length: int) -> CountedGhost:
        return CountedGhost(length, self._counter)

    def join(self, parts: Sequence[Ghost]) -> CountedGhost:
        """Returns a vector as long as all `parts` together."""
        return CountedGhost(sum([part.nbytes for part in parts]) // 4, self._counter)


def memory_for(w: Any) -> Memory:
    """Returns the memory for vectors of the kind of `w`, which may bring its own."""
    if isinstance(w, CountedGhost):
        return CountedGhostMemory(w.counter)
    if isinstance(w, Ghost):
        return GhostMemory()
    own: Memory | None = getattr(w, "memory", None)
    return own or ArrayMemory(w)
