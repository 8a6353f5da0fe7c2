"""`ChunkedVector` is a vector whose parts come one after the other, and need not lie side by side.

A gradient whose first layers are still being computed is one, and so are weights of which some servers have not
answered yet. It is a Flat in every respect: whoever reads numbers waits for those it reads and for no others.

    parts there, side by side      reading takes a view
    parts there, scattered         reading all at once joins them, once; `copy_into` takes them one by one, no join
    parts missing                  reading waits, for as long as the deadline allows; `when` reports that they came
"""

from __future__ import annotations

import itertools
import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from paceline.core.errors import TimedOut
from paceline.core.vector import Arrival
from paceline.engine.vectors.flat import Flat, FlatMemory

FOREVER = threading.TIMEOUT_MAX


class _Watch:
    """Holds an action to be done once `missing` more parts are there."""

    __slots__ = ("action", "missing")

    def __init__(self, action: Callable[[], None], missing: int) -> None:
        self.action, self.missing = action, missing


class Chunks:
    """Holds the parts of a ChunkedVector: part i fills `edges[i]` to `edges[i + 1]`, once somebody `put`s it there.

    what, timeout_s: what a wait is for, and how long it may take. home: the buffer in which the parts lie, if there is
    one; `put` then needs no vector. Any thread may put, and any thread may wait.
    """

    def __init__(
        self,
        edges: Sequence[int],
        *,
        what: str = "a vector",
        timeout_s: float = FOREVER,
        device: torch.device | None = None,
        home: Flat | None = None,
    ) -> None:
        self.edges = tuple(edges)
        self.device = home.device if home is not None else device or torch.device("cpu")
        self._what, self._timeout_s, self._home = what, timeout_s, home
        self._there: list[Flat | None] = [None] * (len(self.edges) - 1)
        self._missing = sum(a < b for a, b in itertools.pairwise(self.edges))
        self.arrival = Arrival()
        self.arrival.there = not self._missing
        self._error: BaseException | None = None
        self._changed = threading.Condition()
        self._watches: dict[int, list[_Watch]] = {}

    @property
    def vector(self) -> ChunkedVector:
        """Returns the whole."""
        return ChunkedVector(self, 0, self.edges[-1])

    # ---- who brings --------------------------------------------------------------------------------------
    def put(self, part: int, v: Flat | None = None) -> None:
        """Adds part `part`, which will not change: `v`, or what lies in its place in `home`.

        Raises ValueError for a part of another length or one that is there already.
        """
        start, stop = self.edges[part], self.edges[part + 1]
        if v is None:
            assert self._home is not None
            v = self._home[start:stop]
        if len(v) != stop - start:
            raise ValueError(f"part {part} of {self._what} has {stop - start} elements, not {len(v)}")
        with self._changed:
            if self._there[part] is not None:
                raise ValueError(f"part {part} of {self._what} is there already")
            self._there[part] = v
            self._missing -= stop > start
            self.arrival.there = not self._missing
            due = [watch for watch in self._watches.pop(part, ()) if self._is_due(watch)]
            self._changed.notify_all()
        # Actions run outside the lock: they may read, put or wait themselves.
        for watch in due:
            watch.action()

    @staticmethod
    def _is_due(watch: _Watch) -> bool:
        """Counts a part that has come; returns True if it was the last that `watch` waits for."""
        watch.missing -= 1
        return not watch.missing

    def fail(self, error: BaseException) -> None:
        """Ends the wait for all parts that are not there: whoever waits for them, now or later, gets `error`."""
        with self._changed:
            self._error = self._error or error
            watches = {id(watch): watch for same_part in self._watches.values() for watch in same_part}
            self._watches.clear()
            self._changed.notify_all()
        for watch in watches.values():
            watch.action()

    # ---- who takes ---------------------------------------------------------------------------------------
    @property
    def there(self) -> bool:
        """Returns True if all of it is there."""
        return not self._missing

    def has(self, start: int, stop: int) -> bool:
        """Returns True if these elements are there."""
        return not self._missing or not self._absent(start, stop)

    def when(self, start: int, stop: int, action: Callable[[], None]) -> None:
        """Calls `action` once these elements are there or never will be: now, or on the thread that brings the last."""
        with self._changed:
            absent = self._absent(start, stop)
            if absent and self._error is None:
                watch = _Watch(action, len(absent))
                for part in absent:
                    self._watches.setdefault(part, []).append(watch)
                return
        action()

    def wait(self, start: int, stop: int) -> None:
        """Waits until these elements are there. Raises what `fail` was given, or TimedOut."""
        if self.has(start, stop):
            return
        began = time.monotonic()
        with self._changed:
            self._changed.wait_for(lambda: self._error or not self._absent(start, stop), self._timeout_s)
            self.arrival.seconds_waited += time.monotonic() - began
            if self._absent(start, stop):
                raise self._error or TimedOut(f"waited {self._timeout_s:.0f} s for {self._what}")

    def pieces(self, start: int, stop: int) -> Iterator[Flat]:
        """Yields these elements, part by part, each as soon as it is there. Raises as `wait` does."""
        for part in self._range(start, stop):
            a, b = self.edges[part], self.edges[part + 1]
            if a == b:
                continue
            begin, end = max(a, start), min(b, stop)
            self.wait(begin, end)
            v = self._there[part]
            assert v is not None
            yield v if end - begin == b - a else v[begin - a : end - a]

    def joined(self, start: int, stop: int) -> Tensor:
        """Returns these elements in one piece: a view where they lie side by side, else one copy.

        Raises as `wait` does.
        """
        self.wait(start, stop)
        if self._home is not None:
            return self._home.tensor[start:stop]
        pieces = list(self.pieces(start, stop))
        if not pieces:
            return torch.empty(0, device=self.device)
        joined = FlatMemory(self.device).join(pieces).value()
        if stop - start == self.edges[-1]:
            self._settle(joined)
        return joined

    def _settle(self, whole: Tensor) -> None:
        """Makes `whole` the home of the parts, so that the memory they arrived in can be used again."""
        self._home = Flat(whole)
        with self._changed:
            self._there = [self._home[a:b] for a, b in itertools.pairwise(self.edges)]

    def _range(self, start: int, stop: int) -> range:
        """Returns the numbers of the parts that have some of these elements."""
        if stop <= start:
            return range(0)
        return range(bisect_right(self.edges, start) - 1, bisect_left(self.edges, stop))

    def _absent(self, start: int, stop: int) -> list[int]:
        """Returns the parts of these elements that are not there; empty parts do not count."""
        edges, there = self.edges, self._there
        return [i for i in self._range(start, stop) if there[i] is None and edges[i] < edges[i + 1]]


