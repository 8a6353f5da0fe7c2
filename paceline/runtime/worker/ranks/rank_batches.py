"""Gives each rank of a worker its part of the worker's mini-batches.

The first rank draws the numbers of the samples, as any worker does, and tells them to the others. Each rank then reads
its own part of the data. Where a mini-batch does not divide evenly, some of its samples are in two ranks' parts, as in
torch's DistributedSampler: all parts are equally long, as the ranks' gradients count alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import default_collate

from paceline.core.errors import ConfigError
from paceline.engine.data.batches import collated
from paceline.engine.data.dataset import Dataset
from paceline.runtime.worker.loop.shard import StreamShard

ALLOWED = ("collate_fn", "sampler", "generator", "drop_last")
"""Settings of `pace.loader` in a worker of several devices."""


class SampleNumbers(TorchDataset[int]):
    """Stands for a data set of which only the numbers of samples are wanted."""

    def __init__(self, data: Any) -> None:
        self.data = data  # kept: streams go by the identity of this object, so that of `data` must not be another's

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> int:
        return index


def part_of(numbers: Sequence[int], place: int, places: int) -> list[int]:
    """Returns the part of a mini-batch's numbers for one of the places. All are equally long, and none is empty."""
    each = -(-len(numbers) // places)
    return [numbers[i % len(numbers)] for i in range(place * each, (place + 1) * each)]


def pair_of(data: Any, numbers: Sequence[int], device: torch.device) -> tuple[Tensor, Tensor]:
    """Returns the samples of these numbers as (x, y), on `device`."""
    if isinstance(data, Dataset):
        seed = int(torch.randint(2**62, ())) if data.augmentation is not None else 0
        x, y = data.batch(torch.tensor(list(numbers), device=data.x.device), seed)
    else:
        x, y = collated(data, list(numbers))
    return x.to(device, non_blocking=True), y.to(device, non_blocking=True)


def items_of(data: Any, numbers: Sequence[int], collate: Callable[[Any], Any] | None) -> Any:
    """Returns the samples of these numbers, as a DataLoader would."""
    many = getattr(data, "__getitems__", None)
    return (collate or default_collate)(many(list(numbers)) if many else [data[i] for i in numbers])


def check_loader(dataset: Any, batch_size: int | None, settings: dict[str, Any]) -> None:
    """Raises ConfigError for what `pace.loader` has not in a worker of several devices."""
    others = sorted(settings.keys() - set(ALLOWED))
    if isinstance(dataset, StreamShard) or batch_size is None or others:
        what = others[0] if others else "stream"
        raise ConfigError(
            f"pace.loader has no {what} in a worker of several devices: make a DataLoader of your own, over "
            "pace.shard(dataset)"
        )
