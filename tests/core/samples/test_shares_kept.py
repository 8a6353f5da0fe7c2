"""A checkpoint of shares: a run that goes on from it trains each place once, whoever had left."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from paceline.core.samples.left_shares import LeftShares
from paceline.core.samples.sample_leases import SampleRanges
from paceline.core.samples.shares_kept import (
    PIECES_MAX,
    KeptShare,
    SharePiece,
    pieces_left,
    shares_kept,
    trained_before,
)


class Run:
    """Workers in lock-step: in each round all that are there train a batch. What a checkpoint has is kept by hand."""

    def __init__(self, sizes: list[int], batch: int, epochs: int, kept: list[KeptShare] | None = None) -> None:
        kept = kept or [KeptShare(0)] * len(sizes)
        self.sizes, self.batch, self.epochs = sizes, batch, epochs
        self.shares = LeftShares(sizes, kept)
        self.here = set(range(len(sizes)))
        self.begun = {rank: share.place for rank, share in enumerate(kept)}
        self.own = dict(self.begun)
        self.mine = dict.fromkeys(self.here, True)
        self.of_others: dict[int, list[SharePiece]] = {rank: [] for rank in self.here}
        self.trained: Counter[tuple[int, int]] = Counter()
        for rank in self.here:
            self.shares.own(rank, self.own[rank])

    def round(self) -> bool:
        steps = [self._step(rank) for rank in sorted(self.here)]
        return any(steps)

    def _step(self, rank: int) -> bool:
        size, at = self.sizes[rank], self.own[rank]
        epoch = at // size
        if not self.mine[rank] or at % size == 0:
            taken = sum(piece.stop - piece.start for piece in self.of_others[rank])
            self.shares.trained(rank, taken)
            bound = epoch if self.mine[rank] else self.epochs
            if piece := self.shares.take(rank, self.batch, bound, self.here):
                self.of_others[rank].append(piece)
                self.trained.update((piece.rank, place) for place in range(piece.start, piece.stop))
                return True
        if not self.mine[rank] or at >= self.epochs * size:
            return False
        self.own[rank] = min(at + self.batch, (epoch + 1) * size)
        self.trained.update((rank, place) for place in range(at, self.own[rank]))
        self.shares.own(rank, self.own[rank])
        return True

    def lose(self, rank: int) -> None:
        self.shares.trained(rank, sum(piece.stop - piece.start for piece in self.of_others[rank]))
        self.here.discard(rank)
        self.shares.gone(rank)
        self.of_others[rank] = []

    def bring_back(self, rank: int) -> None:
        self.here.add(rank)
        self.mine[rank] = False
        self.shares.free(rank)

    def checkpoint(self) -> list[KeptShare]:
        free, trained = self.shares.by_gone()
        own = {rank: self.own[rank] for rank in self.here if rank not in free}
        places = SampleRanges(trained)
        for rank, at in own.items():
            if at > self.begun[rank]:
                places.add((rank, self.begun[rank], at))
        for rank in self.here:
            for piece in self.of_others[rank]:
                places.add((piece.rank, piece.start, piece.stop))
        return shares_kept(dict(enumerate(self.sizes)), own, places)


@pytest.mark.parametrize("seed", range(80))
def test_each_place_is_trained_once_however_often_the_run_goes_on(seed: int) -> None:
    dice = random.Random(seed)
    workers, epochs, batch = dice.randint(2, 5), dice.randint(1, 4), dice.randint(1, 6)
    sizes = [dice.randint(8, 30)] * workers if seed % 4 else [dice.randint(4, 30) for _ in range(workers)]
    run, trained = Run(sizes, batch, epochs), Counter[tuple[int, int]]()
    for _ in range(dice.randint(1, 3)):
        for _ in range(dice.randint(0, 12)):
            run.round()
            if dice.random() < 0.2 and len(run.here) > 1:
                run.lose(dice.choice(sorted(run.here)))
            elif dice.random() < 0.2 and (away := sorted(set(range(workers)) - run.here)):
                run.bring_back(dice.choice(away))
        kept = run.checkpoint()
        trained += run.trained
        assert (
            sum(share.place for share in kept) - sum(stop - start for share in kept for start, stop in share.untrained)
            == trained.total()
        ), "samples counted are samples trained"
        run = Run(sizes, batch, epochs, kept)
    while run.round():
        pass
    trained += run.trained
    assert set(trained) == {(rank, place) for rank in range(workers) for place in range(epochs * sizes[rank])}
    assert set(trained.values()) == {1}


def test_a_share_that_is_free_is_taken_up_beside_the_others() -> None:
    trained = SampleRanges([(0, 0, 16), (2, 0, 16), (1, 0, 7)])
    kept = shares_kept({0: 10, 1: 10, 2: 10}, {0: 16, 2: 16}, trained)
    assert kept == [KeptShare(16), KeptShare(16, ((7, 16),)), KeptShare(16)]
    assert pieces_left((10, 10, 10), kept) == [SharePiece(0, 1, 7, 10), SharePiece(1, 1, 10, 16)]
    assert list(trained_before(kept)) == list(trained), "the epoch of a place is not kept"


def test_shares_of_unlike_sizes_stay_in_the_same_epoch() -> None:
    kept = shares_kept({0: 10, 1: 4, 2: 0}, {0: 27}, SampleRanges([(0, 0, 27), (1, 0, 6)]))
    assert kept == [KeptShare(27), KeptShare(12, ((6, 12),)), KeptShare(0)]


def test_where_nobody_has_its_share_any_more_the_most_advanced_one_says_how_far_they_are() -> None:
    kept = shares_kept({0: 10, 1: 10}, {}, SampleRanges([(0, 0, 12), (1, 0, 5), (1, 8, 9)]))
    assert kept == [KeptShare(12), KeptShare(12, ((5, 8), (9, 12)))]


def test_a_checkpoint_that_names_more_epochs_than_any_run_has_costs_no_more_than_so_many_pieces() -> None:
    found = pieces_left((1, 1), [KeptShare(1 << 60, ((0, 1 << 60),)), KeptShare(0)])
    assert len(found) == PIECES_MAX