class ChunkedVector(Flat):
    """Refers to elements `start` to `stop` of `parts`, times `scale`. Reading raises what `Chunks.wait` does."""

    __slots__ = ("_joined", "_parts", "_start", "_stop")

    def __init__(self, parts: Chunks, start: int, stop: int, scale: float = 1.0) -> None:
        self._parts, self._start, self._stop = parts, start, stop
        self.scale = scale
        self._joined: Tensor | None = None
        self._value = None
        self._fresh = False
        self.probe = None

    @property
    def tensor(self) -> Tensor:  # type: ignore[override]
        """Returns the numbers without the scale, as in any Flat; waits for all of them."""
        if self._joined is None:
            self._joined = self._parts.joined(self._start, self._stop)
        return self._joined

    @property
    def there(self) -> bool:
        """Returns True if it can be read without waiting."""
        return self._parts.has(self._start, self._stop)

    def when(self, action: Callable[[], None]) -> None:
        """Calls `action` once it can be read, or never will be: now, or later on another thread."""
        self._parts.when(self._start, self._stop, action)

    @property
    def arrival(self) -> Arrival:
        """Says how all the parts arrived, not only those of this slice."""
        return self._parts.arrival

    @property
    def nbytes(self) -> int:
        return 4 * len(self)

    @property
    def device(self) -> torch.device:
        return self._parts.device

    def __len__(self) -> int:
        return self._stop - self._start

    def _cut(self, start: int, stop: int) -> ChunkedVector:
        """Returns a part of the vector, which shares the parts and waits for those it overlaps only."""
        return ChunkedVector(self._parts, self._start + start, self._start + stop, self.scale)

    def _scaled(self, scale: float) -> ChunkedVector:
        """Returns the vector times a number; nothing is read for that."""
        return ChunkedVector(self._parts, self._start, self._stop, scale)

    def copy_into(self, out: Tensor) -> None:
        """Writes the numbers over `out` part by part, each as soon as it is there."""
        if self.scale == 0.0:
            out.zero_()
            return
        at = 0
        for piece in self._parts.pieces(self._start, self._stop):
            (piece if self.scale == 1.0 else piece * self.scale).copy_into(out[at : at + len(piece)])
            at += len(piece)

    def same_as(self, other: object) -> bool:
        """Returns True for the same parts at the same scale, without reading them."""
        if isinstance(other, ChunkedVector):
            mine, its = (self._start, self._stop, self.scale), (other._start, other._stop, other.scale)
            return self._parts is other._parts and mine == its
        return False

    def __repr__(self) -> str:
        return f"Rope({len(self)} on {self.device}, scale {self.scale:g}{'' if self.there else ', arriving'})"


class RopeMemory(FlatMemory):
    """Its joins copy nothing, and it gives out vectors that have not arrived yet; else it is a FlatMemory."""

    def strung(self, parts: Sequence[Flat]) -> Flat:
        """Joins without a copy; whoever reads all numbers side by side pays for one then."""
        return rope_of(parts)

    def promise(self, v: Any, edges: Sequence[int], what: str, timeout_s: float) -> Chunks | None:
        """Returns the parts of a vector that arrives in host memory; None for vectors of another kind than Flat."""
        return Chunks(edges, what=what, timeout_s=timeout_s) if isinstance(v, Flat) else None


def rope_of(vectors: Sequence[Flat]) -> ChunkedVector:
    """Returns `vectors` one after the other as one vector, without a copy."""
    away = next((v.device for v in vectors if v.device.type != "cpu"), None)
    parts = Chunks(list(itertools.accumulate(map(len, vectors), initial=0)), device=away)
    for part, v in enumerate(vectors):
        parts.put(part, v)
    return parts.vector
