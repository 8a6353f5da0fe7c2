"""Which server holds what of a key: small ones whole, by a hash that is the same everywhere; large ones in parts."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

Key = int | str


@dataclass(frozen=True, slots=True)
class ValuePart:
    """A part has the elements `at` of the flat value, on `server`."""

    server: int
    at: slice

    @property
    def length(self) -> int:
        return int(self.at.stop - self.at.start)


def text_of(key: Key) -> str:
    """The key on the wire: 3 and "3" are two."""
    return repr(key)


def parts_of(key: Key, shape: Sequence[int], servers: int, bound: int) -> tuple[ValuePart, ...]:
    """Part i of S ends at round(n / S (i + 1)) of n rows, or elements where there are fewer rows than servers.

    The same whatever order keys are known in. Every element is in one part.
    """
    length = math.prod(shape)
    if servers == 1 or length < max(bound, servers):
        return (ValuePart(zlib.crc32(text_of(key).encode()) % servers, slice(0, length)),)
    rows = shape[0] if shape and shape[0] >= servers else length
    width = length // rows
    edges = [width * round(rows * i / servers) for i in range(servers + 1)]
    return tuple(ValuePart(server, slice(edges[server], edges[server + 1])) for server in range(servers))


def row_width(shape: Sequence[int], parts: Sequence[ValuePart]) -> int:
    """Elements of a row where the value is a table whose rows are whole in every part, else 0."""
    if len(shape) != 2 or not all(shape):
        return 0
    return shape[1] if all(part.length % shape[1] == 0 for part in parts) else 0
