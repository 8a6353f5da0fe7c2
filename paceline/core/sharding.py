"""Who holds what of a model: its flat vector, cut into one shard a server and each shard into slices.

    edges    0 ....... 4 ....... 8 ....... 11 ...... 14       slice k is the elements edges[k] .. edges[k + 1]
    holders      0         0          1         1             the server of slice k

A slice is what a scheme calls a shard: it has a role of its own, so it is received, applied and answered while the next
one is still on its way. Slices are numbered along the vector.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass

from paceline.core.errors import ConfigError
from paceline.core.vector import cut

SLICES_MAX = 4096
"""More would cost more in messages than they save, and the layout has to fit the header of one."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A model cut into slices; `holders` is empty where there is no server, and the only slice is the model."""

    edges: tuple[int, ...]
    holders: tuple[int, ...]

    def __post_init__(self) -> None:
        pieces = len(self.edges) - 1
        if self.edges[:1] != (0,) or any(a >= b for a, b in itertools.pairwise(self.edges)):
            raise ValueError("slices are not empty and follow one another from 0 on")
        if len(self.holders) != pieces and (self.holders or pieces > 1):
            raise ValueError(f"{len(self.holders)} holders of {pieces} slices")

    @property
    def length(self) -> int:
        """Elements of the whole vector."""
        return self.edges[-1]

    @property
    def slices(self) -> tuple[slice, ...]:
        return tuple(slice(a, b) for a, b in itertools.pairwise(self.edges))

    def of(self, server: int) -> tuple[int, ...]:
        """The numbers of the slices that `server` holds."""
        return tuple(k for k, holder in enumerate(self.holders) if holder == server)

    def homes(self) -> tuple[tuple[int, int], ...]:
        """Of each slice, its server and which of that server's slices it is."""
        held: Counter[int] = Counter()
        homes = []
        for holder in self.holders:
            homes.append((holder, held[holder]))
            held[holder] += 1
        return tuple(homes)


NOWHERE = Layout((0,), ())
"""Of a party that has nothing to do with the model."""


def lay_out(length: int, servers: int, slice_length: int = 0) -> Layout:
    """`length` elements over so many servers, in slices of about `slice_length` elements at most; 0: whole shards.

    Raises ConfigError when a server would have nothing to hold.
    """
    if not servers:
        return Layout((0, length), ())
    if servers > length:
        raise ConfigError(f"{servers} servers cannot share {length} parameters: give --servers {length} or less")
    slice_length = max(slice_length, -(-length // SLICES_MAX)) if slice_length else length
    edges, holders = [0], []
    for server, shard in enumerate(cut(length, servers)):
        pieces = cut(shard.stop - shard.start, -(-(shard.stop - shard.start) // slice_length))
        edges += [shard.start + piece.stop for piece in pieces]
        holders += [server] * len(pieces)
    return Layout(tuple(edges), tuple(holders))
