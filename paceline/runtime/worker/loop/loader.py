"""Implements `pace.loader`: the batches of a torch DataLoader, whatever they are made of, over the samples of a
worker."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any, Self

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, default_collate

from paceline.core.errors import ConfigError

WAYS_OUT = {
    "shuffle": "each epoch has its own order; for another give sampler=torch.utils.data.SequentialSampler(dataset)",
    "batch_sampler": "give sampler= and batch_size=, as the workers share the samples and not the batches",
}
"""What to do instead, for each argument of a DataLoader that `pace.loader` does not have."""
OWN_LOADER = "make a DataLoader of your own, over pace.shard(dataset)"
"""The way out, where a DataLoader cannot be imitated."""


HOW_TO_LOAD = (
    "collate_fn",
    "num_workers",
    "pin_memory",
    "worker_init_fn",
    "prefetch_factor",
    "persistent_workers",
    "multiprocessing_context",
    "timeout",
)
"""Settings of a DataLoader that say how it makes its batches, and not of which samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderSettings:
    """Holds what the user says of a DataLoader. samples_of: how many samples a batch counts as, by default its
    items."""

    collate_fn: Callable[[list[Any]], Any] | None = None
    num_workers: int = 0
    pin_memory: bool = False
    worker_init_fn: Callable[[int], None] | None = None
    prefetch_factor: int | None = None
    persistent_workers: bool = False
    multiprocessing_context: Any = None
    timeout: float = 0
    drop_last: bool = False
    sampler: Iterable[int] | None = None
    generator: torch.Generator | None = None
    samples_of: Callable[[Any], int] | None = None

    @property
    def how_to_load(self) -> dict[str, Any]:
        """Returns arguments for a torch DataLoader of other samples."""
        return {name: getattr(self, name) for name in HOW_TO_LOAD}

    @classmethod
    def of(cls, data: Any, batch_size: int | None, partition: str, settings: dict[str, Any], *, sharded: bool) -> Self:
        """Returns the settings. Raises ConfigError, with the way out, for what `pace.loader` has not, or not for such
        data."""
        unknown = sorted(settings.keys() - {field.name for field in fields(cls)})
        if unknown:
            raise ConfigError(f"pace.loader has no {unknown[0]}: {WAYS_OUT.get(unknown[0], OWN_LOADER)}")
        if sharded and (partition != "auto" or settings.get("sampler") is not None or settings.get("generator")):
            raise ConfigError("pace.loader of a pace.shard: partition, sampler and generator need items with numbers")
        if not sharded and (isinstance(data, IterableDataset) or not hasattr(data, "__len__")):
            raise ConfigError("pace.loader: this data set has no items by number; give pace.shard(dataset) instead")
        if not sharded and batch_size is None:
            raise ConfigError("pace.loader(batch_size=None) is for a pace.shard of batches: say how many samples")
        return cls(**settings)


def settings_of(loader: DataLoader[Any], *, alone: bool) -> dict[str, Any]:
    """Returns the arguments for `pace.loader` that make batches as `loader` does.

    Where it shuffles, the order is a new one in each epoch: by its generator for a worker that is `alone`, else by the
    seed of the run, as the generators of several processes may be seeded differently. Raises ConfigError for a loader
    with a batch sampler of its own, with the way out.
    """
    plain = LoaderSettings()
    settings = {name: getattr(loader, name) for name in HOW_TO_LOAD if getattr(loader, name) != getattr(plain, name)}
    if isinstance(loader.dataset, IterableDataset):
        return settings | ({"drop_last": True} if loader.drop_last else {})
    batches = loader.batch_sampler  # Accelerate's loaders say their size and sampler here only
    if type(batches) is not BatchSampler:
        raise ConfigError(
            "this DataLoader has a batch_sampler of its own: give it batch_size and sampler, as the workers share "
            "samples and not batches"
        )
    if batches.drop_last:
        settings["drop_last"] = True
    sampler: Any = batches.sampler
    data: Any = loader.dataset
    if not isinstance(sampler, RandomSampler) or sampler.replacement or len(sampler) != len(data):
        return settings | {"sampler": sampler}
    if type(sampler) is RandomSampler and sampler.generator is loader.generator and alone:
        settings["generator"] = sampler.generator
    return settings


def begins_anew() -> bool:
    """Returns True while the loop handles the StopIteration of an iterator that it has used up.

    Such a loop counts steps and takes the next batch at once. One that counts epochs begins the next one elsewhere, and
    may find that the others have trained all of it.
    """
    return isinstance(sys.exception(), StopIteration)


class SharedLoader:
    """Yields batches again and again, as a torch DataLoader does, `epochs` at a time; `pace.loader` returns one.

    dataset: what the batches are made of. batch_size: samples in one; None where the items are batches. What else a
    loop reads of a DataLoader is what `pace.loader` was given; the samples are the workers', so there is no
    `batch_sampler`, and no `sampler` but one that was given.
    """

    batch_sampler = None

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None,
        samples: int | None,
        begin: Callable[[bool], Iterator[Any]],
        settings: LoaderSettings,
    ) -> None:
        """`samples`: that are trained in one pass, None where nobody knows.

        `begin` returns the next `epochs`; with True they have a first batch as long as the run has one.
        """
        self.dataset, self.batch_size, self.begin = dataset, batch_size, begin
        self.sampler, self.generator = settings.sampler, settings.generator
        self.num_workers, self.pin_memory = settings.num_workers, settings.pin_memory
        self.collate_fn, self.drop_last = settings.collate_fn or default_collate, settings.drop_last
        self._count = samples

    def __iter__(self) -> Iterator[Any]:
        return self.begin(begins_anew())

    def __len__(self) -> int:
        """Returns the batches in one pass, which all workers share. Raises TypeError for a stream."""
        if self._count is None or self.batch_size is None:
            raise TypeError("pace.loader of a stream has no length")
        return -(-self._count // self.batch_size)


def batches_of(data: Any, settings: LoaderSettings, draw: Callable[[], list[int] | None]) -> DataLoader[Any]:
    """Returns a DataLoader that makes batches of the indices it draws.

    `draw` returns the indices of the next batch, None after the last; a loader with processes of its own draws
    ahead.
    """
    return DataLoader(data, batch_sampler=DrawnBatches(draw), **settings.how_to_load)


class DrawnBatches:
    """Takes the place of a batch sampler; `draw` may be replaced between two passes."""

    def __init__(self, draw: Callable[[], list[int] | None]) -> None:
        self.draw = draw

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.draw, None)  # a frame less for each batch than a generator
