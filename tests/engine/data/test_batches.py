"""Batches: each sample of the share once an epoch, in the order the shares say."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.errors import ConfigError
from paceline.engine.data.batches import Batches
from paceline.engine.data.dataset import Dataset
from paceline.engine.data.partition_plan import make_partition


def numbered(n: int) -> Dataset:
    """Sample i is a picture of i with label i."""
    y = torch.arange(n)
    return Dataset(y.float().reshape(n, 1, 1, 1).clone(), y, n)


class Squares:
    """A user's data set: (i squared as a tensor, i as a number)."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> Any:
        return torch.tensor([float(index) ** 2]), index


class ManySquares(Squares):
    calls = 0

    def __getitems__(self, indices: list[int]) -> list[Any]:
        self.calls += 1
        return [self[i] for i in indices]


@given(st.integers(1, 60), st.integers(1, 5), st.integers(1, 70), st.integers(0, 3))
def test_every_epoch_hands_out_the_share_once_in_its_order(n: int, workers: int, size: int, epochs: int) -> None:
    workers = min(n, workers)
    shares = make_partition("uniform", n, workers)
    for rank in range(workers):
        batches = Batches(numbered(n), shares, rank, size, epochs=epochs)
        got = [int(i) for _, y in batches for i in y]
        assert got == [int(i) for epoch in range(epochs) for i in shares.indices(rank, epoch)]
        assert (batches.epoch, batches.samples) == (epochs, len(got))


def test_the_last_batch_of_an_epoch_is_kept_though_it_is_short() -> None:
    batches = Batches(numbered(10), make_partition("uniform", 10, 1), 0, 4, epochs=2)
    assert batches.steps_per_epoch == 3
    assert [len(y) for _, y in batches] == [4, 4, 2, 4, 4, 2]


def test_pictures_stay_with_their_labels() -> None:
    for x, y in Batches(numbered(10), make_partition("uniform", 10, 2), 1, 3, epochs=3):
        assert x.shape == (len(y), 1, 1, 1)
        assert torch.equal(x.flatten(), y.float())


def test_the_stream_is_endless_and_counts() -> None:
    batches = Batches(numbered(10), make_partition("uniform", 10, 1), 0, 4)
    assert (batches.epoch, batches.samples) == (0, 0)
    assert sum(len(y) for _, y in itertools.islice(batches, 31)) == 104
    assert (batches.epoch, batches.samples) == (10, 104)


def test_a_finished_stream_stays_finished() -> None:
    batches = Batches(numbered(4), make_partition("uniform", 4, 1), 0, 4, epochs=1)
    assert len(list(batches)) == 1
    assert list(batches) == []


def test_an_empty_share_gives_nothing_even_without_an_end() -> None:
    assert list(Batches(numbered(4), make_partition("fractions:0,1", 4, 2), 0, 4)) == []


def test_a_batch_is_not_changed_by_the_next() -> None:
    batches = Batches(numbered(8), make_partition("uniform", 8, 1), 0, 4)
    x, y = next(batches)
    kept = x.clone(), y.clone()
    next(batches)
    assert torch.equal(x, kept[0])
    assert torch.equal(y, kept[1])


def test_samples_and_batches_may_lie_on_different_devices() -> None:
    shares = make_partition("uniform", 8, 1)
    x, y = next(Batches(numbered(8), shares, 0, 4, device="meta"))
    assert (x.device.type, y.device.type, x.shape) == ("meta", "meta", (4, 1, 1, 1))
    x, _ = next(Batches(numbered(8).to("meta"), shares, 0, 4, device="meta"))
    assert x.device.type == "meta"


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("home", ["cpu", "cuda"])
def test_batches_arrive_on_the_gpu_wherever_the_samples_lie(home: str) -> None:
    shares = make_partition("uniform", 8, 1)
    x, y = next(Batches(numbered(8).to(home), shares, 0, 4, device="cuda"))
    assert x.device.type == y.device.type == "cuda"
    assert y.tolist() == shares.indices(0, 0)[:4].tolist()


