"""A loader becomes this worker's part of it: all batches for one worker, and none that cannot be shared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler

import paceline
from paceline.core.errors import ConfigError
from paceline.integrations.worker_loader import WorkerLoader, shuffles
from paceline.runtime.worker.pace import Pace
from tests.integrations.toys import loader, network

pytestmark = pytest.mark.usefixtures("alone")


@pytest.fixture
def pace() -> Iterator[Pace]:
    model = network()
    with paceline.join(model, torch.optim.SGD(model.parameters(), lr=0.1), scheme="bsp") as pace:
        yield pace


def step(pace: Pace, x: torch.Tensor, y: torch.Tensor) -> None:
    pace._worker.model.flat.module(x).logsumexp(1).mean().backward()
    pace.step()


def test_one_worker_gets_all_batches_in_their_order_again_and_again(pace: Pace) -> None:
    plain, shared = loader(), WorkerLoader(loader(), lambda: pace)
    for _ in range(2):
        count = 0
        for (x, y), (ours, targets) in zip(plain, shared, strict=True):
            assert torch.equal(x, ours)
            assert torch.equal(y, targets)
            step(pace, ours, targets)
            count += 1
        assert count == len(shared) == len(plain)


def test_a_loader_that_shuffles_gives_every_sample_once_a_pass(pace: Pace) -> None:
    original = loader(shuffle=True)
    seen = []
    for x, y in WorkerLoader(original, lambda: pace):
        seen += x.sum(1).tolist()
        step(pace, x, y)
    assert sorted(seen) == sorted(original.dataset.tensors[0].sum(1).tolist())  # type: ignore[attr-defined]


def test_without_a_length_it_refuses_to_say_one(pace: Pace) -> None:
    with pytest.raises(TypeError, match="depends on the speed of all"):
        len(WorkerLoader(loader(), lambda: pace, sized=False))
    assert WorkerLoader(loader(), lambda: pace, sized=False).batch_size == 32


def test_a_stream_is_dealt_out(pace: Pace) -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            yield from ((torch.full((64,), float(n)), n % 10) for n in range(70))

    lengths = []
    for x, y in WorkerLoader(DataLoader(Stream(), batch_size=32), lambda: pace):
        lengths.append(len(x))
        step(pace, x, y)
    assert lengths == [32, 32, 6]


def test_batches_of_somebody_elses_making_are_refused() -> None:
    class Own(BatchSampler):
        pass

    data = loader().dataset
    own = DataLoader(data, batch_sampler=Own(SequentialSampler(data), 4, drop_last=False))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="batch_sampler of its own: give it batch_size and sampler"):
        WorkerLoader(own, lambda: pytest.fail("it does not join"))


def test_loaders_of_training_data_shuffle() -> None:
    assert shuffles(loader(shuffle=True))
    assert not shuffles(loader())
    assert not shuffles([1, 2, 3])
