"""A worker's stream of mini-batches over the samples that it draws from the queue of all workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from paceline.core.effects import Piece
from paceline.engine.data.batches import BatchStream, MapStyle
from paceline.engine.data.dataset import Dataset

ORDERS = 2
"""Epochs whose order is kept: samples of two follow one another at the turn, and after a loss."""


class SampleSource(Protocol):
    """Who draws from the queue."""

    def take(self, samples: int) -> Piece | None:
        """At most so many samples of one epoch; None where none are left."""

    def extend(self, epochs: int | None) -> None:
        """The loop goes on for so many more epochs of all workers together; None: without end."""


class DealtBatches(BatchStream):
    """Iterator of (x [b, ...], y [b]) over what `source` gives, on `device`; b is `batch_size` but where that ends."""

    epoch = 0

    def __init__(
        self,
        data: Dataset | MapStyle,
        source: SampleSource,
        batch_size: int,
        *,
        order: Callable[[int], np.ndarray],
        device: torch.device | str = "cpu",
    ) -> None:
        """`order`: of an epoch, the same on every worker."""
        super().__init__(data, batch_size, device)
        self._source, self._order_of = source, order
        self._orders: dict[int, Tensor] = {}

    def extend(self, epochs: int | None) -> None:
        self._source.extend(epochs)

    def go_on(self, samples: int) -> None:
        """So many were handed out by earlier incarnations of this worker; to be called before any is."""
        self.samples = samples

    def skip(self, batches: int) -> None:
        """The same, of so many mini-batches."""
        self.go_on(batches * self.batch_size)

    def _some(self, samples: int) -> Tensor | None:
        piece = self._source.take(samples)
        if piece is None:
            return None
        epoch, start, stop = piece
        self.samples += stop - start
        return self._order(epoch)[start:stop]

    def _order(self, epoch: int) -> Tensor:
        if epoch not in self._orders:
            while len(self._orders) >= ORDERS:
                del self._orders[min(self._orders)]
            self._orders[epoch] = self._placed(self._order_of(epoch))
        return self._orders[epoch]
