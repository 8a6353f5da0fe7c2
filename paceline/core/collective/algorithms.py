"""Builds the schedules by name. For n members and N bytes, each member sends so much, in so many steps:

ring          2 (n-1)/n N     2 (n-1)          to the next member only; Patarasuk and Yuan 2009
pairwise      2 (n-1)/n N     2 (n-1)          every piece straight to the member that adds it up, and straight back
butterfly     2 (p-1)/p N     2 log2 p         recursive halving and doubling, p = the largest power of two <= n;
                                               n - p members hand all to a neighbour first: N more, two steps more
blocks        <= 2 N + ...    <= 4 log2 n      binary blocks: any n, without that penalty; Rabenseifner 2004
hierarchical  inside a host first, then blocks or a ring among one member a host, then inside the hosts again
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence

from paceline.core.collective.schedule import Schedule, Step, Transfer, in_parallel, on_members

Groups = tuple[tuple[int, ...], ...]


def ring(n: int) -> Schedule:
    """Every piece travels once around to be summed (n - 1 steps), and once more to be told (n - 1 steps)."""
    return Schedule("ring", n, n, tuple(ring_steps(n, 2 * (n - 1))))


def ring_steps(n: int, count: int) -> Iterator[Step]:
    """Yields the first `count` of its 2 (n - 1) steps."""
    for s in range(count):
        # In step s member i passes on the piece that it received in step s - 1, so pieces move backwards as s grows.
        # After the summing half member i has the sum of piece i + 1, from which the second half starts.
        reduce, shift = s < n - 1, s % max(1, n - 1)
        pieces = [(i, (i + (not reduce) - shift) % n) for i in range(n)]
        yield tuple(Transfer(i, (i + 1) % n, p, p + 1, reduce) for i, p in pieces)


def pairwise(n: int) -> Schedule:
    """Member i sums piece i of everybody and sends the sum back: nothing is passed on, so the first
    sums are there early.
    """
    return Schedule("pairwise", n, n, (*_to_owners(n), *_from_owners(n)))


def _to_owners(n: int) -> Iterator[Step]:
    """Sends piece i of every member to member i; in step k each member sends to the one k places further on."""
    for k in range(1, n):
        yield tuple(Transfer(i, (i + k) % n, (i + k) % n, (i + k) % n + 1, True) for i in range(n))


def _from_owners(n: int) -> Iterator[Step]:
    """Sends the sum of piece i from member i to everybody."""
    for k in range(1, n):
        yield tuple(Transfer(i, (i + k) % n, i, i + 1, False) for i in range(n))


def _halving(n: int) -> Iterator[Step]:
    """Sums among n = 2^k members: in each step partners exchange half of what they have.

    Member i ends with piece i of n.
    """
    half = n // 2
    while half:
        yield tuple(Transfer(i, i ^ half, *_block(i ^ half, half), True) for i in range(n))
        half //= 2


def _doubling(n: int) -> Iterator[Step]:
    """Undoes `_halving`: in each step partners exchange all they have, which doubles it."""
    half = 1
    while half < n:
        yield tuple(Transfer(i, i ^ half, *_block(i, half), False) for i in range(n))
        half *= 2


def _block(i: int, size: int) -> tuple[int, int]:
    """Returns the `size` pieces around piece i that stay together when halves are halved."""
    return i // size * size, i // size * size + size


def butterfly(n: int) -> Schedule:
    """The `extra` members beyond a power of two hand all they have to a neighbour first, and are
    told the result last.
    """
    p = 1 << (n.bit_length() - 1)
    extra = n - p
    core = [2 * i + 1 for i in range(extra)] + list(range(2 * extra, n))
    fold = tuple(Transfer(2 * i, 2 * i + 1, 0, p, True) for i in range(extra))
    unfold = tuple(Transfer(2 * i + 1, 2 * i, 0, p, False) for i in range(extra))
    steps = (*on_members(core, 1, _halving(p)), *on_members(core, 1, _doubling(p)))
    return Schedule("butterfly", n, p, ((fold, *steps, unfold) if extra else steps))


def blocks(n: int) -> Schedule:
    """Divides the members into one block of 2^k for every bit k of n; a smaller block passes its sums to the next
    larger one.

    Each block sums inside by halving; then sums go up from block to block, results come down, and each block doubles.
    """
    pieces = 1 << (n.bit_length() - 1)
    sizes = [1 << bit for bit in reversed(range(n.bit_length())) if n >> bit & 1]
    starts = [sum(sizes[:b]) for b in range(len(sizes))]
    members = [range(start, start + size) for start, size in zip(starts, sizes, strict=True)]
    # All blocks cut the vector alike: a smaller block's pieces are runs of the larger block's.
    inside = [(m, pieces // len(m)) for m in members]
    up = [_across(small, large, pieces, True) for large, small in itertools.pairwise(members)]
    down = [_across(small, large, pieces, False) for large, small in itertools.pairwise(members)]
    steps = (
        *in_parallel(*(on_members(m, scale, _halving(len(m))) for m, scale in inside)),
        *reversed(up),
        *down,
        *in_parallel(*(on_members(m, scale, _doubling(len(m))) for m, scale in inside)),
    )
    return Schedule("blocks", n, pieces, steps)


def _across(small: Sequence[int], large: Sequence[int], pieces: int, reduce: bool) -> Step:
    """Yields the transfers between two blocks that have each cut the vector evenly.

    The larger block has the finer pieces, so every member of it has one partner in the smaller.
    """
    share, fewer = pieces // len(large), len(large) // len(small)
    pairs = [(small[k // fewer], large[k], k * share, (k + 1) * share) for k in range(len(large))]
    return tuple(Transfer(s, g, a, b, True) if reduce else Transfer(g, s, a, b, False) for s, g, a, b in pairs)


def hierarchical(n: int, hosts: Groups) -> Schedule:
    """Sums inside each host, then among one member a host, then tells the others of the host.

    `hosts`: the members on each host, which together are all; the first of each speaks for it.
    """
    count = len(hosts)
    across = blocks(count) if count.bit_count() == 1 else ring(count)  # no block would be alone against larger ones
    pieces = math.lcm(across.pieces, *map(len, hosts))

    def inside(make: Callable[[int], Iterable[Step]]) -> Iterator[Step]:
        """Yields the steps within all hosts, which are made at the same time."""
        return in_parallel(*(on_members(host, pieces // len(host), make(len(host))) for host in hosts))

    steps = (
        *inside(_to_owners),
        *inside(_collect),
        *on_members([host[0] for host in hosts], pieces // across.pieces, across.steps),
        *inside(_tell_all),
    )
    return Schedule("hierarchical", n, pieces, steps)


def _collect(n: int) -> Iterator[Step]:
    """Yields every piece from its owner to member 0."""
    if n > 1:
        yield tuple(Transfer(i, 0, i, i + 1, False) for i in range(1, n))


def _tell_all(n: int) -> Iterator[Step]:
    """Yields all pieces from member 0 to everybody."""
    if n > 1:
        yield tuple(Transfer(0, i, 0, n, False) for i in range(1, n))


_PLAIN: dict[str, Callable[[int], Schedule]] = {
    "ring": ring,
    "butterfly": butterfly,
    "blocks": blocks,
    "pairwise": pairwise,
}
PEERS = (*_PLAIN, "hierarchical")
"""Names of the schedules."""


@functools.lru_cache(maxsize=256)
def schedule_for(name: str, n: int, hosts: Groups = ()) -> Schedule:
    """Returns the schedule of that name for n members. `hosts`: members by host, each on one of its own by default.

    Raises KeyError for an unknown name.
    """
    if name == "hierarchical":
        return hierarchical(n, hosts or tuple((i,) for i in range(n)))
    return _PLAIN[name](n)
