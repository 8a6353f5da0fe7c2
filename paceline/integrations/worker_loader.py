"""Replaces a framework's DataLoader by this worker's part of the same batches.

A framework makes its loader before it has an optimizer, and so before the worker can join. Therefore the loader here
asks for the `Pace` when it is first iterated over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler

from paceline.core.errors import ConfigError
from paceline.runtime.worker.loop.loader import SharedLoader
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
        if not isinstance(original.dataset, IterableDataset) and type(original.batch_sampler) is not BatchSampler:
            raise ConfigError(
                "this DataLoader has a batch_sampler of its own: give it batch_size and sampler, as the workers share "
                "samples and not batches"
            )
        self.original, self._joined, self._sized = original, joined, sized
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

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["original"], name)


def shuffles(loader: Any) -> bool:
    """Returns True if `loader` draws its samples at random, as loaders of training data do."""
    return isinstance(getattr(getattr(loader, "batch_sampler", None), "sampler", None), RandomSampler)


def _shared(loader: DataLoader[Any], pace: Pace) -> SharedLoader:
    """Returns `pace.loader` of the same data: in a new order each epoch if `loader` shuffles, otherwise in its own."""
    settings: dict[str, Any] = {"num_workers": loader.num_workers, "pin_memory": loader.pin_memory}
    settings["collate_fn"] = loader.collate_fn
    if isinstance(loader.dataset, IterableDataset):
        return pace.loader(pace.shard(loader.dataset), loader.batch_size, **settings)
    # Accelerate's loaders say their size and sampler here only.
    batches = loader.batch_sampler
    assert isinstance(batches, BatchSampler)
    if not shuffles(loader):
        settings["sampler"] = batches.sampler
    return pace.loader(loader.dataset, batches.batch_size, **settings)
