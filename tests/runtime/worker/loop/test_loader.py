"""`pace.loader`: batches of any kind, each sample of an epoch once; one worker gets those of a plain DataLoader."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, SequentialSampler, SubsetRandomSampler

from paceline.core.errors import ConfigError
from paceline.runtime.worker.pace import Pace
from tests.runtime.own_loops import run_loops, toy_data, toy_model

X, Y = toy_data(90).tensors


class Texts(Dataset[dict[str, Any]]):
    """Items that are no pair of tensors."""

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"inputs": {"x": X[i], "number": i}, "label": Y[i], "text": f"sample {i}"}


DATA = Texts()


def train_on(model: nn.Module, batch: dict[str, Any]) -> None:
    nn.functional.cross_entropy(model(batch["inputs"]["x"]), batch["label"]).backward()


@pytest.mark.parametrize("scheme", ["bsp", "asp", "esync", "localsgd"])
@pytest.mark.parametrize("calls", [[2], [1, 1]])
def test_each_sample_of_an_epoch_is_in_one_batch_and_batches_are_what_the_items_are(
    out: Path, scheme: str, calls: list[int]
) -> None:
    seen: list[int] = []

    def loop(pace: Pace, model: nn.Module) -> None:
        for epochs in calls:
            for batch in pace.loader(DATA, 8, epochs=epochs):
                numbers = batch["inputs"]["number"].tolist()
                assert batch["text"] == [f"sample {i}" for i in numbers]
                seen.extend(numbers)
                train_on(model, batch)
                pace.step()

    summary, _ = run_loops(out, scheme, loop)
    assert Counter(seen) == Counter(dict.fromkeys(range(90), 2))
    assert summary.samples == 180


def torch_loader() -> DataLoader[Any]:
    return DataLoader(DATA, 8, shuffle=True, generator=torch.Generator().manual_seed(3))


def assert_trained_as_by_torch(model: nn.Module) -> None:
    """Bit for bit what two epochs of a plain loop over `torch_loader` make of the same model."""
    plain, loader = toy_model(), torch_loader()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    for _ in range(2):
        for batch in loader:
            optimizer.zero_grad()
            train_on(plain, batch)
            optimizer.step()
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("partition", ["auto", "dynamic"])
@pytest.mark.parametrize("workers", [0, 2])
def test_one_worker_trains_what_a_plain_loader_gives_bit_for_bit(out: Path, partition: str, workers: int) -> None:
    def loop(pace: Pace, model: nn.Module) -> None:
        generator = torch.Generator().manual_seed(3)
        for batch in pace.loader(DATA, 8, epochs=2, partition=partition, generator=generator, num_workers=workers):
            train_on(model, batch)
            pace.step()

    _, models = run_loops(out, "asp", loop, workers=1)
    assert_trained_as_by_torch(models[0])


def test_a_loader_made_once_gives_an_epoch_each_time_as_torchs_does(out: Path) -> None:
    def loop(pace: Pace, model: nn.Module) -> None:
        loader = pace.loader(DATA, 8, generator=torch.Generator().manual_seed(3))
        assert loader.dataset is DATA
        assert len(loader) == len(torch_loader())
        for _ in range(2):
            before = pace.steps
            for batch in loader:
                train_on(model, batch)
                pace.step()
            assert pace.steps - before == len(loader)

    _, models = run_loops(out, "asp", loop, workers=1)
    assert_trained_as_by_torch(models[0])


def test_it_has_what_loops_read_of_a_loader_of_torch(out: Path) -> None:
    def loop(pace: Pace, model: nn.Module) -> None:
        sampler = SequentialSampler(DATA)
        ours = pace.loader(DATA, 8, sampler=sampler, num_workers=2, pin_memory=True)
        theirs: DataLoader[Any] = DataLoader(DATA, 8, sampler=sampler, num_workers=2, pin_memory=True)
        names = (
            "sampler",
            "num_workers",
            "pin_memory",
            "collate_fn",
            "drop_last",
            "generator",
            "batch_size",
            "dataset",
        )
        for name in names:
            assert getattr(ours, name) == getattr(theirs, name), name
        assert pace.loader(DATA, 8).sampler is ours.batch_sampler is None  # whose samples are whose is not a list

    run_loops(out, "asp", loop, workers=1)


@pytest.mark.parametrize(("scheme", "trained"), [("bsp", 80), ("localsgd", 80), ("asp", 88), ("esync", 88)])
def test_drop_last_leaves_out_what_is_no_batch_of_each_worker(out: Path, scheme: str, trained: int) -> None:
    """Of 90 samples two workers in lock-step have five batches of 8 each; elsewhere one more is somebody's."""
    lengths: list[int] = []
    passes: list[set[int]] = [set(), set()]

    def loop(pace: Pace, model: nn.Module) -> None:
        loader = pace.loader(DATA, 8, drop_last=True)
        assert len(loader) == trained // 8
        for seen in passes:
            for batch in loader:
                numbers = batch["inputs"]["number"].tolist()
                lengths.append(len(numbers))
                seen.update(numbers)
                train_on(model, batch)
                pace.step()

    summary, _ = run_loops(out, scheme, loop, workers=2)
    assert set(lengths) == {8}
    assert summary.samples == sum(lengths) == 2 * trained
    assert len(passes[0] | passes[1]) > trained  # what a pass leaves out is drawn anew


