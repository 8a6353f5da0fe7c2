"""Measures seconds again and again, since a machine may be busy with something else at that moment.

Noise only makes a measurement longer. The shortest one is therefore the nearest to the truth, and the more the next
ones differ from it, the further away the truth may still be:

    best    the shortest of all rounds
    least   best * best / third     how short it may be, for all that was seen; best itself where three rounds agree
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

CONFIRMED = 1.1
"""Two rounds agree if one takes no more than this many times as long as the other."""
ROUNDS_MAX = 8
SECONDS_MAX = 1.0


def repeated(once: Callable[[], float], clock: Callable[[], float] = time.monotonic) -> list[float]:
    """Returns the seconds of each round: `once` is called until the shortest is confirmed by another round.

    It is not called again when a second has passed: the relative noise of what takes that long is small.
    """
    began, rounds = clock(), [once()]
    while not _confirmed(rounds) and len(rounds) < ROUNDS_MAX and clock() - began < SECONDS_MAX:
        rounds.append(once())
    return rounds


def _confirmed(rounds: Sequence[float]) -> bool:
    """Returns True if two measurements come near the best one: then it was no accident."""
    best = min(rounds)
    return sum(seconds <= CONFIRMED * best for seconds in rounds) > 1


def best_and_least(rounds: Sequence[float]) -> tuple[float, float]:
    """Returns the shortest of these seconds, and how short it may be in truth."""
    best, *others = sorted(rounds)
    return best, best * best / [best, *others[:2]][-1]


def most_alike(ranges: Sequence[tuple[float, float]]) -> list[float]:
    """Returns one value from each range (low to high, above 0), so that they differ as little as the ranges allow."""
    lowest, highest = max(low for low, _ in ranges), min(high for _, high in ranges)
    middle = lowest if lowest <= highest else (lowest * highest) ** 0.5
    return [min(max(middle, low), high) for low, high in ranges]
