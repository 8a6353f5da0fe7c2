"""Replaces a framework's DataLoader by this worker's part of the same batches.

A framework makes its loader before it has an optimizer, and so before the worker can join. Therefore the loader here
asks for the `Pace` when it is first iterated over.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, IterableDataset, Sampler, SequentialSampler, Subset

from paceline.core.errors import ConfigError
from paceline.runtime.worker.loop.loader import HOW_TO_LOAD, SharedLoader, settings_of
from paceline.runtime.worker.pace import Pace


class WorkerLoader:
    """Yields this worker's batches of one pass each time it is iterated over; faster workers get more of them.

    What else is read of it is the original loader's.
    """

    def __init__(self, original: DataLoader[Any], joined: Callable[[], Pace], *, sized: bool = True) -> None:
        """joined: returns the worker; it is called at the first iteration.

        sized: the length is that of one pass of all workers together. Otherwise there is none, for frameworks that
        expect as many batches as the length says: how many this worker gets is not known beforehand. Raises ConfigError
        for a loader whose batches cannot be shared, with the way out.
        """
        self.original, self._joined, self._sized = original, joined, sized
        settings_of(original, alone=False)  # raises at once
        self._shared: SharedLoader | None = None

    def __iter__(self) -> Iterator[Any]:
        if self._shared is None:
            self._shared = _shared(self.original, self._joined())
        return iter(self._shared)

    def __len__(self) -> int:
        """Returns the batches in one pass of all workers. Raises TypeError for a stream, or if not `sized`."""
        if not self._sized:
            raise TypeError("how many batches of a pass this worker gets depends on the speed of all")
        return len(self.original)

    def without_first(self, batches: int) -> DataLoader[Any]:
        """Returns a loader of passes that lack their first batches, counted over all workers together.

        Raises ConfigError for a stream, of which nobody knows the place of a batch.
        """
        loader = self.original
        data: Any = loader.dataset
        if isinstance(data, IterableDataset):
            raise ConfigError("the first batches of a stream cannot be left out: let the stream itself begin later")
        assert isinstance(loader.batch_sampler, BatchSampler)
        size = loader.batch_sampler.batch_size
        return DataLoader(
            Subset(data, range(len(data))),  # another data set for the run, which counts the passes of each
            size,
            sampler=_Later(loader.batch_sampler.sampler, batches * size),
            drop_last=loader.batch_sampler.drop_last,
            **{name: getattr(loader, name) for name in HOW_TO_LOAD},
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["original"], name)


def is_training_data(loader: Any) -> bool:
    """Returns True if `loader` has a sampler that changes the order, as loaders of training data have."""
    sampler = getattr(getattr(loader, "batch_sampler", None), "sampler", None)
    return sampler is not None and not isinstance(sampler, SequentialSampler)


def _shared(loader: DataLoader[Any], pace: Pace) -> SharedLoader:
    """Returns `pace.loader` of the same data."""
    settings = settings_of(loader, alone=pace.workers == 1)
    if isinstance(loader.dataset, IterableDataset):
        return pace.loader(pace.shard(loader.dataset), loader.batch_size, **settings)
    assert isinstance(loader.batch_sampler, BatchSampler)
    return pace.loader(loader.dataset, loader.batch_sampler.batch_size, **settings)


class _Later(Sampler[int]):
    """Samples as another sampler does, without its first `samples`."""

    def __init__(self, sampler: Any, samples: int) -> None:
        self._sampler, self._samples = sampler, samples

    def __iter__(self) -> Iterator[int]:
        return itertools.islice(self._sampler, self._samples, None)

    def __len__(self) -> int:
        return max(0, len(self._sampler) - self._samples)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_sampler"], name)
