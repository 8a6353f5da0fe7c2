"""A worker's stream of mini-batches over the samples that it draws from the queue of all workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch

from paceline.core.effects import Piece
from paceline.engine.data.batches import Indices, MapStyle, PieceStream
from paceline.engine.data.dataset import Dataset


class SampleSource(Protocol):
    """Who draws from the queue."""

    def take(self, samples: int) -> Piece | None:
        """At most so many samples of one epoch; None where none are left."""

    def extend(self, epochs: int | None, *, anew: bool = False) -> None:
        """The loop goes on for so many more epochs of all workers together; None: without end. `anew`: where these are
        over, from the one on that the run is at."""


class DealtBatches(PieceStream):
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
        super().__init__(data, batch_size, device, order)
        self._source = source

    def extend(self, epochs: int | None, *, anew: bool = False) -> None:
        self._source.extend(epochs, anew=anew)

    def _some(self, samples: int) -> Indices | None:
        piece = self._source.take(samples)
        if piece is None:
            return None
        return self._piece(*piece)
