"""A stream over leases: what was handed out is known, and all workers see an epoch in the same order."""

from __future__ import annotations

import torch

from paceline.core.effects import Piece
from paceline.core.samples.sample_leases import Leases
from paceline.engine.data.dataset import Dataset
from paceline.engine.data.leased_batches import LeasedBatches


class Lender:
    """For worker `rank`, out of a queue that others have, too."""

    def __init__(self, leases: Leases, rank: int, most: int = 100) -> None:
        self._leases, self._rank, self._most = leases, rank, most

    def next(self) -> Piece | None:
        self._most -= 1
        return self._leases.take(self._rank, 0) if self._most >= 0 else None

    @property
    def epochs(self) -> int:
        return self._leases.epochs


def numbered(n: int) -> Dataset:
    return Dataset(torch.arange(n, dtype=torch.float32).reshape(n, 1, 1, 1), torch.arange(n), n)


def test_workers_that_take_turns_see_every_sample_of_an_epoch_once() -> None:
    leases = Leases(50, 8)
    streams = [LeasedBatches(numbered(50), Lender(leases, rank), 4, seed=3) for rank in range(3)]
    seen: list[int] = []
    for turn in range(100):
        stream = streams[turn % 3]
        if not any(epoch == 0 for epoch, _, _ in stream.taken) and len(seen) == 50:
            break
        x, y = next(stream)
        taken, of_first = stream.taken, [piece for piece in stream.taken if piece[0] == 0]
        stream.forget_taken()
        if of_first:
            assert sum(stop - start for _, start, stop in taken) == len(y)
            assert x.flatten().tolist() == y.tolist()
            seen += y.tolist()
    assert sorted(seen) == list(range(50))
    assert seen != sorted(seen)


def test_a_batch_ends_with_its_lease_and_one_of_a_given_size_goes_on_into_the_next() -> None:
    stream = LeasedBatches(numbered(20), Lender(Leases(20, 6), 0), 4, seed=0)
    assert [len(next(stream)[1]) for _ in range(3)] == [4, 2, 4]
    stream.forget_taken()
    batch = stream.take(5)
    assert batch is not None
    assert len(batch[1]) == 5
    assert stream.taken == ((0, 10, 15),)  # two leases, one after the other
    assert stream.handed == stream.samples == 15


def test_without_a_further_lease_it_is_over() -> None:
    stream = LeasedBatches(numbered(20), Lender(Leases(20, 6), 0, most=1), 4, seed=0)
    assert [len(y) for _, y in stream] == [4, 2]


def test_it_ends_when_so_many_epochs_of_all_workers_are_done() -> None:
    leases = Leases(8, 4)
    stream = LeasedBatches(numbered(8), Lender(leases, 0), 4, seed=0)
    stream.epochs = 1
    for _ in range(2):
        next(stream)
        leases.settled(0, "applied", stream.taken)
        stream.forget_taken()
    assert stream.epoch == 1
    assert next(stream, None) is None


def test_what_earlier_lives_were_handed_is_not_counted_for_this_one() -> None:
    stream = LeasedBatches(numbered(8), Lender(Leases(8, 4), 0), 2, seed=0)
    stream.skip(5)
    next(stream)
    assert (stream.samples, stream.handed) == (12, 2)
