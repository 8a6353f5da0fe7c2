"""Provides the order of an epoch where the user's own sampler or generator says it: the same on every worker."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sized
from typing import Any

import numpy as np
import torch
from torch.utils.data import RandomSampler

from paceline.core.errors import ConfigError
from paceline.engine.data.batches import ORDERS_KEPT
from paceline.engine.data.partition_plan import PartitionPlan
from paceline.engine.torch_generator import torch_generator


class SamplerOrder:
    """Draws epoch after epoch of `sampler`, or a random order by `generator` as torch's DataLoader draws it.

    A sampler without a generator of its own draws from torch's, which is seeded by `seed` and the epoch meanwhile;
    so all workers get the same order. Raises ConfigError for a sampler without a length.
    """

    def __init__(self, data: Any, sampler: Iterable[int] | None, generator: torch.Generator | None, seed: int) -> None:
        self._of_loader = generator if sampler is None else None
        self._sampler: Any = RandomSampler(data, generator=generator) if sampler is None else sampler
        if not isinstance(self._sampler, Sized):
            raise ConfigError("a sampler without a length cannot be shared: give one that has __len__")
        self._seed, self._next = seed, 0
        self.kept = len(self._sampler)  # samples of an epoch that are trained; the rest is another one in each
        self._orders: dict[int, np.ndarray] = {}

    def __len__(self) -> int:
        """Returns the samples of an epoch that are trained."""
        return self.kept

    def of(self, epoch: int) -> np.ndarray:
        """Returns the samples of `epoch`, or of one of the last epochs, in order: int64 [n]."""
        while self._next <= epoch:
            self._orders[self._next] = self._draw(self._next)[: self.kept]
            self._orders.pop(self._next - ORDERS_KEPT, None)
            self._next += 1
        return self._orders[epoch]

    def _draw(self, epoch: int) -> np.ndarray:
        """Draws the order of the next epoch; torch's own generator is as before afterwards."""
        if self._of_loader is not None:
            return _drawn_by_a_loader(len(self._sampler), self._of_loader)
        if hasattr(self._sampler, "set_epoch"):
            self._sampler.set_epoch(epoch)
        own = getattr(self._sampler, "generator", None) is not None
        with torch_generator, torch.random.fork_rng(devices=[], enabled=not own):
            if not own:
                torch.manual_seed(random.Random(f"{self._seed}/{epoch}").getrandbits(63))
            return np.fromiter(self._sampler, np.int64)


def _drawn_by_a_loader(samples: int, generator: torch.Generator) -> np.ndarray:
    """Returns the order that a shuffling DataLoader with this generator gives to its next epoch.

    Its RandomSampler gives the same numbers one by one, as Python's; that costs 1 % of a cheap batch.
    """
    torch.empty((), dtype=torch.int64).random_(generator=generator)  # the seed of its processes
    order: np.ndarray = torch.randperm(samples, generator=generator).numpy()
    torch.randperm(samples, generator=generator)  # of which the sampler takes none
    return order


class SampledPlan(PartitionPlan):
    """Divides the order of a sampler: each worker has its places in that order."""

    def __init__(self, plan: PartitionPlan, order: SamplerOrder) -> None:
        self._plan, self._order = plan, order

    def indices(self, rank: int, epoch: int) -> np.ndarray:
        """Returns the samples of a worker's epoch, int64 [n], in the order of the sampler."""
        if self._plan.size(rank) == len(self._order):  # all of them
            return self._order.of(epoch)
        samples: np.ndarray = self._order.of(epoch)[np.sort(self._plan.indices(rank, epoch))]
        return samples

    def size(self, rank: int) -> int:
        """Returns how many samples a worker has in an epoch."""
        return self._plan.size(rank)
