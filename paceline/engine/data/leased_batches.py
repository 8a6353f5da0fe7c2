"""A worker's stream of mini-batches over the leases that it is given."""

from __future__ import annotations

import functools
from typing import Protocol

import torch

from paceline.core.effects import Data, Piece
from paceline.core.samples.lease_in_use import LeaseInUse
from paceline.core.samples.sample_leases import joined
from paceline.engine.data.batches import Indices, MapStyle, PieceStream
from paceline.engine.data.dataset import Dataset
from paceline.engine.data.partition_plan import epoch_order


class SampleLeaseSource(Protocol):
    """Who gives leases."""

    def next(self) -> Piece | None:
        """The next one; None when there will be no other."""

    @property
    def epochs(self) -> int:
        """Whole ones, of which every sample is in an update."""


class LeasedBatches(PieceStream):
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
        super().__init__(data, batch_size, device, functools.partial(epoch_order, len(data), seed))
        self._lender = lender
        self._lease = LeaseInUse()
        self._taken: list[Piece] = []
        self._behind = 0

    def go_on(self, samples: int) -> None:
        super().go_on(samples)
        self._behind = samples

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

    def _some(self, samples: int) -> Indices | None:
        if self.epochs is not None and self.epoch >= self.epochs:
            return None
        piece = self._lease.take(samples, self._lender.next)
        if piece is None:
            return None
        self._taken.append(piece)
        return self._piece(*piece)
