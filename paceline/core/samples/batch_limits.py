"""Bounds the mini-batches of workers of unlike memory: each has a largest batch of its own, in samples; 0 for any.

Limits are by rank, and empty where nobody has one. Schemes with batches of one size then have unlike ones, and shares
follow these, so that all workers go through theirs in as many steps.
"""

from __future__ import annotations

from collections.abc import Sequence


def bounded(batch: int, limit: int) -> int:
    """Returns `batch`, or the limit where that is smaller."""
    return min(batch, limit) if limit else batch


def own_batches(batch: int, limits: Sequence[int]) -> tuple[int, ...]:
    """Returns the batch of each worker, by rank, where the loops ask for `batch`; () where all are alike."""
    own = tuple(bounded(batch, limit) for limit in limits)
    return own if len(set(own)) > 1 else ()


def sum_of_batches(batch: int, limits: Sequence[int], workers: int) -> int:
    """Returns the samples of a mini-batch of each of so many workers."""
    return sum(bounded(batch, limit) for limit in limits) if limits else batch * workers


def smaller(one: int, other: int) -> int:
    """Returns the smaller of two limits."""
    return bounded(one, other) if one else other
