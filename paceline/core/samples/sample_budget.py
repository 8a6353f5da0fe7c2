"""Ends a run after so many samples: how many each worker may still train, so that all together train just those.

In lock-step every worker knows after each exchange how many samples are left, and all divide the last ones evenly; that
takes no message (`part`). Elsewhere nobody knows what others have under way. So one party keeps what is left and gives
out quotas (`Budget`): a worker trains no sample beyond its own, asks for the next before it has none, and leaves when
none are left. Quotas shrink as fewer samples are left, so a slow worker does not hold the last ones for long. What a
worker that left or failed has not trained is given to others.
"""

from __future__ import annotations

from paceline.core.samples.batch_cut import batch_of


def part(left: int, workers: int) -> int:
    """Returns how many of the samples left each of so many workers trains in an exchange at most; 0 at the end."""
    return max(0, -(-left // max(1, workers)))


class Budget:
    """Gives out quotas that sum to `samples`."""

    def __init__(self, samples: int) -> None:
        self.left = max(0, samples)
        self._given: dict[int, int] = {}  # by rank, in all

    def quota(self, rank: int, samples: int, batch: int, workers: int) -> int:
        """Returns a quota of at most `samples` for that worker, one of `workers`; 0 if none are left.

        It is a multiple of `batch`, except for the very last ones, which leave several workers no single sample.
        """
        # Half an even share: the rest is divided again later, by who is fast.
        fair = self.left // (2 * max(1, workers)) // batch * batch
        wanted = max(batch, min(samples, fair))
        given = batch_of(self.left, wanted) if workers > 1 else min(self.left, wanted)
        self.left -= given
        self._given[rank] = self._given.get(rank, 0) + given
        return given

    def settle(self, rank: int, trained: int) -> None:
        """Worker `rank` has trained so many samples in all, and will train no more of what it was given."""
        self.left = max(0, self.left + self._given.get(rank, 0) - trained)
        self._given[rank] = trained