@pytest.mark.parametrize("kind", [Squares, ManySquares])
def test_a_users_own_data_set_is_collated(kind: type[Squares]) -> None:
    data, shares = kind(10), make_partition("uniform", 10, 2)
    got = list(Batches(data, shares, 1, 2, epochs=1))
    assert [tuple(x.shape) for x, _ in got] == [(2, 1), (3, 1)]
    assert [int(i) for _, y in got for i in y] == shares.indices(1, 0).tolist()
    assert all(torch.equal(x.flatten(), y.float() ** 2) for x, y in got)
    assert getattr(data, "calls", 2) == 2


def test_a_users_items_must_be_pairs() -> None:
    triples = [(1.0, 2, 3)] * 4
    with pytest.raises(TypeError, match=r"must be \(x, y\)"):
        next(Batches(triples, make_partition("uniform", 4, 1), 0, 2))


def test_what_makes_no_sense_is_refused() -> None:
    data, shares = numbered(4), make_partition("uniform", 4, 2)
    with pytest.raises(ConfigError, match="batch size 0"):
        Batches(data, shares, 0, 0)
    with pytest.raises(ConfigError, match="-1 epochs"):
        Batches(data, shares, 0, 1, epochs=-1)
    with pytest.raises(ConfigError, match="no rank 2"):
        Batches(data, shares, 2, 1)


@given(st.integers(1, 40), st.integers(1, 3), st.lists(st.integers(1, 20), max_size=6))
def test_a_batch_may_have_any_size_and_goes_on_over_the_end_of_an_epoch(n: int, workers: int, sizes: list[int]) -> None:
    workers = min(n, workers)
    shares = make_partition("uniform", n, workers)
    batches = Batches(numbered(n), shares, 0, 4)
    taken = [batches.take(size) for size in sizes]
    assert [len(batch[1]) for batch in taken if batch] == sizes
    got = [int(i) for batch in taken if batch for i in batch[1]]
    epochs = len(got) // shares.size(0) + 1
    assert got == [int(i) for epoch in range(epochs) for i in shares.indices(0, epoch)][: len(got)]
    assert batches.epoch == len(got) // shares.size(0)


def test_only_the_end_of_the_last_epoch_makes_a_batch_smaller_than_was_asked_for() -> None:
    batches = Batches(numbered(10), make_partition("uniform", 10, 1), 0, 4, epochs=2)
    taken = [batches.take(8) for _ in range(4)]
    assert [len(batch[1]) if batch else 0 for batch in taken] == [8, 8, 4, 0]


def taken(batches: Batches, size: int) -> Iterator[int]:
    """The lengths of batches whose size somebody else says: the loop over the end of an epoch."""
    while (batch := batches.take(size)) is not None:
        yield len(batch[1])


@given(st.integers(4, 200), st.integers(2, 5), st.integers(2, 40), st.integers(1, 3))
def test_no_share_ends_with_a_batch_of_one_sample(n: int, workers: int, size: int, epochs: int) -> None:
    workers = min(workers, n // 2)
    shares = make_partition("uniform", n, workers)
    for rank in range(workers):
        batches = Batches(numbered(n), shares, rank, size, epochs=epochs)
        by_epoch = [len(y) for _, y in batches]
        by_size = list(taken(Batches(numbered(n), shares, rank, size, epochs=epochs), size))
        for found in (by_epoch, by_size):
            assert sum(found) == epochs * shares.size(rank)
            assert 1 < min(found) <= max(found) <= max(size, 3)
        assert len(by_epoch) == epochs * batches.steps_per_epoch


def test_a_resumed_share_goes_on_with_the_batches_that_it_would_have_had() -> None:
    shares = make_partition("uniform", 98, 3)
    whole = [len(y) for _, y in Batches(numbered(98), shares, 0, 16, epochs=2)]
    assert whole == [16, 15, 2, 16, 15, 2]
    for done in range(len(whole)):
        resumed = Batches(numbered(98), shares, 0, 16)
        resumed.skip(done)
        resumed.extend(2)
        assert [len(y) for _, y in resumed] == whole[done:]
