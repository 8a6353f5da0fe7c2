"""Says which server holds what of a key: small keys whole, by a hash that is the same everywhere; large ones in parts.

Workers and servers compute this without asking one another. So the hash is CRC-32 of the key's text: Python's own
hash differs from process to process.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

Key = int | str


@dataclass(frozen=True, slots=True)
class ValuePart:
    """Describes the elements `at` of the flat value, which lie on `server`."""

    server: int
    at: slice

    @property
    def length(self) -> int:
        """Returns the number of elements in the part."""
        return int(self.at.stop - self.at.start)


def text_of(key: Key) -> str:
    """Returns the key as it is sent: 3 and "3" are two keys."""
    return repr(key)


def parts_of(key: Key, shape: Sequence[int], servers: int, bound: int) -> tuple[ValuePart, ...]:
    """Returns the parts of a key's value by server.

    Of S servers, number i has the rows up to round(n / S (i + 1)) of n; elements count as rows where there are fewer
    rows than servers. A value of fewer than `bound` elements lies whole on one server. The result does not depend on
    the order in which keys become known, and every element is in one part. Rounding is that of MXNet's KVStoreDist.
    """
    length = math.prod(shape)
    if servers == 1 or length < max(bound, servers):
        return (ValuePart(zlib.crc32(text_of(key).encode()) % servers, slice(0, length)),)
    rows = shape[0] if shape and shape[0] >= servers else length
    width = length // rows
    edges = [width * round(rows * i / servers) for i in range(servers + 1)]
    return tuple(ValuePart(server, slice(edges[server], edges[server + 1])) for server in range(servers))


def row_width(shape: Sequence[int], parts: Sequence[ValuePart]) -> int:
    """Returns the elements of a row, where the value is a table whose rows are whole in every part; otherwise 0."""
    if len(shape) != 2 or not all(shape):
        return 0
    return shape[1] if all(part.length % shape[1] == 0 for part in parts) else 0
