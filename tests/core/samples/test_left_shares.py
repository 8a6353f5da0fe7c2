"""Shares that workers leave: each place is trained once, whoever leaves when."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from paceline.core.samples.left_shares import LeftShares, SharePiece


def places(piece: SharePiece | None) -> list[tuple[int, int]]:
    return [(piece.rank, place) for place in range(piece.start, piece.stop)] if piece else []


@pytest.mark.parametrize("seed", range(60))
def test_every_place_is_trained_once_whoever_leaves_and_whoever_is_back(seed: int) -> None:
    dice = random.Random(seed)
    workers, epochs, batch = dice.randint(1, 5), dice.randint(1, 3), dice.randint(1, 9)
    sizes = [dice.randint(1, 30) for _ in range(workers)]
    shares = LeftShares(sizes)
    here = {0, *dice.sample(range(workers), dice.randint(1, workers))}
    own, mine, taken = dict.fromkeys(here, 0), dict.fromkeys(here, True), dict.fromkeys(here, 0)
    for rank in here:
        shares.own(rank, 0)
    trained: Counter[tuple[int, int]] = Counter()
    nothing = set[int]()
    while nothing < here:
        rank = dice.choice(sorted(here))
        if len(here) > 1 and dice.random() < 0.1:
            shares.trained(rank, taken[rank])
            if mine[rank]:
                shares.own(rank, own[rank])
            here.discard(rank)
            shares.gone(rank)
            nothing.clear()
            continue
        if dice.random() < 0.05 and (away := sorted(set(range(workers)) - here)):
            back = dice.choice(away)
            here.add(back)
            mine[back], taken[back], own[back] = False, 0, 0
            shares.free(back)
        if mine[rank] and own[rank] < epochs * sizes[rank]:
            end = min(own[rank] + batch, (own[rank] // sizes[rank] + 1) * sizes[rank])
            trained.update((rank, place) for place in range(own[rank], end))
            own[rank] = end
            continue
        shares.trained(rank, taken[rank])
        found = places(shares.take(rank, batch, epochs, here))
        half = found if dice.random() < 0.9 or len(here) == 1 else found[: len(found) // 2]
        trained.update(half)
        taken[rank] += len(half)
        if len(half) < len(found):  # it leaves in the middle of a piece
            shares.trained(rank, taken[rank])
            if mine[rank]:
                shares.own(rank, own[rank])
            here.discard(rank)
            shares.gone(rank)
            nothing.clear()
        elif not found:
            nothing.add(rank)
    everything = [(rank, place) for rank in range(workers) for place in range(epochs * sizes[rank])]
    assert trained == Counter(everything)
    assert shares.untrained() == {}


def test_a_piece_is_of_one_epoch_and_of_epochs_that_the_other_has_trained_itself() -> None:
    shares = LeftShares([10, 10])
    shares.own(0, 0)
    shares.own(1, 6)
    shares.gone(1)
    assert shares.take(0, 8, 1, {0}) == SharePiece(epoch=0, rank=1, start=6, stop=10)
    assert shares.take(0, 8, 1, {0}) is None
    assert shares.take(0, 8, 2, {0}) == SharePiece(epoch=1, rank=1, start=10, stop=18)


def test_a_worker_that_is_back_takes_of_its_own_share_first_and_has_no_end_of_it() -> None:
    shares = LeftShares([4, 4])
    for rank in (0, 1):
        shares.own(rank, 3)
        shares.gone(rank)
    shares.free(1)
    assert [shares.take(1, 4, 0, {1}) for _ in range(3)] == [(0, 1, 3, 4), (1, 1, 4, 8), (2, 1, 8, 12)]


def test_what_a_lost_worker_trained_after_its_last_report_counts_as_far_as_it_is_known() -> None:
    shares = LeftShares([10, 10, 10])
    for rank in range(3):
        shares.own(rank, 0)
    shares.gone(2, 8)
    assert shares.take(1, 5, 1, {0, 1}) == SharePiece(0, 2, 8, 10)
    shares.own(1, 7)
    shares.gone(1, 5)  # of an earlier report
    assert [shares.take(0, 9, 1, {0}) for _ in range(3)] == [(0, 2, 8, 10), (0, 1, 7, 10), None]


def test_a_worker_that_has_finished_leaves_nothing() -> None:
    shares = LeftShares([10, 10])
    for rank in (0, 1):
        shares.own(rank, 0)
    shares.finish(1)
    shares.gone(1)
    assert shares.take(0, 5, 2, {0}) is None


def test_the_share_of_a_worker_that_was_never_there_is_for_the_others() -> None:
    shares = LeftShares([5, 5])
    shares.own(0, 0)
    assert shares.take(0, 9, 1, {0}) == SharePiece(0, 1, 0, 5)


def test_what_nobody_was_given_is_known() -> None:
    shares = LeftShares([10, 10])
    shares.own(0, 0)
    shares.own(1, 12)
    shares.done(0, 2)
    shares.gone(1)
    assert shares.untrained() == {1: 8}
    shares.take(0, 5, 2, {0})
    assert shares.untrained() == {1: 3}
    shares.gone(0)
    assert shares.untrained() == {0: 20, 1: 8}


@pytest.mark.parametrize(
    ("steps", "waits"), [((6, 6), True), ((6, 5), True), ((4, 6), False), ((6, 0), False)], ids=str
)
def test_a_worker_waits_for_others_that_need_it_for_no_further_exchange(steps: tuple[int, int], waits: bool) -> None:
    shares = LeftShares([10, 10])
    for rank in (0, 1):
        shares.own(rank, 0, steps[rank])
    shares.done(0, 2)
    assert shares.may_leave_more(0, steps[0], {0, 1}) is waits
    shares.done(1, 2)
    assert not shares.may_leave_more(0, steps[0], {0, 1}), "both are done"


def test_it_does_not_wait_for_one_that_makes_more_steps_of_pieces() -> None:
    shares = LeftShares([10, 10, 10])
    for rank in range(3):
        shares.own(rank, 0, 10)
    shares.gone(2)
    assert shares.take(1, 2, 1, {0, 1})
    shares.done(0, 2)
    assert not shares.may_leave_more(0, 10, {0, 1})
    assert shares.may_leave_more(0, 11, {0, 1})
