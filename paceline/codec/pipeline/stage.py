"""Stands between a party and the wire: vectors of its messages become bytes, and those of others vectors again.

What becomes of a vector depends on what it is:

    an increment   a gradient, or what local steps changed: what is left out stays in the sender's residual, which is
                   added to the next vector of the same row
    a state        weights: encoded as they are, or, by a codec that leaves much out, as the difference to what the
                   receiver holds; sender and receiver both keep that, and it comes closer with every exchange
    exact          everything else, and what is shorter than `exact_below`: as it is; so are small tensors in gradients

A row is what one sender sends one receiver of one kind: of one slice, in one field of one type of message, in one
series of means. What a server sends all alike, such as a mean, is one row for all, encoded once.

    a row of states      the next vector is sent
    new                  whole: number n of the sender's rows, base 0
    held by both         as the difference to the receiver's vector, with its number as base
    connection lost      whole again, as the receiver has forgotten what it held
    not sent             whole again, as the receiver has not got the last one
    not finite           whole, without a codec

A row outlives pauses and lost connections, as long as its sender lives.

A message may have been encoded and then not have arrived, when its connection broke. What was in it is lost, as it
would have been without a codec.
"""

from __future__ import annotations

import functools
import threading
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from paceline.codec.base import Codec, Floats
from paceline.codec.base import ResidualMemory as Residual
from paceline.codec.encoded import WHOLE, Encoded
from paceline.codec.small_tensors import Parts, joined, more_bytes, taken_apart
from paceline.core.effects import EVERY_BIT
from paceline.core.errors import ProtocolError
from paceline.core.message import EXACT, INCREMENT, STATE, Nature, scalar_fields, vector_fields
from paceline.core.vector import Ghost, Memory

ROWS_MAX = 1 << 16
"""The most rows of one sender of which a receiver remembers the last vector."""

Room = Callable[[Sequence[int], Sequence[Any]], list[Any]]
"""Given the lengths of a message's vectors, and those that are there already, returns all: room for the others."""


@dataclass(slots=True)
class _Row:
    """Holds what a sender remembers of one row: the residual; or the receiver's last vector, its number, and the row's
    own.

    residual: of increments; for states it is working memory. number: of the row, from 1; 0 for increments. held: the
    vector that the receiver has. count: vectors sent since it began. last: of a server, the last vector and its
    encoding.
    """

    residual: Residual | None = None
    number: int = 0
    held: Floats | None = None
    count: int = 0
    last: tuple[Any, Encoded] | None = None


@dataclass(frozen=True, slots=True)
class Natures:
    """Returns what the vectors of a message are, as the scheme declares it."""

    of: Callable[[type], Nature]

    def __call__(self, message: Any) -> Nature:
        return EXACT if getattr(message, "series", 0) == EVERY_BIT else self.of(type(message))


