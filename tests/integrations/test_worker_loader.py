"""A loader becomes this worker's part of it: all batches for one worker, and none that cannot be shared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    SequentialSampler,
    TensorDataset,
    WeightedRandomSampler,
)

import paceline
from paceline.core.errors import ConfigError
from paceline.integrations.worker_loader import WorkerLoader, is_training_data
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


def test_loaders_of_training_data_have_a_sampler() -> None:
    data = loader().dataset
    weighted = WeightedRandomSampler([1.0, 2.0] * 4, 8)
    assert is_training_data(loader(shuffle=True))
    assert is_training_data(DataLoader(data, 4, sampler=weighted))
    assert not is_training_data(loader())
    assert not is_training_data([1, 2, 3])


# ---- the arguments of a DataLoader -------------------------------------------------------------------------------
class Opened(TensorDataset):
    """Can be read where `open_in_process` was called."""

    opened = False

    def __getitem__(self, index: int) -> Any:
        assert Opened.opened, "worker_init_fn was not called"
        return super().__getitem__(index)


def open_in_process(process: int) -> None:
    Opened.opened = True


def test_processes_are_begun_as_the_loader_says_and_go_on_if_it_says_so(pace: Pace) -> None:
    data = Opened(torch.randn(12, 64), torch.arange(12), torch.zeros(12))
    original = DataLoader(
        data, 4, num_workers=1, worker_init_fn=open_in_process, persistent_workers=True, prefetch_factor=1
    )
    shared = WorkerLoader(original, lambda: pace)
    for _ in range(2):
        seen = []
        for x, y, _ in shared:
            seen += y.tolist()
            step(pace, x, y)
        assert seen == list(range(12))
    (made,) = pace._worker.feed._loaders.values()
    assert made.prefetch_factor == 1


def test_one_worker_has_the_batches_that_the_generator_and_drop_last_give(pace: Pace) -> None:
    def made() -> DataLoader[Any]:
        return DataLoader(
            loader().dataset, 24, shuffle=True, drop_last=True, generator=torch.Generator().manual_seed(3)
        )

    plain, shared = made(), WorkerLoader(made(), lambda: pace)
    assert len(plain) == len(shared)
    for _ in range(2):
        for (x, _), (ours, targets) in zip(plain, shared, strict=True):
            assert torch.equal(x, ours)
            step(pace, ours, targets)


def test_without_its_first_batches_a_pass_has_the_others(pace: Pace) -> None:
    original = loader()
    later = WorkerLoader(WorkerLoader(original, lambda: pace).without_first(1), lambda: pace)
    assert len(later) == len(original) - 1
    expected = list(original)[1:]
    for (x, y), (ours, _) in zip(expected, later, strict=True):
        assert torch.equal(x, ours)
        step(pace, ours, y)
