"""A round: who is in it, when it is complete, and what its mean is."""

from __future__ import annotations

import numpy as np

from paceline.core.paramserver.round import Round


def vector(*numbers: float) -> np.ndarray:
    return np.array(numbers)


def test_it_is_complete_when_all_members_came_whoever_else_came_too() -> None:
    of = Round([0, 1])
    assert not of.complete
    of.add(0, vector(1.0), 1)
    of.add(2, vector(1.0), 1)  # one that has left since
    assert not of.complete
    of.add(1, vector(1.0), 1)
    assert of.complete


def test_a_round_of_nobody_is_never_complete() -> None:
    assert not Round([]).complete


def test_the_mean_is_weighted_by_samples() -> None:
    of = Round([0, 1, 2])
    for rank, (g, samples) in enumerate([(1.0, 1), (2.0, 2), (4.0, 5)]):
        of.add(rank, vector(g), samples)
    assert of.mean() == vector((1 * 1 + 2 * 2 + 4 * 5) / 8)
    assert of.counted_samples() == 8


def test_the_only_contribution_is_kept_as_it_is() -> None:
    of, g = Round([0]), vector(0.1, 0.2)
    of.add(0, g, 3)
    assert of.mean() is g


def test_the_sum_of_two_does_not_depend_on_who_came_first() -> None:
    sums = []
    for order in ((0, 1), (1, 0)):
        of = Round([0, 1])
        for rank in order:
            of.add(rank, vector(0.1, 0.7) if rank else vector(1e-9, 1e9), 3 + rank)
        sums.append(of.mean().tobytes())
    assert sums[0] == sums[1]


def test_unused_is_what_no_contribution_has_used() -> None:
    of = Round([0, 1])
    for rank, unused in enumerate([((0, 4), (6, 8)), ((2, 7),)]):
        of.saw_unused(unused)
        of.add(rank, vector(1.0), 1)
    assert of.unused == ((2, 4), (6, 7))


def test_one_that_used_everything_leaves_nothing_unused() -> None:
    of = Round([0, 1])
    for rank, unused in enumerate([((0, 4),), ()]):
        of.saw_unused(unused)
        of.add(rank, vector(1.0), 1)
    assert of.unused == ()


def test_the_next_round_begins_with_the_same_members_and_nothing_else() -> None:
    of = Round([0])
    of.add(0, vector(1.0), 4)
    of.reject(1, 8, ((0, 0, 8),))
    assert (of.samples_waiting, of.pending(1)) == (12, ((0, 0, 8),))
    of.reset()
    assert (of.members, of.came, of.rejected, of.count, of.samples_waiting, of.sum) == ({0}, set(), {}, 0, 0, None)
