"""Loops of one's own: fast workers train more of an epoch, each sample of it once, and one worker is the plain loop."""

from __future__ import annotations

import random
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from paceline.core.coordination import loop_messages
from paceline.core.samples.sample_queue import SampleQueue
from paceline.core.scheme import names
from paceline.engine.data.dealt_batches import DealtBatches
from paceline.engine.data.partition_plan import epoch_order
from paceline.live.control.mailbox import Mailbox
from paceline.runtime.worker.loop.sample_dealer import SampleDealer
from paceline.runtime.worker.pace import Pace
from tests.runtime.own_loops import run_loops, toy_data, toy_model


def numbered(n: int) -> TensorDataset:
    """Each sample knows its number."""
    x, y = toy_data(n).tensors
    x[:, 0] = torch.arange(n)
    return TensorDataset(x, y)


def trained(out: Path, scheme: str, n: int, calls: list[int]) -> Counter[int]:
    """How often each sample was in a batch."""
    seen: list[int] = []

    def loop(pace: Pace, model: nn.Module) -> None:
        for epochs in calls:
            for x, y in pace.batches(DATA[n], 8, epochs=epochs):
                seen.extend(x[:, 0].long().tolist())
                nn.functional.cross_entropy(model(x / n), y).backward()
                pace.step()

    summary, models = run_loops(out, scheme, loop)
    assert summary.samples == len(seen)
    for model in models.values():  # all end with the final model
        for ours, first in zip(model.parameters(), models[0].parameters(), strict=True):
            torch.testing.assert_close(ours, first)
    return Counter(seen)


DATA = {n: numbered(n) for n in (90, 100)}


@pytest.mark.parametrize("scheme", names())
def test_each_sample_of_an_epoch_is_trained_once_by_all_together(out: Path, scheme: str) -> None:
    assert trained(out, scheme, 100, [3]) == Counter(dict.fromkeys(range(100), 3))


@pytest.mark.parametrize("scheme", ["bsp", "asp", "esync", "easgd", "lbbsp"])
def test_so_it_is_by_a_loop_that_asks_for_one_epoch_at_a_time(out: Path, scheme: str) -> None:
    assert trained(out, scheme, 100, [1, 1, 1]) == Counter(dict.fromkeys(range(100), 3))


@pytest.mark.parametrize("scheme", ["asp", "easgd"])
def test_a_slow_worker_leaves_its_part_of_the_epochs_to_the_others(out: Path, scheme: str) -> None:
    """It waits in its second step until they have nothing left."""
    steps: dict[int, int] = {}
    ended = threading.Semaphore(0)

    def loop(pace: Pace, model: nn.Module) -> None:
        for x, y in pace.batches(DATA[90], 10, epochs=4):
            nn.functional.cross_entropy(model(x), y).backward()
            if pace.rank == 0 and pace.steps == 1:
                assert all(ended.acquire(timeout=60) for _ in range(2))
            pace.step()
        steps[pace.rank] = pace.steps
        ended.release()

    summary, _ = run_loops(out, scheme, loop)
    assert summary.samples == 360
    assert steps[0] <= 8, "it has what it had drawn ahead, and no share of 12"
    assert sum(steps.values()) == 36


class _Coordinator:
    """Stands for the session with a coordinator that has these answers, whatever is asked."""

    def __init__(self, *answers: tuple[int, int]) -> None:
        self.mailbox, self.over = Mailbox("worker 0", timeout_s=5), threading.Event()
        self.node, self.me, self._answers = self, "worker 0", [*answers]

    def now(self) -> float:
        return 0.0

    def tell(self, draw: loop_messages.Draw) -> None:
        start, stop = self._answers.pop(0) if self._answers else (0, 0)
        drawn = loop_messages.Drawn(stream=draw.stream, start=start, stop=stop, over=not self._answers)
        self.mailbox.dealt[draw.stream].put(drawn)


def test_the_ends_of_two_epochs_are_two_batches() -> None:
    """A worker that rested while the others trained most of the last epoch gets the end of that, too."""
    session: Any = _Coordinator((96, 100), (196, 200))
    dealer = SampleDealer(session, stream=0, samples=100, timeout_s=5)
    batches = DealtBatches(DATA[100], dealer, 50, order=lambda _: np.arange(100))
    dealer.extend(2)
    sizes = iter(lambda: dealer.size(50, begins=True), 0)
    found = [batch[0][:, 0].tolist() for size in sizes if (batch := batches.take(size))]
    assert found == [[96, 97, 98, 99]] * 2
    assert dealer.ends_run


