"""Cuts samples into mini-batches so that none of a single sample is left.

A pass that several workers share ends more than once, so it may end with one sample where the pass of one process does
not: 98 samples in batches of 16 end with 2, and shares of 33 with 1. Batch normalisation cannot train on that.

    33 left, batches of 16     16, 15, 2
     5 left, batches of 2      2, 3
"""

from __future__ import annotations


def batch_of(left: int, batch: int) -> int:
    """Returns how many of the samples left the next mini-batch of at most `batch` has; one more where that is 2."""
    if left != batch + 1 or batch < 2:
        return min(left, batch)
    return batch - 1 if batch > 2 else left
