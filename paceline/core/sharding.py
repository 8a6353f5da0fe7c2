"""Says who holds what of a model: its flat vector is cut into one shard a server, and each shard into slices.

    edges    0 ....... 4 ....... 8 ....... 11 ...... 14       slice k is the elements edges[k] .. edges[k + 1]
    holders      0         0          1         1             the server of slice k

A slice is what a scheme calls a shard: it has a role of its own, so it is received, applied and answered while the next
one is still on its way. Slices are numbered along the vector.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.core.errors import ConfigError
from paceline.core.vector import cut

ROUNDED = 0.02
"""How far fractions may be from 1 together, so that 0.33,0.33,0.33 will do."""
SLICES_MAX = 4096
"""More slices would cost more in messages than they save. The layout also has to fit the header of one message."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The model is cut into slices. `holders` is empty where there is no server, and the only slice is then the model.

    Raises ValueError for edges that do not rise from 0, and for another number of holders than of slices.
    """

    edges: tuple[int, ...]
    holders: tuple[int, ...]

    def __post_init__(self) -> None:
        pieces = len(self.edges) - 1
        if self.edges[:1] != (0,) or any(a >= b for a, b in itertools.pairwise(self.edges)):
            raise ValueError("the edges of slices must begin with 0 and be increasing")
        if len(self.holders) != pieces and (self.holders or pieces > 1):
            raise ValueError(f"{len(self.holders)} holders for {pieces} slices: each slice needs one")

    @property
    def length(self) -> int:
        """Returns the elements of the whole vector."""
        return self.edges[-1]

    @property
    def slices(self) -> tuple[slice, ...]:
        return tuple(slice(a, b) for a, b in itertools.pairwise(self.edges))

    def of(self, server: int) -> tuple[int, ...]:
        """Returns the numbers of the slices that `server` holds."""
        return tuple(k for k, holder in enumerate(self.holders) if holder == server)

    def homes(self) -> tuple[tuple[int, int], ...]:
        """Returns for each slice its server, and its place among that server's slices."""
        held: Counter[int] = Counter()
        homes = []
        for holder in self.holders:
            homes.append((holder, held[holder]))
            held[holder] += 1
        return tuple(homes)


NOWHERE = Layout((0,), ())
"""The layout of a party that has nothing to do with the model."""


def lay_out(
    length: int,
    servers: int | Sequence[int],
    slice_length: int = 0,
    *,
    speeds: Sequence[float] = (),
    tensors: Sequence[int] = (),
) -> Layout:
    """Divides `length` elements over so many servers, or over the servers of the given numbers.

    slice_length: about the most elements of a slice; 0 for whole shards. speeds: of each server. Its shard is in
    proportion to its speed, and the beginning of the model, which the next forward pass needs first, is on the fastest.
    Without speeds all shards have the same size, in the order of their servers. tensors: lengths of the model's
    tensors, where none may be cut. A slice then holds one or more of them, of at most `slice_length` elements together
    unless it is a single one. Raises ConfigError when a server would have nothing to hold.
    """
    numbers = tuple(range(servers)) if isinstance(servers, int) else tuple(servers)
    if not numbers:
        return Layout((0, length), ())
    # Where a shard may end: after a whole tensor, or after any number.
    ends = tuple(itertools.accumulate(tensors)) if tensors else range(1, length + 1)
    if len(numbers) > len(ends):
        what = "tensors that must stay whole" if tensors else "parameters"
        raise ConfigError(f"{len(numbers)} servers cannot share {len(ends)} {what}: give --servers {len(ends)} or less")
    weights = dict(zip(numbers, speeds or (1,) * len(numbers), strict=True))
    order = sorted(numbers, key=lambda server: (-weights[server], numbers.index(server)))
    # Slices are made longer rather than more than SLICES_MAX.
    slice_length = max(slice_length, -(-length // SLICES_MAX)) if slice_length else length
    edges, holders = [0], []
    for server, shard in zip(order, _shards(ends, [weights[server] for server in order]), strict=True):
        cuts = _packed(shard, ends, slice_length) if tensors else _even(shard, slice_length)
        edges += cuts
        holders += [server] * len(cuts)
    return Layout(tuple(edges), tuple(holders))


def tensors_by_slice(layout: Layout, tensors: Sequence[int]) -> list[list[int]]:
    """Returns the lengths of the tensors in each slice of a layout that cuts none of them; empty lists where none are
    given.
    """
    found: list[list[int]] = [[] for _ in layout.holders]
    at, number = 0, 0
    for length in tensors:
        number += at == layout.edges[number + 1]
        found[number].append(length)
        at += length
    return found


def _shards(ends: Sequence[int], weights: Sequence[float]) -> list[slice]:
    """Returns one shard a server, in proportion to the weights as far as the ends of the tensors allow, none of them
    empty.
    """
    length, total, first = ends[-1], sum(weights), 0
    edges = [0]
    for i, weight in enumerate(itertools.accumulate(weights[:-1])):
        wanted = int(length * weight // total)
        last = len(ends) - len(weights) + i  # each server that follows needs at least one tensor
        at = bisect.bisect_left(ends, wanted, first, last)
        if at > first and wanted - ends[at - 1] < ends[at] - wanted:
            at -= 1
        edges.append(ends[at])
        first = at + 1
    return [slice(a, b) for a, b in itertools.pairwise([*edges, length])]


def _even(shard: slice, slice_length: int) -> list[int]:
    """Returns where its slices end, all of about the same size."""
    size = shard.stop - shard.start
    return [shard.start + piece.stop for piece in cut(size, -(-size // slice_length))]


def _packed(shard: slice, ends: Sequence[int], slice_length: int) -> list[int]:
    """Returns where its slices end, each of as many whole tensors as go into it."""
    cuts, begin = [], shard.start
    for end, following in itertools.pairwise([*(e for e in ends if shard.start < e <= shard.stop), math.inf]):
        if following - begin > slice_length or end == shard.stop:
            cuts.append(int(end))
            begin = int(end)
    return cuts


def alike(speeds: Sequence[float], tolerance: float = 0.25) -> bool:
    """Returns True if the fastest is at most `tolerance` faster than the slowest, or if one speed is not known (0)."""
    return min(speeds, default=0.0) <= 0 or max(speeds) <= (1 + tolerance) * min(speeds)


def parse_shards(text: str) -> tuple[float, ...]:
    """Returns the fractions in `text`; () for "measured" and "equal". Raises ValueError for anything else."""
    if text in ("measured", "equal"):
        return ()
    try:
        fractions = tuple(map(float, text.split(",")))
    except ValueError:
        raise ValueError("must be measured, equal, or a fraction for each server: 0.5,0.3,0.2") from None
    if not all(0 < fraction < math.inf for fraction in fractions):
        raise ValueError("fractions must be finite and above 0, as every server holds a part of the model")
    total = sum(fractions)
    if max(fractions) < 1 and abs(total - 1) > ROUNDED:
        raise ValueError(f"fractions add up to {total:g}: give ones that add up to 1, or a ratio in whole numbers: 3,1")
    return fractions
