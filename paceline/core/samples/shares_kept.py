"""What a checkpoint has of the shares of a data set: where each worker goes on, and what before that is untrained.

A worker that trains its share itself goes on where it was. A share that is free (its worker had left or was lost) is
taken up beside the others, at the epoch and the place in it that the most advanced of them is at, so that all make as
many steps. What nobody has trained before that place is given to whoever asks (`left_shares.py`).

    shares of 10; worker 1 was lost after 4 samples; the others have trained 16, and 3 samples of worker 1's first epoch

    rank   place   untrained
    0, 2   16
    1      16      (7, 16)
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from paceline.core.samples.sample_leases import SampleRanges

PIECES_MAX = 100_000
"""A checkpoint of a run has a few pieces for each worker that had left. One from somebody else may say anything."""


class SharePiece(NamedTuple):
    """Places of the share of worker `rank`, all of one epoch."""

    epoch: int
    rank: int
    start: int
    stop: int


class KeptShare(NamedTuple):
    """Says where the worker of a share goes on, and which places before that nobody has trained."""

    place: int
    untrained: tuple[tuple[int, int], ...] = ()


def shares_kept(sizes: Mapping[int, int], own: Mapping[int, int], trained: SampleRanges) -> list[KeptShare]:
    """Returns what to keep of each share, in the order of ranks.

    sizes    of all shares, in samples, by rank
    own      by rank, the place that a worker is at which trains its share itself; all other shares are free
    trained  places that were trained, as (rank, start, stop)
    """
    tops = {rank: trained.end(rank) for rank in sizes}
    of = own or tops
    epoch, offset = max((divmod(at, sizes[rank]) for rank, at in of.items() if sizes[rank]), default=(0, 0))
    kept = list[KeptShare]()
    for rank, size in sorted(sizes.items()):
        place = own[rank] if rank in own else max(tops[rank], epoch * size + min(offset, size))
        untrained = trained.without((rank, 0, place))
        kept.append(KeptShare(place, tuple((start, stop) for _, start, stop in untrained)))
    return kept


def pieces_left(sizes: Sequence[int], kept: Sequence[KeptShare]) -> list[SharePiece]:
    """Returns what nobody has trained of the shares, as pieces of an epoch each, in order; PIECES_MAX at most."""
    return sorted(itertools.islice(_pieces(sizes, kept), PIECES_MAX))


def _pieces(sizes: Sequence[int], kept: Sequence[KeptShare]) -> Iterator[SharePiece]:
    for rank, (size, share) in enumerate(zip(sizes, kept, strict=False)):
        for start, stop in share.untrained:
            while size and start < stop:
                end = min(stop, (start // size + 1) * size)
                yield SharePiece(start // size, rank, start, end)
                start = end


def trained_before(kept: Sequence[KeptShare]) -> SampleRanges:
    """Returns the places that were trained before a run goes on, as (rank, start, stop)."""
    trained = SampleRanges((rank, 0, share.place) for rank, share in enumerate(kept) if share.place)
    for rank, share in enumerate(kept):
        for start, stop in share.untrained:
            trained.discard((rank, start, stop))
    return trained
