from __future__ import annotations

import pytest
import torch
from torch.utils.data import TensorDataset

from paceline.core.errors import ConfigError
from paceline.engine.data.dataset import Dataset
from paceline.runtime.worker.loop.shard import StreamShard
from paceline.runtime.worker.ranks.rank_batches import SampleNumbers, check_loader, items_of, pair_of, part_of

CPU = torch.device("cpu")


def test_the_parts_of_a_batch_are_all_of_it() -> None:
    assert [part_of([5, 6, 7, 8], place, 2) for place in range(2)] == [[5, 6], [7, 8]]
    assert part_of([5, 6, 7], 0, 1) == [5, 6, 7]


def test_parts_are_equally_long_and_never_empty() -> None:
    assert [part_of([5, 6, 7], place, 2) for place in range(2)] == [[5, 6], [7, 5]]
    assert [part_of([5], place, 3) for place in range(3)] == [[5], [5], [5]]


def test_numbers_stand_for_samples() -> None:
    numbers = SampleNumbers(["a", "b"])
    assert (len(numbers), numbers[1]) == (2, 1)


def test_samples_are_read_by_number_from_either_kind_of_data_set() -> None:
    x, y = torch.arange(6.0).view(3, 2), torch.tensor([0, 1, 0])
    for data in (TensorDataset(x, y), Dataset(x, y, 2)):
        found = pair_of(data, [2, 0], CPU)
        assert torch.equal(found[0], x[[2, 0]])
        assert found[1].tolist() == [0, 0]


def test_a_loader_gives_what_collate_makes() -> None:
    assert items_of(["a", "b", "c"], [2, 0], "".join) == "ca"
    assert items_of([{"n": 1}, {"n": 2}], [1, 0], None)["n"].tolist() == [2, 1]


def test_what_a_loader_of_several_ranks_has_not_is_refused_with_the_way_out() -> None:
    check_loader([1], 4, {"collate_fn": list})
    for dataset, size, settings, what in (
        ([1], 4, {"num_workers": 2}, "num_workers"),
        (StreamShard([1], 0, 1), 4, {}, "stream"),
        ([1], None, {}, "stream"),
    ):
        with pytest.raises(ConfigError, match=f"pace.loader has no {what} .*: make a DataLoader of your own"):
            check_loader(dataset, size, settings)