class Stage:
    """Encodes and decodes for one party.

    `outgoing` may be called on several threads, for one receiver on one at a time.
    """

    def __init__(
        self,
        memory: Memory,
        nature: Callable[[type], Nature],
        *,
        up: Codec | None,
        down: Codec | None,
        of_server: bool = False,
        exact_below: int = 0,
        small: Mapping[int, Parts] | None = None,
    ) -> None:
        """`up` encodes what workers send, `down` what servers send; `of_server`: this party is one.

        small: by the number of a slice, the parts of gradients that are to travel as they are.
        """
        self._memory, self._nature = memory, Natures(nature)
        self._up, self._down, self._of_server, self._exact_below = up, down, of_server, exact_below
        self._sends = down if of_server else up
        self.encodes = self._sends is not None
        """False if whatever this party sends travels as it is, so that `outgoing` need not be called."""
        self._small = small or {}
        self._rows: dict[tuple[Any, ...], _Row] = {}
        self._recalled: dict[
            tuple[int, str], Residual
        ] = {}  # from a checkpoint or an earlier incarnation, until a row takes it
        self._numbers = 0
        self._held: dict[Hashable, dict[int, tuple[int, Any]]] = defaultdict(dict)  # by sender and row: number, vector
        self._locks: dict[Hashable, threading.Lock] = defaultdict(threading.Lock)

    def order(self, to: Hashable) -> threading.Lock:
        """Returns a lock to hold from before `outgoing` until the message is handed over, so that rows arrive as they
        left.
        """
        return self._locks[to]

    def lost(self, other: Hashable) -> None:
        """Forgets what either side holds: the connection to `other` is gone. The caller holds `order(other)`."""
        self._held.pop(other, None)
        self.not_sent(other)

    def not_sent(self, other: Hashable) -> None:
        """Sends `other` whole vectors again: it does not hold what was encoded for it last, as that could not be sent.

        The caller holds `order(other)`.
        """
        for key, row in list(self._rows.items()):
            if key[0] == other:
                row.held = None

    # ---- for those who keep it ---------------------------------------------------------------------------
    def residuals(self) -> dict[tuple[int, str], Residual]:
        """Returns what has not been sent yet, by number of the slice and name of the row; copied only where it is on a
        GPU.
        """
        kept = [(key, row.residual) for key, row in list(self._rows.items()) if not row.number]
        return {_named(key): _on_host(residual) for key, residual in kept if residual is not None}

    def recall(self, residuals: Mapping[tuple[int, str], Residual]) -> None:
        """Begins with what `residuals` gave, here or in an earlier incarnation of the run."""
        self._recalled.update(residuals)

    # ---- out ---------------------------------------------------------------------------------------------
    def outgoing(self, to: Hashable, slice: int, message: Any) -> Any:
        """Returns `message` as it travels to `to`; `slice` is the number of the slice that it is for, or comes from."""
        cls = type(message)
        fields = vector_fields(cls)
        if self._sends is None or not fields:
            return message
        nature = self._nature(message)
        if nature == EXACT:
            return message
        # A server's means go to all alike, so one row serves all. Of weights each worker gets what it lacks.
        whom = None if self._of_server and nature != STATE else to
        row = (whom, slice, cls, getattr(message, "series", 0))
        small = self._small.get(slice, ()) if nature == INCREMENT and self._sends.feedback else ()
        return _with(message, {f: self._encoded((*row, f), getattr(message, f), nature, small) for f in fields})

    def _encoded(self, key: tuple[Any, ...], v: Any, nature: Nature, small: Parts) -> Any:
        """Encodes one vector of the row `key`, by its nature and by where it lies; short vectors are
        returned as they are.
        """
        codec = self._sends
        assert codec is not None
        if len(v) < max(1, self._exact_below) or hasattr(v, "tables"):  # rows of tables are few numbers already
            return v
        small = small if small and len(v) >= small[-1].stop else ()
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = _Row(self._recalled.pop(_named(key), None))
        if isinstance(v, Ghost):
            whole = not row.count and nature == STATE and codec.weights == "by difference"
            row.count += 1
            nbytes = v.nbytes if whole else codec.size(len(v), row.count - 1) + more_bytes(small)
            return Encoded(codec.name, len(v), range(nbytes), exact=len(small))
        if self._of_server and row.last is not None and row.last[0] is v:
            return row.last[1]
        if nature == STATE:
            encoded = self._state(row, codec, v, self._numbers_of(v))
        elif codec.feedback and (there := getattr(v, "on_gpu", None)) is not None and _gpu(codec.name):
            encoded = self._increment_there(row, codec, v, there, small)
        else:
            encoded = self._increment(row, codec, v, self._numbers_of(v), small)
        row.last = (v, encoded) if self._of_server else None
        return encoded

    def _increment(self, row: _Row, codec: Codec, v: Any, x: Floats, small: Parts) -> Any:
        """Encodes a gradient or the like, `x` on the host. A vector with numbers that are not finite goes as it is."""
        if codec.feedback and (row.residual is None or len(row.residual.left) != len(x)):
            row.residual = Residual.of(len(x))
        if row.residual is not None:
            row.residual = _on_host(row.residual)
        for part in small:  # r + g must be zero there: these numbers travel as they are, and must not be chosen
            assert row.residual is not None
            np.negative(x[part], out=row.residual.left[part])
        data = codec.encode(x, row.residual)
        if data is None:
            row.residual = None
            return v
        for part in small:
            assert row.residual is not None
            row.residual.left[part] = 0
        numbers = [x[part] for part in small]
        return Encoded(codec.name, len(v), joined(data, numbers, small) if small else data, exact=len(small))

    def _increment_there(self, row: _Row, codec: Codec, v: Any, x: Any, small: Parts) -> Any:
        """Does the same where the numbers lie: `x` is on a GPU, and so is the residual from now on."""
        gpu = _gpu(codec.name)
        left = row.residual.left if row.residual is not None and len(row.residual.left) == len(x) else None
        if left is None:
            left = x.new_zeros(len(x))
        elif isinstance(left, np.ndarray):  # it was restored from a checkpoint, on the host
            left = x.new_tensor(left)
        for part in small:
            left[part] = -x[part]
        data = gpu.encode(codec, x, left)
        if data is None:
            row.residual = None
            return v
        for part in small:
            left[part] = 0
        row.residual = Residual(left)
        return Encoded(
            codec.name, len(v), joined(data, gpu.taken(x, small), small) if small else data, exact=len(small)
        )

    def _state(self, row: _Row, codec: Codec, v: Any, x: Floats) -> Any:
        """Encodes weights: as they are, or as the difference to what the receiver holds, which `row.held` follows."""
        if codec.weights == "as they are":
            data = codec.encode(x)
            return v if data is None else Encoded(codec.name, len(v), data)
        if not row.number:
            self._numbers += 1
            row.number = self._numbers
        data = None
        if row.held is not None and len(row.held) == len(x):
            assert row.residual is not None
            # The codec encodes x + r: with r = -held that is the difference.
            np.negative(row.held, out=row.residual.left)
            data = codec.encode(x, row.residual)
        if data is None:
            row.held, row.count, row.residual = x.copy(), 1, Residual.of(len(x))
            return Encoded(WHOLE, len(v), self._memory.bytes_of(v), row.number)
        assert row.held is not None
        assert row.residual is not None
        codec.decode(data, row.residual.left)
        row.held += row.residual.left
        row.count += 1
        return Encoded(codec.name, len(v), data, row.number, row.count - 1)

    # ---- in ----------------------------------------------------------------------------------------------
    def incoming(self, src: Hashable, message: Any, room: Room, *, from_server: bool) -> Any:
        """Returns `message` as its role sees it. `room` gives vectors to decode into.

        Raises ProtocolError for bytes that no codec of this run makes.
        """
        fields = vector_fields(type(message))
        came = [getattr(message, f) for f in fields]
        if Encoded not in map(type, came):
            return message
        rooms = room([len(v) for v in came], [None if type(v) is Encoded else v for v in came])
        codec = self._down if from_server else self._up
        pairs = [(f, v, r) for f, v, r in zip(fields, came, rooms, strict=True) if type(v) is Encoded]
        return _with(message, {f: self._decoded(src, v, codec, r) for f, v, r in pairs})

    def _decoded(self, src: Hashable, encoded: Encoded, codec: Codec | None, v: Any) -> Any:
        """Decodes into `v`, the room for it, and returns it.

        Raises ProtocolError for bytes of another codec or length.
        """
        if codec is None or encoded.codec not in (codec.name, WHOLE):
            raise ProtocolError(f"a vector encoded as {encoded.codec!r}, which is not the codec of this run")
        if isinstance(v, Ghost):
            return v
        out = np.frombuffer(self._memory.bytes_of(v), np.float32)
        data = np.frombuffer(encoded.data, np.uint8)
        try:
            if encoded.codec == WHOLE:
                out[:] = data.view(np.float32)
            else:
                # Small tensors come behind the codec's bytes, which have zeros in their places.
                data, exact = taken_apart(data, encoded.exact, len(out)) if encoded.exact else (data, {})
                codec.decode(data, out)
                for (begin, end), numbers in exact.items():
                    out[begin:end] = numbers
        except ValueError as error:
            raise ProtocolError(f"a vector of {len(encoded)} numbers, encoded as {encoded.codec}: {error}") from None
        if encoded.row:
            self._remember(src, encoded, v, out)
        return v

    def _remember(self, src: Hashable, encoded: Encoded, v: Any, out: Floats) -> None:
        """Adds the vector that `encoded` is the difference to, and remembers the sum as the row's last one.

        Raises ProtocolError if this side holds another vector, or the sender has too many rows.
        """
        rows = self._held[src]
        number, before = rows.get(encoded.row, (0, None))
        if encoded.base:
            if encoded.base != number or len(before) != len(v):
                raise ProtocolError(f"the difference to vector {encoded.base} of a row of which {number} is held")
            out += self._numbers_of(before)
        elif encoded.row not in rows and len(rows) >= ROWS_MAX:
            raise ProtocolError(f"more than {ROWS_MAX} rows of vectors")
        rows[encoded.row] = (encoded.base + 1, v)

    def _numbers_of(self, v: Any) -> Floats:
        return np.frombuffer(self._memory.bytes_of(v), np.float32)


@functools.cache
def _gpu(codec: str) -> Any:
    """Returns `paceline.codec.kernels.gpu`, or None where there is no Triton or no kernel for that codec."""
    try:
        from paceline.codec.kernels import gpu
    except ImportError:
        return None
    return gpu if codec in gpu.CODECS else None


def _on_host(residual: Residual) -> Residual:
    if isinstance(residual.left, np.ndarray):
        return residual
    return Residual(residual.left.cpu().numpy(), residual.count, residual.more)


def _named(key: tuple[Any, ...]) -> tuple[int, str]:
    """Returns the number of the slice and the name of the row, by which a checkpoint keeps its residual."""
    _, number, cls, series, field = key
    return number, f"{cls.__name__}.{series}.{field}"


def _with(message: Any, vectors: dict[str, Any]) -> Any:
    """Returns the same message with other vectors. Not `dataclasses.replace`, which would ask twice for every field."""
    cls = type(message)
    fields = {name: getattr(message, name) for name in (*scalar_fields(cls), *vector_fields(cls))}
    return cls(**{**fields, **vectors})
