"""Shares what is not trained of a model (`paceline.engine.model.trainable`): everybody begins with that of worker 0.

worker 1                             worker 0
"digests of the rest"         ->     32 bytes for each part, taken when it joined
"rest 7", piece 0, 1, ...     ->     the bytes of part 7, for each part whose digest differs

A body of 14 GB is read once by each worker, and travels where it differs. Pieces are short, so join needs little memory
beyond the model.
"""

from __future__ import annotations

import functools
import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from paceline.core.coordination import party
from paceline.core.errors import PeerLost
from paceline.engine.model.tensor_bytes import DIGEST_BYTES, PIECE, digest_of, nbytes_of, read_bytes
from paceline.engine.model.trainable import Rest, RestPart
from paceline.engine.vectors.flat import Flat, spare
from paceline.live.control.session import Session
from paceline.live.node.published_state import PublishedState

DIGESTS = "digests of the rest"
QUIET_SECONDS, BETWEEN_SECONDS = 2.0, 10.0
"""Seconds before the first line about work on a large body, and between two lines."""
DIMENSIONS_MAX = 64
GROWS_MAX = 4
"""So many times as long as here may a long part be elsewhere."""
_WORD = 4  # bytes of a float32; bytes travel in a vector of them, padded to whole ones


class RestReader:
    """Takes what is not trained from a worker of the run; `held`: its digests, part by part."""

    def __init__(self, session: Session, rest: Rest) -> None:
        self._session, self._rest = session, rest
        progress = RestProgress(session, "compared", sum(nbytes_of(rest.found(part).tensor) for part in rest.parts))
        self.held = [digest_of(rest.found(part).tensor, progress.passed) for part in rest.parts]
        self.empty = not rest.parts
        session.node.longest_answer = 0 if self.empty else max(PIECE, DIGEST_BYTES * len(self.held)) // _WORD

    def take(self, rank: int) -> None:
        """Takes the parts of worker `rank` whose digests differ. Raises PeerLost."""
        if self.empty:
            return
        self._session.reach(party.worker(rank))
        node, length = self._session.node, DIGEST_BYTES * len(self.held)
        shown = node.of_length(rank, node.read_published_of(party.worker(rank), DIGESTS), length // _WORD)
        theirs = _as_bytes(shown.v, length).view(-1, DIGEST_BYTES)
        found = [bytes(row) for row in theirs.tolist()]
        others = {
            part.path for part, own, other in zip(self._rest.parts, self.held, found, strict=True) if own != other
        }
        if not others:
            return
        numbers = [i for i, part in enumerate(self._rest.parts) if part.path in others]
        sizes = [nbytes_of(self._rest.found(self._rest.parts[i]).tensor) for i in numbers]
        progress = RestProgress(self._session, f"taken from worker {rank}", sum(sizes))
        apart: dict[str, list[Tensor]] = {}
        for i in numbers:
            part = self._rest.parts[i]
            numbers_apart = self._take_part(rank, i, part, progress)
            if numbers_apart is not None:
                apart.setdefault(part.path, []).append(numbers_apart)
        try:
            for path, parts in apart.items():
                self._rest.put(path, parts)
        except (RuntimeError, ValueError) as error:
            raise self._useless(rank, str(error)) from None
        self.held = found
        self._rest.loaded()

    def _take_part(self, rank: int, i: int, part: RestPart, progress: RestProgress) -> Tensor | None:
        """Takes one part, piece by piece. Raises PeerLost."""
        own = self._rest.found(part).tensor
        first = self._piece(rank, i, 0)
        shape = _shape_of(first.facts)
        total = math.prod(shape) * own.element_size() if shape is not None else -1
        if shape is None or (list(own.shape) != shape and total > max(PIECE, GROWS_MAX * nbytes_of(own))):
            raise self._useless(rank, f"{part.path} of shape {first.facts[:100]}")

        def pieces() -> Iterator[tuple[int, Tensor]]:
            for start in range(0, total, PIECE):
                shown = first if not start else self._piece(rank, i, start // PIECE)
                size = min(PIECE, total - start)
                if len(shown.v) * _WORD != size + -size % _WORD:
                    raise ValueError(f"a piece of {len(shown.v) * _WORD} bytes for {size}")
                yield start, _as_bytes(shown.v, size)
                progress.passed(size)

        try:
            return self._rest.load(part, shape, pieces())
        except ValueError as error:
            raise self._useless(rank, str(error)) from None

    def _piece(self, rank: int, i: int, piece: int) -> PublishedState:
        return self._session.node.read_published_of(party.worker(rank), _name_of(i), piece)

    def _useless(self, rank: int, why: str) -> PeerLost:
        """Counts a false claim of worker `rank`, and returns the error."""
        self._session.node.shows_wrongly(rank, why)
        return PeerLost(f"worker {rank} shows nothing of use: {why}")


class SharedRest(RestReader):
    """Shows one worker's untrained state to the others, too.

    Its digests stay those that it began with: whoever comes late and began with the same takes nothing.
    """

    def __init__(self, session: Session, rest: Rest) -> None:
        super().__init__(session, rest)
        if rest.kept and session.node.me == party.worker(0):
            print(
                f"paceline: each worker keeps its own {', '.join(rest.kept[:3])}{', ...' if rest.kept[3:] else ''}: "
                "such a tensor has no numbers that could be sent; make it the same on all workers",
                file=sys.stderr,
            )
        session.node.published[DIGESTS] = lambda _slice: _as_numbers(_tensor_of(b"".join(self.held)))
        for i, part in enumerate(rest.parts):
            session.node.published[_name_of(i)] = functools.partial(self._show, part)

    def _show(self, part: RestPart, piece: int) -> PublishedState:
        """Returns a piece of a part as it is now; an empty one behind its end. It may be called on any thread."""
        now = self._rest.found(part).tensor
        start, stop = min(piece * PIECE, nbytes_of(now)), min((piece + 1) * PIECE, nbytes_of(now))
        return PublishedState(v=_as_numbers(read_bytes(now, start, stop)), facts=json.dumps(list(now.shape)))


class RestProgress:
    """Prints a line about work on `total` bytes once it takes longer than two seconds."""

    def __init__(self, session: Session, done: str, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._who, self._what, self._total, self._clock = session.node.me, done, total, clock
        self._done, self._next = 0, clock() + QUIET_SECONDS

    def passed(self, nbytes: int) -> None:
        """Notes that so many more bytes are done."""
        self._done += nbytes
        now = self._clock()
        if now >= self._next and self._done < self._total:
            self._next = now + BETWEEN_SECONDS
            print(
                f"paceline: {self._who}: {self._done / 1e9:.1f} of {self._total / 1e9:.1f} GB that are not trained are "
                f"{self._what}",
                file=sys.stderr,
            )


def _name_of(i: int) -> str:
    return f"rest {i}"


def _shape_of(facts: str) -> list[int] | None:
    """Returns the shape that another worker has sent; None for what is none."""
    try:
        shape = json.loads(facts)
    except (ValueError, RecursionError):
        return None
    fits = isinstance(shape, list) and len(shape) <= DIMENSIONS_MAX and all(type(n) is int and n >= 0 for n in shape)
    return shape if fits else None


def _tensor_of(data: bytes) -> Tensor:
    return torch.tensor(list(data), dtype=torch.uint8)


def _as_numbers(data: Tensor) -> Flat:
    """Returns bytes as a vector of float32, whose values mean nothing: it only carries the bytes."""
    room = spare(-(-len(data) // _WORD))
    room[-1:] = 0.0
    room.view(torch.uint8)[: len(data)].copy_(data)
    return Flat.wrap(room)


def _as_bytes(v: Any, count: int) -> Tensor:
    """Does the inverse of `_as_numbers`."""
    numbers: Tensor = v.value()
    return numbers.view(torch.uint8)[:count]
