"""Batch-norm statistics of a loop of one's own: each worker trains with its own, and evaluations see those of all."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from paceline.core.coordination import party
from paceline.core.errors import PeerLost, Undone
from paceline.engine.model.batchnorm_stats import Buffers
from paceline.engine.vectors.flat import Flat
from paceline.live.node.published_state import STATISTICS, PublishedState
from paceline.runtime.worker import batchnorm_average
from paceline.runtime.worker.batchnorm_average import WorkerStatistics, statistics_of
from paceline.runtime.worker.pace import Pace
from tests.runtime.own_loops import run_loops, toy_data, toy_model

pytestmark = pytest.mark.usefixtures("patient")
DATA = toy_data()
PARAMETERS = {"diloco": {"h": 2}, "localsgd": {"tau": 2}}

Statistics = dict[str, torch.Tensor]


def normed_model() -> nn.Module:
    return nn.Sequential(nn.BatchNorm1d(6), *toy_model(), nn.BatchNorm1d(2, momentum=None))


def statistics_in(model: nn.Module) -> Statistics:
    return {name: buffer.clone() for name, buffer in model.named_buffers()}


def train_one(pace: Pace, model: nn.Module, samples: int) -> None:
    """A step on samples of which no other worker or step has the same."""
    begin = (7 * pace.steps + 40 * pace.rank) % 50
    x, y = DATA[begin : begin + samples]
    nn.functional.cross_entropy(model(x), y).backward()
    pace.step(samples)


def mean_by_hand(parts: list[Statistics], samples: list[int]) -> Statistics:
    total = sum(samples)
    mean = {name: sum(part[name] * (n / total) for part, n in zip(parts, samples, strict=True)) for name in parts[0]}
    counts = {name: sum(part[name] for part in parts) for name in mean if name.endswith("num_batches_tracked")}
    return {name: torch.as_tensor(value) for name, value in {**mean, **counts}.items()}


def assert_same(found: Statistics, wanted: Statistics, *, exact: bool = False) -> None:
    assert found.keys() == wanted.keys()
    tolerance = {"rtol": 0.0, "atol": 0.0} if exact else {}
    for name, tensor in wanted.items():
        torch.testing.assert_close(found[name], tensor, **tolerance)


@pytest.mark.parametrize("scheme", ["bsp", "esync", "diloco"])
def test_a_worker_that_is_alone_ends_with_its_own_bit_for_bit(out: Path, scheme: str) -> None:
    own: Statistics = {}

    def loop(pace: Pace, model: nn.Module) -> None:
        for _ in range(4):
            train_one(pace, model, 8)
        own.update(statistics_in(model))
        with pace.shared_model() as shown:
            assert_same(statistics_in(shown), own, exact=True)

    parameters = PARAMETERS.get(scheme, {})
    _, models = run_loops(out, scheme, loop, workers=1, make_model=normed_model, **parameters)
    assert int(own["0.num_batches_tracked"]) == 4
    assert_same(statistics_in(models[0]), own, exact=True)


@pytest.mark.parametrize("scheme", ["bsp", "asp", "esync", "diloco", "localsgd", "gosgd"])
@pytest.mark.parametrize("servers", [0, 1])
def test_after_close_they_are_the_mean_of_all_by_their_samples(out: Path, scheme: str, servers: int) -> None:
    if servers == 0 and scheme == "asp":
        pytest.skip("it needs a server")
    own: dict[int, Statistics] = {}
    samples = {0: 8, 1: 24}

    def loop(pace: Pace, model: nn.Module) -> None:
        for _ in range(4):
            train_one(pace, model, samples[pace.rank])
        own[pace.rank] = statistics_in(model)

    parameters = PARAMETERS.get(scheme, {})
    _, models = run_loops(out, scheme, loop, workers=2, servers=servers, make_model=normed_model, **parameters)
    assert not torch.equal(own[0]["0.running_mean"], own[1]["0.running_mean"])
    assert_same(statistics_in(models[0]), mean_by_hand([own[0], own[1]], [4 * 8, 4 * 24]))
    assert_same(statistics_in(models[1]), statistics_in(models[0]), exact=True)


@pytest.mark.parametrize(
    "scheme", ["bsp", "localsgd", "diloco"]
)  # not esync: one worker may wait for another in a step
def test_the_shared_model_has_those_of_all_and_the_workers_own_are_back_afterwards(out: Path, scheme: str) -> None:
    """Forward passes alone change them, so no scheme lets one worker wait for the other before both are compared."""
    own: dict[int, Statistics] = {}
    together = threading.Barrier(2, timeout=60)

    def loop(pace: Pace, model: nn.Module) -> None:
        for begin in (0, 20):
            model(DATA[begin + 40 * pace.rank : begin + 40 * pace.rank + 8][0])
        own[pace.rank] = statistics_in(model)
        together.wait()
        mean = mean_by_hand([own[0], own[1]], [1, 1])  # nobody has trained a sample yet
        with pace.shared_model() as shown:
            together.wait()  # the other one reads this worker's own all the same
            assert_same(statistics_in(shown), mean)
            with pace.shared_model():
                pass
            assert_same(statistics_in(shown), mean)
            saved = pace.state_dict()["model"]
            assert_same({name: saved[name] for name in own[0]}, mean)
            together.wait()
        assert_same(statistics_in(model), own[pace.rank], exact=True)
        train_one(pace, model, 8)

    run_loops(out, scheme, loop, workers=2, make_model=normed_model, **PARAMETERS.get(scheme, {}))


def test_the_evaluator_saves_what_the_workers_end_with(out: Path) -> None:
    samples = {0: 8, 1: 24}

    def loop(pace: Pace, model: nn.Module) -> None:
        for _ in range(4):
            train_one(pace, model, samples[pace.rank])

    evaluate = lambda model: 0.0  # noqa: E731
    _, models = run_loops(out, "esync", loop, workers=2, make_model=normed_model, evaluate=evaluate)
    saved = load_file(out / "model.safetensors")
    assert_same(saved, models[0].state_dict(), exact=True)
    assert_same(saved, models[1].state_dict(), exact=True)


@pytest.mark.parametrize(
    ("policy", "lost", "expected"),
    [
        ("average", {}, 2.0),
        ("average", {0: PeerLost}, 2.5),
        ("average", {0: PeerLost, 1: PeerLost, 2: PeerLost}, None),
        ("average", {1: Undone}, Undone),
        ("local", {}, 1.0),
        ("local", {0: PeerLost}, 2.0),
    ],
)
def test_statistics_are_of_those_workers_that_are_not_lost_meanwhile(
    policy: str, lost: dict[int, type[PeerLost]], expected: float | type[PeerLost] | None
) -> None:
    buffers = Buffers(nn.BatchNorm1d(2), policy)

    def read_state(rank: int) -> PublishedState:
        if rank in lost:
            raise lost[rank]("gone")
        return PublishedState(v=statistics(rank + 1.0, 10), weight=100.0)

    if expected is Undone:
        with pytest.raises(Undone):
            statistics_of(buffers, range(3), read_state)
        return
    found = statistics_of(buffers, range(3), read_state)
    assert (found and found.value()[:4].tolist()) == (expected and [pytest.approx(expected)] * 4)


def statistics(value: float, batches: int) -> Flat:
    """Of two channels, after so many batches."""
    return Flat.copy_of(torch.tensor([value] * 4 + [0.0, float(batches)]))


def test_statistics_count_by_the_samples_of_each_worker() -> None:
    module = nn.BatchNorm1d(2)
    buffers = Buffers(module)
    shown = [PublishedState(v=statistics(1.0, 30), weight=300.0), PublishedState(v=statistics(5.0, 10), weight=100.0)]
    found = statistics_of(buffers, range(2), shown.__getitem__)
    assert found is not None
    buffers.load(found)
    assert module.running_mean is not None
    assert module.running_mean.tolist() == [2.0, 2.0]
    assert int(module.num_batches_tracked or 0) == 40
    newcomers = statistics_of(buffers, range(2), shown.__getitem__, for_newcomer=True)
    assert newcomers is not None
    buffers.load(newcomers)
    assert module.running_mean.tolist() == [2.0, 2.0]
    assert int(module.num_batches_tracked or 0) == 20, "as one of the two; all three together are added up later"


@pytest.mark.parametrize(
    ("lost", "mean", "batches"), [({}, 2.0, 20), ({0}, 5.0, 10), ({0, 1}, 0.0, 0)], ids=["all", "one", "nobody"]
)
def test_a_newcomer_begins_with_what_the_others_have_together(
    monkeypatch: pytest.MonkeyPatch, lost: set[int], mean: float, batches: int
) -> None:
    """Worker 3 comes; worker 2 has left. Its own untrained statistics do not count, unless nobody answers."""
    shown = {
        0: PublishedState(v=statistics(1.0, 30), weight=300.0),
        1: PublishedState(v=statistics(5.0, 10), weight=100.0),
    }

    class Shown:
        def __init__(self, _: object) -> None: ...

        def read_published(self, rank: int, what: str) -> PublishedState:
            if rank in lost:
                raise PeerLost("gone")
            return shown[rank]

    monkeypatch.setattr(batchnorm_average, "Answering", Shown)
    node = SimpleNamespace(me=party.worker(3), published={}, of_length=lambda rank, shown, length: shown)
    session: Any = SimpleNamespace(node=node, departed={2}, has=lambda who: True, reach=lambda who: None)
    module = nn.BatchNorm1d(2)
    WorkerStatistics(session, Buffers(module), 4, lambda: 0).begin_as_newcomer()
    assert module.running_mean is not None
    assert module.running_mean.tolist() == [pytest.approx(mean)] * 2
    assert int(module.num_batches_tracked or 0) == batches


def test_who_reads_a_workers_own_never_gets_those_of_all_that_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader has seen that the module has the worker's own, and copies them when those of all might be loaded."""
    loaded, copies = threading.Event(), threading.Event()

    class Copied(Buffers):
        def snapshot(self) -> Flat:
            if threading.current_thread() is reader:
                copies.set()
                loaded.wait(0.3)
            return super().snapshot()

        def load(self, v: Flat) -> None:
            super().load(v)
            loaded.set()

    node = SimpleNamespace(me=party.worker(0), published={})
    session: Any = SimpleNamespace(node=node, departed=set())
    buffers = Copied(nn.BatchNorm1d(2))
    buffers.load(statistics(1.0, 10))
    loaded.clear()
    own = WorkerStatistics(session, buffers, 2, lambda: 8)
    monkeypatch.setattr(own, "_now", lambda: statistics(5.0, 10))
    read: list[Any] = []
    reader = threading.Thread(target=lambda: read.append(node.published[STATISTICS]("")))
    reader.start()
    assert copies.wait(60)
    with own.showing():
        reader.join()
    assert read[0].v.value()[:4].tolist() == [1.0] * 4