def test_samples_that_were_lost_with_another_worker_are_dealt_once_more_in_their_order() -> None:
    session: Any = _Drawing(SampleQueue(100), 0, 2)
    dealer = SampleDealer(session, stream=0, samples=100, timeout_s=5)
    dealer.extend(1)

    def batch() -> tuple[int, int, int] | None:
        size = dealer.size(10, begins=True)
        piece = dealer.take(size) if size else None
        if piece is not None:
            dealer.trained(size)
        return piece

    assert [batch() for _ in range(2)] == [(0, 0, 10), (0, 10, 20)]
    dealer.exchanged(held=20)
    dealer.exchanged(held=10)
    assert [batch() for _ in range(2)] == [(0, 20, 30), (0, 30, 40)]
    dealer.exchanged(held=30)
    dealer.lost(30)
    rest = [batch() for _ in range(9)]
    assert rest == [(0, start, start + 10) for start in range(10, 100, 10)]
    assert batch() is None


@pytest.mark.parametrize("loader", [False, True])
@pytest.mark.parametrize("seed", range(30))
def test_no_batch_of_several_workers_has_one_sample_whatever_sizes_a_scheme_says(seed: int, loader: bool) -> None:
    """The plain loop's batches would have 10; each is of just the size that the scheme says until the samples end."""
    dice = random.Random(seed)
    n, epochs, workers = dice.randint(20, 90), dice.randint(1, 3), 3
    queue_of_all = SampleQueue(n)
    streams = []
    for rank in range(workers):
        session: Any = _Drawing(queue_of_all, rank, workers)
        dealer = SampleDealer(session, stream=0, samples=n, timeout_s=5)
        stream = DealtBatches(numbered(n), dealer, 10, order=lambda _: np.arange(n))
        stream.extend(epochs)
        streams.append((dealer, stream))
    trained: Counter[int] = Counter()
    while streams:
        dealer, stream = dice.choice(streams)
        wanted = dice.randint(2, 16)
        size = dealer.size(wanted, begins=True)
        if not size:
            streams.remove((dealer, stream))
            continue
        assert 1 < size <= max(wanted, 3)
        found = stream.indices(size, whole=True) if loader else stream.take(size)
        assert found is not None
        numbers = found if isinstance(found, list) else found[0][:, 0].long().tolist()
        assert len(numbers) == size
        trained.update(numbers)
    assert trained == Counter(dict.fromkeys(range(n), epochs))


class _Drawing:
    """Stands for the session with a coordinator that has this queue."""

    def __init__(self, queue_of_all: SampleQueue, rank: int, workers: int) -> None:
        self.mailbox, self.over = Mailbox(f"worker {rank}", timeout_s=5), threading.Event()
        self.node, self._queue, self._rank, self._workers = self, queue_of_all, rank, workers

    def now(self) -> float:
        return 0.0

    def tell(self, draw: loop_messages.Draw) -> None:
        places = self._queue.take(self._rank, draw.wanted, draw.batch, epochs=draw.epochs, workers=self._workers)
        start, stop = places or (0, 0)
        self.mailbox.dealt[draw.stream].put(loop_messages.Drawn(stream=0, start=start, stop=stop, over=False))


def test_a_contribution_names_what_the_loop_was_given_and_not_what_a_loader_holds_ahead_of_it() -> None:
    session: Any = _Coordinator((8, 12), (20, 26))
    dealer = SampleDealer(session, stream=0, samples=100, timeout_s=5)
    dealer.size(10, begins=True)
    dealer.take(3)
    assert dealer.taken == ((0, 8, 11),)
    dealer.take(10)
    dealer.take(10)
    dealer.ahead = 5
    assert dealer.taken == ((0, 8, 11), (0, 11, 12), (0, 20, 21))
    dealer.forget_taken()
    assert dealer.taken == ()
    dealer.ahead = 2
    assert dealer.taken == ((0, 21, 24),)


def one_worker(out: Path, scheme: str, partition: str) -> nn.Module:
    def loop(pace: Pace, model: nn.Module) -> None:
        for x, y in pace.batches(DATA[90], 8, epochs=2, partition=partition):
            nn.functional.cross_entropy(model(x), y).backward()
            pace.step()

    _, models = run_loops(out / partition, scheme, loop, workers=1)
    return models[0]


@pytest.mark.parametrize("partition", ["auto", "dynamic"])
@pytest.mark.parametrize("scheme", ["asp", "bsp"])
def test_one_worker_is_the_plain_loop_bit_for_bit(out: Path, scheme: str, partition: str) -> None:
    plain = toy_model()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    for epoch in range(2):
        order = torch.from_numpy(epoch_order(90, 0, epoch))
        for part in order.split(8):
            optimizer.zero_grad()
            x, y = DATA[90][part]
            nn.functional.cross_entropy(plain(x), y).backward()
            optimizer.step()
    for ours, theirs in zip(one_worker(out, scheme, partition).parameters(), plain.parameters(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("scheme", ["esync", "localsgd"])
def test_one_worker_of_a_scheme_with_local_steps_trains_the_same_however_it_gets_its_samples(
    out: Path, scheme: str
) -> None:
    dealt, shared = one_worker(out, scheme, "dynamic"), one_worker(out, scheme, "uniform")
    for ours, theirs in zip(dealt.parameters(), shared.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)
