"""`pace.shard`: each item of a stream is one worker's, in one batch, also after a resume."""

from __future__ import annotations

import itertools
from collections import Counter, UserDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

from paceline.core.errors import ConfigError
from paceline.runtime.worker.loop.loader import LoaderSettings
from paceline.runtime.worker.loop.shard import ShardBatches, StreamShard, samples_in
from paceline.runtime.worker.pace import Pace
from tests.runtime.own_loops import run_loops, toy_data, toy_model

X, Y = toy_data(91).tensors


class Stream(IterableDataset[dict[str, Any]]):
    """Items that come in order and have no numbers."""

    def __init__(self, items: int = len(X)) -> None:
        self._items = items

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return ({"x": X[i], "y": Y[i], "number": i} for i in range(self._items))


class Read(list[int]):
    """Items by number, with a note of those that were read."""

    def __init__(self, items: range) -> None:
        super().__init__(items)
        self.read: list[int] = []

    def __getitem__(self, i: Any) -> Any:
        self.read.append(i)
        return super().__getitem__(i)


def numbers(shard: StreamShard, batch_size: int = 4, **settings: Any) -> list[list[int]]:
    """What `pace.loader` makes of the rest of a pass."""
    return [batch["number"].tolist() for batch, _ in ShardBatches(shard, batch_size, LoaderSettings(**settings))]


def train_on(model: nn.Module, batch: dict[str, Any]) -> None:
    nn.functional.cross_entropy(model(batch["x"]), batch["y"]).backward()


# ---- the items ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("items", [0, 1, 2, 11, 12])
def test_each_item_is_one_workers_and_every_pass_gives_the_same(items: int) -> None:
    for source in (range(items), iter(range(items)), dict.fromkeys(range(items))):
        sources = itertools.tee(source, 3) if isinstance(source, Iterator) else [source] * 3
        shards = [StreamShard(source, rank, 3) for rank, source in enumerate(sources)]
        assert [list(shard) for shard in shards] == [list(range(rank, items, 3)) for rank in range(3)]
        if not isinstance(source, Iterator):
            assert sorted(item for shard in shards for item in shard) == list(range(items))
            assert {shard.epoch for shard in shards} == {2}


def test_of_items_by_number_only_the_own_ones_are_read() -> None:
    source = Read(range(10))
    assert list(StreamShard(source, 1, 3)) == source.read == [1, 4, 7]


def test_a_source_is_told_the_pass_if_it_asks() -> None:
    class Shuffled:
        def __init__(self) -> None:
            self.epochs: list[int] = []

        def set_epoch(self, epoch: int) -> None:
            self.epochs.append(epoch)

        def __iter__(self) -> Iterator[int]:
            return iter(range(6))

    source = Shuffled()
    shard = StreamShard(source, 0, 2)
    assert [list(shard), list(shard)] == [[0, 2, 4]] * 2
    assert source.epochs == [0, 1]


@pytest.mark.parametrize("processes", [0, 2])
def test_a_data_loader_of_ones_own_deals_the_part_of_a_worker_among_its_processes(processes: int) -> None:
    found = [
        DataLoader(StreamShard(Stream(), rank, 3), 4, num_workers=processes, collate_fn=lambda items: items)
        for rank in range(3)
    ]
    assert Counter(item["number"] for loader in found for batch in loader for item in batch) == Counter(range(91))


@pytest.mark.parametrize("processes", [1, 2])
def test_batches_are_the_same_however_many_processes_make_them(processes: int) -> None:
    alone = numbers(StreamShard(Stream(), 1, 2))
    assert alone[0] == [1, 3, 5, 7]
    assert alone[-1] == [89]
    assert numbers(StreamShard(Stream(), 1, 2), num_workers=processes) == alone


# ---- the position ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("after", [0, 1, 5, 29, 30, 31, 47])
def test_a_position_goes_on_with_the_next_item(after: int) -> None:
    for make in (Stream, lambda: iter(Stream())) if after <= 30 else (Stream,):
        first, second = StreamShard(make(), 1, 3), StreamShard(make(), 1, 3)
        passes = itertools.chain.from_iterable(itertools.repeat(first))
        given = [item["number"] for item in itertools.islice(passes, after)]
        second.load_state_dict(first.state_dict())
        given += [item["number"] for item in second]
        assert given == [*range(1, 91, 3), *range(1, 91, 3)][: 30 if after <= 30 else 60]


def test_a_position_of_another_part_is_refused() -> None:
    state = StreamShard(Stream(), 1, 3).state_dict()
    with pytest.raises(ConfigError, match="part 1 of 3, and this is part 1 of 2; resume with as many workers"):
        StreamShard(Stream(), 1, 2).load_state_dict(state)


