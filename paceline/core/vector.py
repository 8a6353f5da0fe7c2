"""Says what a scheme may do with a slice of the model.

A vector is a value: arithmetic gives a new one and nothing changes afterwards. A scheme writes arithmetic on whatever
it is given: a `paceline.engine.vectors.flat.Flat` (a torch buffer), a numpy array, or a `Ghost`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from paceline.core.errors import ConfigError


@runtime_checkable
class Vector(Protocol):
    """A scheme computes with flat runs of float32 numbers, or with something that has the size of one (`Ghost`)."""

    @property
    def nbytes(self) -> int: ...
    def __len__(self) -> int: ...
    def __getitem__(self, part: slice, /) -> Any: ...
    def __add__(self, other: Any, /) -> Any: ...
    def __sub__(self, other: Any, /) -> Any: ...
    def __mul__(self, factor: Any, /) -> Any: ...  # a number, or another vector element by element
    def __truediv__(self, divisor: Any, /) -> Any: ...  # likewise
    def __pow__(self, exponent: float, /) -> Any: ...  # element by element


class Ghost:
    """A vector with a size and no numbers, so that a timing-only run of thousands of workers needs no memory.

    Arithmetic raises ValueError where lengths differ, as it does with numbers.
    """

    __slots__ = ("_length", "nbytes")

    def __init__(self, length: int) -> None:
        self._length = length
        self.nbytes = 4 * length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, part: slice) -> Ghost:
        begin, end, _ = part.indices(self._length)
        length = max(0, end - begin)
        return self if length == self._length else Ghost(length)

    def _same(self, _other: object) -> Ghost:
        # Each call would count: a simulation does little else than such arithmetic.
        if _other.__class__ is Ghost and _other._length != self._length:
            raise ValueError(f"vectors of {self._length} and {_other._length} elements do not go together")
        return self

    __add__ = __sub__ = __mul__ = __rmul__ = __truediv__ = __pow__ = _same

    def spliced(self, part: slice, v: Ghost) -> Ghost:
        return self

    def __repr__(self) -> str:
        return f"Ghost({self._length})"


def splice(w: Any, part: slice, v: Any) -> Any:
    """Returns `w` with the elements of `part` replaced by `v`, as a new vector; `v` itself where it
    covers all of `w`.
    """
    if len(v) == len(w):
        return v
    if hasattr(w, "spliced"):
        return w.spliced(part, v)
    new = w.copy()  # a numpy array
    new[part] = v
    return new


NOT_FINITE = "not finite: it has NaN, infinity, or numbers whose squares overflow"
"""Why a contribution is rejected for which `is_finite` is False."""


def is_finite(v: Any) -> bool:
    """Returns False if `v` holds a NaN or an infinity, or numbers so large that their squares overflow."""
    if hasattr(v, "norm"):
        return math.isfinite(v.norm())
    return math.isfinite(float(v.dot(v))) if hasattr(v, "dot") else True  # a numpy array; a Ghost has no numbers


def sum_of_two(first: int, a: Any, second: int, b: Any) -> Any:
    """Returns a + b, of ranks `first` and `second`, with the same bits whichever of the two came first."""
    return a + b if first < second else b + a


def weighted_mean(total: Any, weight: float) -> Any:
    """Returns `total` / `weight`: the mean of vectors whose weighted sum is `total`.

    Where nobody contributed, `weight` is 0 and `total`, a zero vector, is returned itself.
    """
    return total * (1.0 / weight) if weight else total


class Memory(Protocol):
    """Gives a driver room for vectors that arrive, and the bytes of those that leave."""

    def empty(self, length: int) -> Any:
        """Returns a vector of `length` elements whose numbers are about to be written."""

    def bytes_of(self, v: Any) -> memoryview:
        """Returns the bytes of `v`, writable only if it came from `empty` just now."""

    def join(self, parts: Sequence[Any]) -> Any:
        """Returns one vector made of consecutive parts, without a copy when they already lie side by side in one
        buffer.
        """


class Arrival:
    """Says how the parts of one vector arrived. It holds none of them, so it may be kept for longer.

    there: all parts have arrived. seconds_waited: the time that all readers together have waited so far.
    """

    __slots__ = ("seconds_waited", "there")

    def __init__(self) -> None:
        self.seconds_waited, self.there = 0.0, False


class Promise(Protocol):
    """A vector whose parts arrive one after the other. Reading it waits; arithmetic and slices by size do not."""

    @property
    def vector(self) -> Any:
        """Returns the vector that is still arriving."""

    @property
    def arrival(self) -> Arrival:
        """Returns how its parts have arrived so far."""

    def put(self, part: int, v: Any) -> None:
        """Takes part `part`, which has arrived. Raises ValueError for one of another length."""

    def fail(self, error: BaseException) -> None:
        """Ends the wait for all parts that have not arrived: whoever waits for them gets `error`."""


@runtime_checkable
class PromisingMemory(Memory, Protocol):
    """A memory that can also give out vectors that have not arrived yet."""

    def promise(self, v: Any, edges: Sequence[int], what: str, timeout_s: float) -> Promise | None:
        """Returns a vector whose part i will fill edges[i] to edges[i + 1]; a wait for `what` takes at most
        `timeout_s`.

        `v` is the first part that arrived. The result is None where vectors of its kind cannot be read in parts.
        """


def is_arriving(v: Any) -> bool:
    """Returns True if reading `v` would have to wait. Then `v.when(action)` calls `action` when it would not."""
    return not getattr(v, "there", True)


def cut(length: int, shards: int) -> tuple[slice, ...]:
    """Returns `shards` consecutive slices that cover `length` elements; their sizes differ by at most one.

    Raises ConfigError when there would be an empty shard.
    """
    if not 1 <= shards <= max(length, 1):
        raise ConfigError(
            f"cannot cut {length} trained parameters into {shards} parts: give at most {length} fragments"
        )
    edges = [length * s // shards for s in range(shards + 1)]
    return tuple(slice(a, b) for a, b in itertools.pairwise(edges))
