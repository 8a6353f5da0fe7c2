"""Keeps snapshots of a model between two evaluations, to find the moment at which it first was good enough.

An evaluation takes far longer than a look at the weights. On a busy machine a run would seem to reach its target
only when the next evaluation ends; with the snapshots taken in between, the moment is known to a tenth of a second.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from paceline.engine.vectors.flat import Flat

BYTES_MAX = 256 * 2**20
"""Bytes of memory for all snapshots together; two are kept in any case."""
COUNT_MAX = 32
"""Snapshots at most: all of them may have to be evaluated at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSnapshot:
    """Holds a model as it was `at` seconds after the start, when `samples` had been trained on, as far as was known."""

    at: float
    samples: int
    weights: Flat
    buffers: Flat | None = None


class CandidateModels:
    """Holds the snapshots since the last evaluation, oldest first. When it is full, every other one is dropped."""

    def __init__(self, bytes_max: int = BYTES_MAX, count_max: int = COUNT_MAX) -> None:
        self._bytes_max, self._count_max = bytes_max, count_max
        self._held: list[ModelSnapshot] = []

    def __len__(self) -> int:
        return len(self._held)

    def add(self, snapshot: ModelSnapshot) -> None:
        """Keeps the snapshot, unless the model has not moved since the last one."""
        if self._held and torch.equal(self._held[-1].weights.value(), snapshot.weights.value()):
            return
        self._held.append(snapshot)
        room = max(2, self._bytes_max // max(1, snapshot.weights.nbytes))
        if len(self._held) > min(room, self._count_max):
            self._held = self._held[::-2][::-1]

    def turn(self) -> list[ModelSnapshot]:
        """Returns all snapshots, and begins with none."""
        held, self._held = self._held, []
        return held
