"""How far ahead of the slowest worker each one is when it starts a step."""

from __future__ import annotations

from random import Random
from typing import Any

from paceline.core.effects import Compute, Computed
from paceline.sim import LocalSteps, Simulation


class Watched(LocalSteps):
    """Notes how far ahead of the slowest each worker is whenever it starts a step."""

    sim: Simulation

    def __init__(self, seconds: Any) -> None:
        super().__init__(seconds)
        self.ahead: list[int] = []

    def compute(self, rank: int, wanted: Compute, rng: Random) -> Computed:
        for shard in range(2):
            clocks = self.sim.server(shard).clocks
            self.ahead.append(clocks[rank] - clocks.low)
        return super().compute(rank, wanted, rng)
