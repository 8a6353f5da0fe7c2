"""A worker's stream of mini-batches over the leases that it is given."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from paceline.core.effects import Data, Piece
from paceline.core.samples.sample_leases import joined
from paceline.engine.data.batches import BatchStream, MapStyle
from paceline.engine.data.dataset import Dataset
from paceline.engine.data.partition_plan import epoch_order

ORDERS = 2
"""Epochs whose order is kept: leases of two follow one another at the turn, and after a loss."""


class SampleLeaseSource(Protocol):
    """Who gives leases."""

    def next(self) -> Piece | None:
        """The next one; None when there will be no other."""

    @property
    def epochs(self) -> int:
        """Whole ones, of which every sample is in an update."""


class LeasedBatches(BatchStream):
    """Iterator of (x [b, ...], y [b]) over what `lender` gives, on `device`.

    b is `batch_size` but where a lease ends before. `taken` are the samples of the batches since it was emptied.
    """

    def __init__(
        self,
        data: Dataset | MapStyle,
        lender: SampleLeaseSource,
        batch_size: int,
        *,
        seed: int,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(data, batch_size, device)
        self._lender, self._seed = lender, seed
        self._lease: Piece | None = None
        self._taken: list[Piece] = []
        self._orders: dict[int, Tensor] = {}
        self._behind = 0

    def go_on(self, samples: int) -> None:
        """So many were handed out by earlier incarnations of this worker; to be called before any is."""
        self.samples = self._behind = samples

    def skip(self, batches: int) -> None:
        """The same, of so many mini-batches."""
        self.go_on(batches * self.batch_size)

    @property
    def handed(self) -> int:
        """Returns the number of samples of the leases of this incarnation."""
        return self.samples - self._behind

    @property
    def epoch(self) -> int:  # type: ignore[override]
        """Passes of all workers together that are finished."""
        return self._lender.epochs

    @property
    def taken(self) -> Data:  # type: ignore[override]
        return joined(self._taken)

    def forget_taken(self) -> None:
        self._taken.clear()

    def _some(self, samples: int) -> Tensor | None:
        if self.epochs is not None and self.epoch >= self.epochs:
            return None
        self._lease = self._lease or self._lender.next()
        if self._lease is None:
            return None
        epoch, start, end = self._lease
        stop = min(end, start + samples)
        self._lease = (epoch, stop, end) if stop < end else None
        self._taken.append((epoch, start, stop))
        self.samples += stop - start
        return self._order(epoch)[start:stop]

    def _order(self, epoch: int) -> Tensor:
        if epoch not in self._orders:
            while len(self._orders) >= ORDERS:
                del self._orders[min(self._orders)]
            self._orders[epoch] = self._placed(epoch_order(len(self.data), self._seed, epoch))
        return self._orders[epoch]
