"""`pace.loader`: the batches of a torch DataLoader, whatever they are made of, over the samples of a worker."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderSettings:
    """What of a DataLoader the user says. samples_of: how many samples a batch counts as, by default its items."""

    collate_fn: Callable[[list[Any]], Any] | None = None
    num_workers: int = 0
    pin_memory: bool = False
    sampler: Iterable[int] | None = None
    generator: torch.Generator | None = None
    samples_of: Callable[[Any], int] | None = None


class BatchesAhead:
    """Batches that a DataLoader makes of the indices it draws.

    `draw` gives the indices of the next batch, None after the last; a loader with processes of its own draws ahead.
    """

    def __init__(self, data: Any, settings: LoaderSettings, draw: Callable[[], list[int] | None]) -> None:
        self._draw = draw
        self.lengths: deque[int] = deque()  # of the batches that the loader has not given yet
        self.batches = DataLoader(
            data,
            batch_sampler=_Drawn(self._next),
            collate_fn=settings.collate_fn,
            num_workers=settings.num_workers,
            pin_memory=settings.pin_memory,
        )

    def _next(self) -> list[int] | None:
        indices = self._draw()
        if indices is not None:
            self.lengths.append(len(indices))
        return indices


class _Drawn:
    """In place of a batch sampler."""

    def __init__(self, draw: Callable[[], list[int] | None]) -> None:
        self._draw = draw

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self._draw, None)  # a frame less for each batch than a generator
