"""Implements `pace.loader`: the batches of a torch DataLoader, whatever they are made of, over the samples of a
worker."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass, fields
from typing import Any, Self

import torch
from torch.utils.data import DataLoader, IterableDataset, default_collate

from paceline.core.errors import ConfigError

WAYS_OUT = {
    "shuffle": "each epoch has its own order; for another give sampler=torch.utils.data.SequentialSampler(dataset)",
    "drop_last": "the last batch of an epoch is short; leave it out in the loop",
    "batch_sampler": "give sampler= and batch_size=, as the workers share the samples and not the batches",
}
"""What to do instead, for each argument of a DataLoader that `pace.loader` does not have."""
OWN_LOADER = "make a DataLoader of your own, over pace.shard(dataset)"
"""The way out, where a DataLoader cannot be imitated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderSettings:
    """Holds what the user says of a DataLoader. samples_of: how many samples a batch counts as, by default its
    items."""

    collate_fn: Callable[[list[Any]], Any] | None = None
    num_workers: int = 0
    pin_memory: bool = False
    sampler: Iterable[int] | None = None
    generator: torch.Generator | None = None
    samples_of: Callable[[Any], int] | None = None

    @classmethod
    def of(cls, data: Any, batch_size: int | None, partition: str, settings: dict[str, Any], *, sharded: bool) -> Self:
        """Returns the settings. Raises ConfigError, with the way out, for what `pace.loader` has not, or not for such
        data."""
        unknown = sorted(settings.keys() - {field.name for field in fields(cls)})
        if unknown:
            raise ConfigError(f"pace.loader has no {unknown[0]}: {WAYS_OUT.get(unknown[0], OWN_LOADER)}")
        if sharded and (partition != "auto" or not settings.keys().isdisjoint({"sampler", "generator"})):
            raise ConfigError("pace.loader of a pace.shard: partition, sampler and generator need items with numbers")
        if not sharded and (isinstance(data, IterableDataset) or not hasattr(data, "__len__")):
            raise ConfigError("pace.loader: this data set has no items by number; give pace.shard(dataset) instead")
        if not sharded and batch_size is None:
            raise ConfigError("pace.loader(batch_size=None) is for a pace.shard of batches: say how many samples")
        return cls(**settings)


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
    drop_last = False

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None,
        samples: object,
        begin: Callable[[bool], Iterator[Any]],
        settings: LoaderSettings,
    ) -> None:
        """`samples`: as many as there are in one pass, if they have a length.

        `begin` returns the next `epochs`; with True they have a first batch as long as the run has one.
        """
        self.dataset, self.batch_size, self.begin = dataset, batch_size, begin
        self.sampler, self.generator = settings.sampler, settings.generator
        self.num_workers, self.pin_memory = settings.num_workers, settings.pin_memory
        self.collate_fn = settings.collate_fn or default_collate
        self._count = len(samples) if isinstance(samples, Sized) else None

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
    return DataLoader(
        data,
        batch_sampler=_Drawn(draw),
        collate_fn=settings.collate_fn,
        num_workers=settings.num_workers,
        pin_memory=settings.pin_memory,
    )


class _Drawn:
    """Takes the place of a batch sampler."""

    def __init__(self, draw: Callable[[], list[int] | None]) -> None:
        self._draw = draw

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self._draw, None)  # a frame less for each batch than a generator
