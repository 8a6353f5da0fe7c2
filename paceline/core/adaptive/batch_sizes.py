"""Deals out a whole number of samples so that workers of unlike speeds finish at the same time."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence

from paceline.core.adaptive.step_times import Estimates


class Balance:
    """Keeps the present `sizes` by rank, which sum to `total` wherever the bounds `low` and `high` allow.

    low   0: two samples, or one where `total` has not two for each worker, as batch normalisation needs
    high  by rank, where a worker has a bound; it goes before `low`

    `v` estimates every worker's speed in samples/s; until it does, `seconds_per_step`, if known, tells them apart.
    Sizes stay as they are until others would save more than the fraction `hysteresis` of a step.
    """

    def __init__(
        self,
        v: Estimates,
        seconds_per_step: Sequence[float],
        total: int,
        low: int,
        high: Mapping[int, int],
        hysteresis: float,
    ) -> None:
        self.v, self.seconds_per_step = v, seconds_per_step
        self.total, self.low, self.high, self.hysteresis = total, low, high, hysteresis
        self.sizes: dict[int, int] = {}

    def settle(self, ranks: Iterable[int]) -> Iterator[tuple[int, int, str]]:
        """Decides new sizes for `ranks` if they save enough. Yields rank, size and reason of each that changes."""
        v, before = self._speeds(sorted(ranks)), self.sizes
        low = self.least(len(v))
        new = apportion(self.total, v, low, self.high)
        if self._will_do(before, new, v, low):
            return
        self.sizes = new
        for rank, size in new.items():
            if size != before.get(rank):
                yield rank, size, f"it makes {v[rank]:.1f} of {sum(v.values()):.1f} samples/s"

    def least(self, workers: int) -> int:
        """Returns the smallest batch of one of so many workers, where its own bound is not smaller."""
        if self.low:
            return self.low
        return 2 if self.total >= 2 * workers else 1

    def _speeds(self, ranks: Sequence[int]) -> dict[int, float]:
        """Returns samples/s by rank. A worker of unknown speed counts as the mean of the others."""
        known = {rank: self.v[rank] for rank in ranks if rank not in self.v.unknown}
        if not known and self.seconds_per_step:
            return {rank: 1.0 / self.seconds_per_step[rank] for rank in ranks}
        mean = sum(known.values()) / len(known) if known else 1.0
        return {rank: known.get(rank, mean) for rank in ranks}

    def _will_do(self, old: Mapping[int, int], new: Mapping[int, int], v: Mapping[int, float], low: int) -> bool:
        """Returns True if the sizes `old` are still allowed, and a step with them is hardly longer than with `new`."""
        if old.keys() != new.keys() or sum(old.values()) != sum(new.values()):
            return False
        if any(size != _within(size, low, self.high.get(rank, max(low, size))) for rank, size in old.items()):
            return False
        seconds_old, seconds_new = (max(sizes[rank] / v[rank] for rank in v) for sizes in (old, new))
        return seconds_new >= seconds_old * (1 - self.hysteresis)


def _within(size: int, low: int, high: int) -> int:
    """Returns what comes nearest to `size` within the bounds, of which `high` wins."""
    return min(high, max(low, size))


def apportion(total: int, speed: Mapping[int, float], low: int, high: Mapping[int, int]) -> dict[int, int]:
    """Returns whole numbers by rank, such that the largest of size / speed is smallest; each is `low` at least, and at
    most the worker's `high`, if it has one.

    They sum to `total`, or to what comes nearest to it within the bounds.
    """
    most = {rank: high.get(rank, max(low, total)) for rank in speed}
    total = max(sum(min(low, bound) for bound in most.values()), min(total, sum(most.values())))

    def within(seconds: float) -> dict[int, int]:
        """Returns the samples that each worker would train in so many seconds, within its bounds."""
        return {rank: _within(int(seconds * v), low, most[rank]) for rank, v in speed.items()}

    # Bisection finds the longest time in which all together do not exceed the total. 48 halvings leave an error far
    # below one sample.
    fits, too_long = 0.0, (total + 1) / min(speed.values())
    for _ in range(48):
        middle = (fits + too_long) / 2
        fits, too_long = (middle, too_long) if sum(within(middle).values()) <= total else (fits, middle)
    sizes = within(fits)
    # Rounding down left some samples over: each goes to the worker that would be done with one more the soonest.
    next_one = [((sizes[rank] + 1) / v, rank) for rank, v in speed.items() if sizes[rank] < most[rank]]
    heapq.heapify(next_one)
    for _ in range(total - sum(sizes.values())):
        _, rank = heapq.heappop(next_one)
        sizes[rank] += 1
        if sizes[rank] < most[rank]:
            heapq.heappush(next_one, ((sizes[rank] + 1) / speed[rank], rank))
    return sizes
