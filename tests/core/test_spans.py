"""Spans of the model: in order, none touching the next."""

from __future__ import annotations

from random import Random

import pytest

from paceline.core.spans import Spans, common, merged, updated, within


def numbers(spans: Spans) -> set[int]:
    return {i for start, stop in spans for i in range(start, stop)}


def drawn(random: Random) -> Spans:
    edges = sorted(random.sample(range(30), 2 * random.randrange(5)))
    return tuple(zip(edges[::2], edges[1::2], strict=True))


@pytest.mark.parametrize("seed", range(30))
def test_they_are_sets_of_numbers(seed: int) -> None:
    random = Random(seed)
    a, b = drawn(random), drawn(random)
    assert numbers(common(a, b)) == numbers(a) & numbers(b)
    start, stop, at = 4, 21, 7
    assert numbers(within(a, start, stop, at)) == {i - start + at for i in numbers(a) if start <= i < stop}
    pieces = [(i, i + 1) for i in sorted(numbers(a))]
    assert numbers(merged(pieces)) == numbers(a)
    assert all(one[1] < other[0] for one, other in zip(merged(pieces), merged(pieces)[1:], strict=False))


def test_an_update_that_is_told_of_nothing_unused_need_not_know_of_it() -> None:
    assert updated(lambda w, g, samples: w - g, 3, 1, 8, ()) == 2
    assert updated(lambda w, g, samples, unused: unused, 3, 1, 8, ((0, 1),)) == ((0, 1),)
