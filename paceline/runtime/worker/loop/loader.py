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
    """Batches that a DataLoader makes of the indices it draws, with how many of them each has.

    `draw` gives the indices of the next batch, None after the last; a loader with processes of its own draws ahead.
    """

    def __init__(self, data: Any, settings: LoaderSettings, draw: Callable[[], list[int] | None]) -> None:
        self._draw = draw
        self._lengths: deque[int] = deque()
        self._loader = DataLoader(
            data,
            batch_sampler=_Drawn(self._drawn),
            collate_fn=settings.collate_fn,
            num_workers=settings.num_workers,
            pin_memory=settings.pin_memory,
        )

    def _drawn(self) -> Iterator[list[int]]:
        while (indices := self._draw()) is not None:
            self._lengths.append(len(indices))
            yield indices

    def __iter__(self) -> Iterator[tuple[Any, int]]:
        for batch in self._loader:
            yield batch, self._lengths.popleft()


class _Drawn:
    """In place of a batch sampler."""

    def __init__(self, drawn: Callable[[], Iterator[list[int]]]) -> None:
        self._drawn = drawn

    def __iter__(self) -> Iterator[list[int]]:
        return self._drawn()