@pytest.mark.parametrize("scheme", ["bsp", "asp", "esync"])
def test_a_step_counts_the_samples_of_all_batches_whose_gradients_it_has(out: Path, scheme: str) -> None:
    steps: list[int] = []

    def loop(pace: Pace, model: nn.Module) -> None:
        for at, batch in enumerate(pace.loader(DATA, 10, partition="uniform"), start=1):
            train_on(model, batch)
            if at % 3 == 0:
                pace.step()
                steps.append(at)

    summary, _ = run_loops(out, scheme, loop, workers=1)
    assert steps == [3, 6, 9]
    assert summary.samples == 90


@pytest.mark.parametrize("scheme", ["bsp", "localsgd"])
def test_added_up_gradients_have_the_weight_of_all_their_samples(out: Path, scheme: str) -> None:
    """Of two workers one takes 15 samples in three batches, and the other one in one batch."""

    def steps_of(batches: dict[int, int]) -> Callable[[Pace, nn.Module], None]:
        def loop(pace: Pace, model: nn.Module) -> None:
            parts = batches[pace.rank]
            for at, batch in enumerate(pace.loader(DATA, 15 // parts, epochs=2, partition="uniform"), start=1):
                (nn.functional.cross_entropy(model(batch["inputs"]["x"]), batch["label"]) / parts).backward()
                if at % parts == 0:
                    pace.step()

        return loop

    summary, models = run_loops(out / "added", scheme, steps_of({0: 3, 1: 1}), workers=2)
    _, whole = run_loops(out / "whole", scheme, steps_of({0: 1, 1: 1}), workers=2)
    assert summary.samples == 180
    for ours, theirs in zip(models[0].parameters(), whole[0].parameters(), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-6)


def test_so_it_does_where_the_loop_takes_them_all_before_it_begins(out: Path) -> None:
    """As the Trainer of transformers does, to know how many tokens a step has."""

    def loop(pace: Pace, model: nn.Module) -> None:
        batches = iter(pace.loader(DATA, 10, partition="uniform"))
        for _ in range(3):
            for batch in [next(batches) for _ in range(3)]:
                train_on(model, batch)
            pace.step()

    summary, _ = run_loops(out, "asp", loop, workers=1)
    assert summary.samples == 90


def test_a_collate_function_and_a_count_of_ones_own(out: Path) -> None:
    def loop(pace: Pace, model: nn.Module) -> None:
        for items in pace.loader(DATA, 9, collate_fn=list, samples_of=lambda items: 100 * len(items)):
            assert isinstance(items, list)
            assert items[0]["text"].startswith("sample")
            nn.functional.cross_entropy(
                model(torch.stack([item["inputs"]["x"] for item in items])), torch.stack([i["label"] for i in items])
            ).backward()
            pace.step()

    summary, _ = run_loops(out, "asp", loop, workers=1)
    assert summary.samples == 9000


def test_a_loader_that_is_ahead_of_leases_is_refused(out: Path) -> None:
    def loop(pace: Pace, model: nn.Module) -> None:
        with pytest.raises(ConfigError, match="queue"):
            next(iter(pace.loader(DATA, 8, partition="queue", num_workers=1)))

    run_loops(out, "asp", loop, workers=1)


# ---- against torch's DataLoader --------------------------------------------------------------------------------
class Point(NamedTuple):
    x: torch.Tensor
    label: int


class Items(Dataset[Any]):
    """Item i is whatever `make` makes of i."""

    def __init__(self, make: Callable[[int], Any]) -> None:
        self._make = make

    def __len__(self) -> int:
        return 21

    def __getitem__(self, i: int) -> Any:
        return self._make(i)


KINDS: dict[str, Callable[[int], Any]] = {
    "dict": lambda i: {"x": X[i], "label": i},
    "tuple": lambda i: (X[i], i, 0.5 * i),
    "named tuple": lambda i: Point(X[i], i),
    "nested": lambda i: {"a": [X[i], {"b": (i, str(i))}], "c": (X[i],)},
    "strings": lambda i: f"sample {i}",
    "a tensor": lambda i: X[i],
    "a number": lambda i: i,
}


def same(ours: Any, theirs: Any) -> bool:
    if isinstance(theirs, torch.Tensor):
        return bool(torch.equal(ours, theirs)) and ours.dtype == theirs.dtype
    if isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(same(ours[key], theirs[key]) for key in theirs)
    if isinstance(theirs, list | tuple):
        return type(ours) is type(theirs) and len(ours) == len(theirs) and all(map(same, ours, theirs))
    return bool(ours == theirs)


def batches_of(out: Path, data: Any, **settings: Any) -> list[Any]:
    found: list[Any] = []

    def loop(pace: Pace, model: nn.Module) -> None:
        for batch in pace.loader(data, 8, epochs=1, **settings):
            found.append(batch)
            model(X[:2]).sum().backward()
            pace.step()

    run_loops(out, "asp", loop, workers=1)
    return found


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(5)


@pytest.mark.parametrize("kind", KINDS)
def test_batches_are_those_of_a_torch_loader(out: Path, kind: str) -> None:
    data = Items(KINDS[kind])
    theirs = list(DataLoader(data, 8, shuffle=True, generator=seeded()))
    assert [len(batch) for batch in DataLoader(range(21), 8)] == [8, 8, 5], "the last one is short"
    assert same(batches_of(out, data, generator=seeded()), theirs)


@pytest.mark.filterwarnings("ignore:'pin_memory' argument:UserWarning")
@pytest.mark.parametrize(
    "settings",
    [
        {"num_workers": 2},
        {"collate_fn": tuple},
        {"pin_memory": True},
        {"num_workers": 1, "collate_fn": list, "pin_memory": True},
        {"sampler": SequentialSampler(range(21))},
        {"sampler": SubsetRandomSampler(range(3, 17), generator=seeded())},
    ],
    ids=["processes", "collate", "pinned", "all", "in order", "some at random"],
)
def test_so_they_are_with_every_setting(out: Path, settings: dict[str, Any]) -> None:
    data = Items(KINDS["nested"])
    order = {} if "sampler" in settings else {"generator": seeded()}
    ours = batches_of(out, data, **settings, **order)
    if "generator" in getattr(settings.get("sampler"), "__dict__", {}):
        settings["sampler"].generator.manual_seed(5)
    theirs = list(DataLoader(data, 8, **settings, **({"shuffle": True, "generator": seeded()} if order else {})))
    assert same(ours, theirs)


@pytest.mark.parametrize(
    ("data", "settings", "way_out"),
    [
        (DATA, {"shuffle": False}, "SequentialSampler"),
        (DATA, {"drop_last": True, "batch_size": 1000}, "give a smaller batch_size"),
        (DATA, {"batch_sampler": [[0]]}, "give sampler= and batch_size="),
        (DATA, {"in_order": False}, "make a DataLoader of your own"),
        (DATA, {"batch_size": None}, "say how many samples"),
        (DATA, {"sampler": iter([1, 2])}, "give one that has __len__"),
        (iter([1, 2]), {}, "give pace.shard"),
        ("shard", {"sampler": [1]}, "need items with numbers"),
        ("shard", {"partition": "queue"}, "need items with numbers"),
    ],
)
def test_what_does_not_go_together_is_refused_in_a_line_with_the_way_out(
    out: Path, data: Any, settings: dict[str, Any], way_out: str
) -> None:
    said: list[str] = []

    def loop(pace: Pace, model: nn.Module) -> None:
        given = {"batch_size": 8, **settings}
        with pytest.raises(ConfigError) as error:
            next(iter(pace.loader(pace.shard(DATA) if data == "shard" else data, **given)))
        said.append(str(error.value))

    run_loops(out, "asp", loop, workers=2)
    assert len(said) == 2
    assert all(way_out in text and "\n" not in text for text in said)


@pytest.mark.parametrize("scheme", ["asp", "esync"])
@pytest.mark.parametrize("made", ["loader", "batches"])
def test_a_loop_of_steps_that_begins_the_loader_anew_gets_a_batch_however_slow_it_is(
    out: Path, scheme: str, made: str
) -> None:
    """Worker 1 begins when worker 0 has trained all epochs that it has asked for."""
    fast_is_done = threading.Event()
    steps: dict[int, int] = {}

    def loop(pace: Pace, model: nn.Module) -> None:
        data = toy_data(40)
        loader = pace.loader(data, 8)
        begin = lambda: iter(loader if made == "loader" else pace.batches(data, 8))  # noqa: E731
        if pace.rank:
            assert fast_is_done.wait(timeout=60)
        batches = begin()
        for _ in range(12):
            try:
                x, y = next(batches)
            except StopIteration:
                batches = begin()
                x, y = next(batches)
            nn.functional.cross_entropy(model(x), y).backward()
            pace.step()
        steps[pace.rank] = pace.steps
        fast_is_done.set()

    summary, _ = run_loops(out, scheme, loop, workers=2)
    assert steps == {0: 12, 1: 12}
    assert summary.samples == 24 * 8


def test_a_run_that_a_rule_ends_has_no_batch_for_a_loop_that_begins_anew(out: Path) -> None:
    """All 80 samples are worker 0's before worker 1 begins."""
    fast_is_done = threading.Event()
    found: list[Any] = []

    def loop(pace: Pace, model: nn.Module) -> None:
        loader = pace.loader(toy_data(40), 8)
        if pace.rank:
            assert fast_is_done.wait(timeout=60)
            try:
                raise StopIteration
            except StopIteration:
                found.append(next(iter(loader), None))
            return
        for _ in range(2):
            for x, y in loader:
                nn.functional.cross_entropy(model(x), y).backward()
                pace.step()
        fast_is_done.set()

    summary, _ = run_loops(out, "asp", loop, workers=2, stop={"epochs": 2.0})
    assert found == [None]
    assert summary.samples == 80


def skip_before_the_model(batches: Iterator[Any], use: Callable[[Any], Tensor], model: nn.Module) -> None:
    next(batches)
    use(next(batches)).backward()


def skip_a_loss(batches: Iterator[Any], use: Callable[[Any], Tensor], model: nn.Module) -> None:
    use(next(batches))
    use(next(batches)).backward()


def skip_after_clearing(batches: Iterator[Any], use: Callable[[Any], Tensor], model: nn.Module) -> None:
    use(next(batches)).backward()
    for p in model.parameters():
        p.grad = None
    use(next(batches)).backward()


def add_losses(batches: Iterator[Any], use: Callable[[Any], Tensor], model: nn.Module) -> None:
    first = use(next(batches))
    (first + use(next(batches))).backward()


def take_both_first(batches: Iterator[Any], use: Callable[[Any], Tensor], model: nn.Module) -> None:
    for batch in [next(batches), next(batches)]:
        use(batch).backward()


def join_both(batches: Iterator[Any], use: Callable[[Any], Tensor], model: nn.Module) -> None:
    (x, y), (more, labels) = next(batches), next(batches)
    use((torch.cat([x, more]), torch.cat([y, labels]))).backward()


@pytest.mark.parametrize(
    ("turn", "samples"),
    [
        (skip_before_the_model, 8),
        (skip_a_loss, 8),
        (skip_after_clearing, 8),
        (add_losses, 16),
        (take_both_first, 16),
        (join_both, 16),
    ],
)
def test_a_batch_that_the_loop_skips_has_no_weight(
    out: Path, turn: Callable[[Iterator[Any], Callable[[Any], Tensor], nn.Module], None], samples: int
) -> None:
    def loop(pace: Pace, model: nn.Module) -> None:
        use = lambda batch: nn.functional.cross_entropy(model(batch[0]), batch[1])  # noqa: E731
        turn(iter(pace.loader(toy_data(64), 8, epochs=None)), use, model)
        pace.step()

    summary, _ = run_loops(out, "bsp", loop, workers=2)
    assert summary.samples == 2 * samples
