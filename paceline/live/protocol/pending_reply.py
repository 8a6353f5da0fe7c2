"""A result that has not come yet, and how long it took to come."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from paceline.core.coordination.party import Party
from paceline.core.effects import Ticket
from paceline.core.errors import ProtocolError, TimedOut
from paceline.core.message import gather, scalar_fields, vector_fields
from paceline.core.vector import Arrival, Memory, Promise, PromisingMemory
from paceline.live.protocol.transport import Envelope, Transport, progress_of
from paceline.live.protocol.wakeable_event import WakeableEvent

USUAL_SECONDS = 0.25
"""Nobody looks whether bytes move before a wait has lasted so long: nearly all answers come earlier."""


def rooms_for(lengths: Sequence[int], shared: Sequence[Any], memory: Memory) -> list[Any]:
    """Returns those vectors that are `shared`, and new ones for the others."""
    if not shared:
        return [memory.empty(length) for length in lengths]
    return [memory.empty(n) if v is None else v for n, v in zip(lengths, shared, strict=True)]


class PendingReply(Ticket):
    """Waits for `parts` answers (one a slice) and joins them into one.

    edges: where the answers' vectors meet, if the first answer may be taken for all: its vectors then have the other
    answers' parts when those come, and whoever reads them waits for `timeout_s` at most.
    """

    def __init__(
        self,
        what: str,
        parts: int,
        memory: Memory,
        *,
        edges: Sequence[int] = (),
        timeout_s: float = 0.0,
        way: Transport | None = None,
        whom: Sequence[Party] = (),
        departures: Callable[[], int] = lambda: 0,
    ) -> None:
        """`what` is named when a wait outlasts its deadline. `way`: by which the answers of `whom` come. `departures`:
        counts the workers that take no further part."""
        self.what = what
        self.begun = time.monotonic()
        self.sent: list[Envelope] = []
        self._memory = memory
        self._edges = edges if parts > 1 and isinstance(memory, PromisingMemory) else ()
        self._promises: dict[str, Promise] = {}
        self._arrivals: list[Arrival] = []  # of what was promised
        self._taken = False
        self._timeout_s, self._way, self._whom, self._departures = timeout_s, way, whom, departures
        self._coming = 0  # answers whose vectors have begun to come
        self._parts: list[Any] = [None] * parts
        self._missing = parts
        self._moved: list[tuple[float, float]] = []  # from when to when bytes of it did
        self._buffers: dict[int, Any] = {}
        self._error: BaseException | None = None
        self._ready = WakeableEvent()

    def room(self, part: int, shards: Sequence[slice], lengths: Sequence[int], shared: Sequence[Any] = ()) -> list[Any]:
        """Returns where the vectors of answer `part` go: its slices of one buffer a field, so that joining copies
        nothing.

        Those that are `shared` stay where they are.
        """
        self._coming += 1
        if len(self._parts) == 1:
            return rooms_for(lengths, shared, self._memory)
        total = shards[-1].stop
        rooms = []
        for field, length in enumerate(lengths):
            if shared and shared[field] is not None:
                rooms.append(shared[field])
                continue
            if length != shards[part].stop - shards[part].start:
                rooms.append(self._memory.empty(length))
                continue
            if field not in self._buffers:
                self._buffers[field] = self._memory.empty(total)
            rooms.append(self._buffers[field][shards[part]])
        return rooms

    def put(self, part: int, answer: Any, seconds_receiving: float) -> None:
        """Raises ProtocolError for an answer that does not go together with the others."""
        first = self._missing == len(self._parts)
        self._parts[part] = answer
        self._coming -= self._coming > 0
        now = time.monotonic()
        self._moved.append((now - seconds_receiving, now))
        self._missing -= 1
        if first and self._edges:
            self._promise(part, answer)
        try:
            for name, promise in self._promises.items():
                promise.put(part, getattr(answer, name))
        except ValueError as error:
            raise ProtocolError(f"{self.what}: {error}") from None
        if not self._missing:
            self._buffers.clear()
            self._forget_sent()
        if self._promises or not self._missing:
            self._ready.set()
        if self._taken:
            self._let_go()

    def _promise(self, part: int, answer: Any) -> None:
        """The first answer shows which vectors there will be; those of another length than the slice cannot be told."""
        vectors = {name: getattr(answer, name) for name in vector_fields(type(answer))}
        length = self._edges[part + 1] - self._edges[part]
        if self._error is None and all(len(v) == length for v in vectors.values()):
            assert isinstance(self._memory, PromisingMemory)
            promise = self._memory.promise
            found = {name: promise(v, self._edges, self.what, self._timeout_s) for name, v in vectors.items()}
            self._promises = {name: one for name, one in found.items() if one is not None}
            if len(self._promises) < len(found):
                self._promises = {}
            self._arrivals = [one.arrival for one in self._promises.values()]

    def _forget_sent(self) -> None:
        """What was asked has arrived, so that its memory can be used again."""
        self._moved += [(envelope.queued_at, envelope.sent_at) for envelope in self.sent]
        self.sent.clear()

    def fail(self, error: BaseException) -> None:
        """Ends all waits for the result with `error`."""
        self._error = error
        for promise in self._promises.values():
            promise.fail(error)
        self._ready.set()

    def wait(self, timeout_s: float) -> Any:
        """Returns the joined answer, or, with `edges`, the first one. Raises what `fail` was given, or TimedOut.

        On a thin link a vector may take longer than any deadline, so time counts from the last that was seen to move.
        It counts from the last departure, too: who is asked may have waited for that worker.
        """
        usual = min(timeout_s / 2, USUAL_SECONDS)
        if not self._answered_within(usual):
            self._wait_while_it_moves(timeout_s, timeout_s - usual)
        if self._error is not None:
            raise self._error
        if self._promises:
            return self._promised()
        return gather(self._parts, self._memory)

    def _answered_within(self, seconds: float) -> bool:
        """Returns True once there is an answer, False after so many seconds without one."""
        return self._ready.wait(seconds) if self._way is None else self._way.wait(self._ready, self._whom, seconds)

    def _wait_while_it_moves(self, timeout_s: float, seconds: float) -> None:
        """Waits on, for `seconds` and then as long as bytes move either way. Raises TimedOut."""
        departures, (moved, leaving) = self._departures(), self._progress()
        while not self._answered_within(seconds):
            before, was_leaving, departed = moved, leaving, departures
            departures, (moved, leaving) = self._departures(), self._progress()
            moves = moved != before and (was_leaving or leaving or self._coming)
            if not moves and departures == departed:
                raise TimedOut(f"waited {timeout_s:.0f} s for {self.what}")
            seconds = timeout_s

    def _progress(self) -> tuple[int, bool]:
        return (0, False) if self._way is None else progress_of(self._way, self._whom)

    def _promised(self) -> Any:
        """Returns the answer with vectors that are still arriving, whose parts are read one by one."""
        answer = next(part for part in self._parts if part is not None)
        scalars = {name: getattr(answer, name) for name in scalar_fields(type(answer))}
        vectors = {name: promise.vector for name, promise in self._promises.items()}
        self._taken = True
        self._let_go()
        return type(answer)(**scalars, **vectors)

    def _let_go(self) -> None:
        """Of an answer that was taken, once all of it is there: who lent its memory wants it back, and this is kept."""
        if all(arrival.there for arrival in self._arrivals):
            self._parts, self._promises = [], {}

    @property
    def ready(self) -> bool:
        """Returns True if `wait` would return, or raise, at once."""
        return self._ready.is_set

    @property
    def streams(self) -> bool:
        """Returns True if it was, or may be, answered before all of it is there."""
        return bool(self._arrivals)

    # ---- how long it took --------------------------------------------------------------------------------
    @property
    def seconds_waited(self) -> float:
        """Returns the seconds that readers have waited for what was still arriving after `wait`."""
        return max((arrival.seconds_waited for arrival in self._arrivals), default=0.0)

    def seconds_communicating(self, since: float = 0.0) -> float:
        """Returns the seconds after `since` in which bytes of this call moved, either way or both."""
        return _covered(self._spans(), max(since, self.begun))

    def seconds_before_and_after(self, since: float) -> tuple[float, float]:
        """Returns the seconds before `since` in which bytes of this call moved, and those after it."""
        spans = self._spans()
        after = _covered(spans, max(since, self.begun))
        return _covered(spans, self.begun) - after, after

    def _spans(self) -> list[tuple[float, float]]:
        """Returns from when to when bytes moved, in order; spans may overlap."""
        spans = [(envelope.queued_at, envelope.sent_at) for envelope in list(self.sent)]
        spans += self._moved
        spans.sort()
        return spans


def _covered(spans: Sequence[tuple[float, float]], since: float) -> float:
    """Returns how long the spans, in the order of their beginnings, are together, from `since` on."""
    total = 0.0
    for begin, end in spans:
        if end > since:
            total += end - (begin if begin > since else since)
            since = end
    return total
