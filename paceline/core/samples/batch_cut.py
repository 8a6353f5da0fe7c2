"""Cuts samples into mini-batches so that none of a single sample is left.

A pass that several workers share ends more than once, so it may end with one sample where the pass of one process does
not: 98 samples in batches of 16 end with 2, and shares of 33 with 1. Batch normalisation cannot train on that. The same
holds for what several workers take from one queue or one budget, in batches whose sizes a scheme changes.

    33 left, batches of 16     16, 15, 2
     5 left, batches of 2      2, 3
"""

from __future__ import annotations


def leaves_one(left: int, batch: int) -> bool:
    """Returns True if a mini-batch of `batch` of the samples left would leave a single one."""
    return left == batch + 1 and batch > 1


def batch_of(left: int, batch: int) -> int:
    """Returns how many of the samples left the next mini-batch of at most `batch` has; one more where that is 2."""
    if not leaves_one(left, batch):
        return min(left, batch)
    return batch - 1 if batch > 2 else left