@pytest.mark.parametrize("source", [Stream(10), list(range(10)), dict.fromkeys(range(10))])
@pytest.mark.parametrize(("behind", "position"), [(0, (0, 0)), (3, (0, 3)), (5, (1, 0)), (12, (2, 2))])
def test_what_earlier_incarnations_were_given_is_behind(source: Any, behind: int, position: tuple[int, int]) -> None:
    shard = StreamShard(source, 0, 2)
    shard.go_on(behind)
    state = shard.state_dict()
    assert (state["epoch"], state["items"]) == position
    assert len(list(shard)) == 5 - position[1]
    assert shard.samples == behind + 5 - position[1]


# ---- in a run ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("scheme", ["bsp", "asp", "esync"])
@pytest.mark.parametrize("items", [91, 2])
def test_all_together_train_each_item_once_and_nobody_hangs(out: Path, scheme: str, items: int) -> None:
    """Of 91 items one worker has one more than the others; of 2 the third has none."""
    seen: list[int] = []

    def loop(pace: Pace, model: nn.Module) -> None:
        for batch in pace.loader(pace.shard(Stream(items)), 5, epochs=2):
            seen.extend(batch["number"].tolist())
            train_on(model, batch)
            pace.step()

    summary, _ = run_loops(out, scheme, loop)
    assert Counter(seen) == Counter(dict.fromkeys(range(items), 2))
    assert summary.samples == 2 * items


def test_one_worker_trains_what_a_plain_loader_gives_bit_for_bit(out: Path) -> None:
    def loop(pace: Pace, model: nn.Module) -> None:
        for batch in pace.loader(pace.shard(Stream()), 8):
            train_on(model, batch)
            pace.step()

    plain = toy_model()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    for batch in DataLoader(Stream(), 8):
        optimizer.zero_grad()
        train_on(plain, batch)
        optimizer.step()
    _, models = run_loops(out, "asp", loop, workers=1)
    for ours, theirs in zip(models[0].parameters(), plain.parameters(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("processes", [0, 2])
def test_a_loop_that_is_resumed_loses_nothing_and_trains_nothing_twice(out: Path, processes: int) -> None:
    states: dict[int, dict[str, int]] = {}
    seen: list[int] = []

    def begins(pace: Pace, model: nn.Module) -> None:
        shard = pace.shard(Stream())
        for batch in pace.loader(shard, 4, num_workers=processes):
            seen.extend(batch["number"].tolist())
            train_on(model, batch)
            pace.step()
            states[pace.rank] = shard.state_dict()
            if pace.steps == 3 + pace.rank:
                break

    def goes_on(pace: Pace, model: nn.Module) -> None:
        shard = pace.shard(Stream())
        shard.load_state_dict(states[pace.rank])
        for batch in pace.loader(shard, 4, num_workers=processes):
            seen.extend(batch["number"].tolist())
            train_on(model, batch)
            pace.step()

    run_loops(out / "first", "asp", begins, workers=2)
    assert len(seen) == 28
    run_loops(out / "second", "asp", goes_on, workers=2)
    assert Counter(seen) == Counter(range(91))


def test_samples_that_the_command_names_end_an_endless_stream(out: Path) -> None:
    def loop(pace: Pace, model: nn.Module) -> None:
        for batch in pace.loader(pace.shard(Stream()), 5, epochs=None):
            train_on(model, batch)
            pace.step()

    summary, _ = run_loops(out, "asp", loop, stop={"samples": 300})
    assert 300 <= summary.samples < 300 + 3 * 5


# ---- the samples of a step ---------------------------------------------------------------------------------------
def test_batches_that_are_ready_count_by_their_first_tensor_or_as_one_says(out: Path) -> None:
    ready = [{"text": ["a"] * n, "more": (torch.zeros(n, 6),)} for n in (3, 4, 5)]

    def loop(pace: Pace, model: nn.Module) -> None:
        for samples_of in (None, lambda batch: 100):
            for batch in pace.loader(pace.shard(ready), None, samples_of=samples_of):
                model(batch["more"][0]).sum().backward()
                pace.step()

    summary, _ = run_loops(out, "asp", loop, workers=1)
    assert summary.samples == 3 + 4 + 5 + 300


def test_the_first_tensor_is_found_wherever_it_is() -> None:
    x = torch.zeros(7, 2)
    for batch in (x, (x, torch.zeros(3)), {"a": "text", "b": [x]}, UserDict(input_ids=x), [["t"], {"x": (x,)}]):
        assert samples_in(batch) == 7
    assert samples_in(torch.tensor(1.0)) == samples_in(["no", "tensor"]) == 1


def test_what_cannot_be_iterated_over_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"pace.shard\(int\): it cannot be iterated over"):
        StreamShard(3, 0, 1)  # type: ignore[arg-type]


def test_a_scheme_that_says_how_large_batches_are_has_no_streams(out: Path) -> None:
    said: list[str] = []

    def loop(pace: Pace, model: nn.Module) -> None:
        with pytest.raises(ConfigError) as error:
            next(iter(pace.loader(pace.shard(Stream()), 8)))
        said.append(str(error.value))

    run_loops(out, "lbbsp", loop, workers=2, global_batch=16)
    assert len(said) == 2
    assert all("lbbsp says how large batches are" in text for text in said)
