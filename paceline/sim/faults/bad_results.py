"""Workers whose results are NaN, as those of a broken GPU are: a gradient, or the weights after local steps.

A result is bad where it is made. All that follows is what a live worker does with such a result, and what servers do
with what it pushes. Where vectors have no numbers (`Ghost`), a bad one is a `NotFinite`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from paceline.core.effects import Compute, Computed, Train, Trained
from paceline.core.vector import Ghost
from paceline.sim.kernel.vectors import NotFinite
from paceline.sim.kernel.workload import Workload

if TYPE_CHECKING:
    from paceline.sim.driver_protocol import SimulationDriver


@dataclass(frozen=True, slots=True)
class _Broken:
    """Says how one worker is broken: `until` that time, one result in `one_in`."""

    until: float
    one_in: int


class BadResults:
    """Wraps `work`: it is the `Workload` in which some results of some workers are NaN, drawn from the seed.

    ever: ranks of those that were broken some time. always: those whose results are all bad, from some time on.
    """

    def __init__(self, sim: SimulationDriver, work: Workload) -> None:
        self._sim, self._work = sim, work
        self._random = Random(f"{sim.seed}/bad results")
        self._broken: dict[int, _Broken] = {}
        self.ever, self.always = set[int](), set[int]()
        self.made = 0

    def begin(self, rank: int, until: float, one_in: int) -> None:
        """Makes one of `one_in` results of worker `rank` bad, until virtual time `until`."""
        self._broken[rank] = _Broken(until, one_in)
        self.ever.add(rank)
        if one_in == 1 and until == math.inf:
            self.always.add(rank)

    def compute(self, rank: int, wanted: Compute, rng: Random) -> Computed:
        """Computes as the wrapped workload does; the gradient of a broken worker may be NaN."""
        done = self._work.compute(rank, wanted, rng)
        if not self._is_bad(rank):
            return done
        return Computed(self._spoiled(done.g), done.samples, done.seconds, done.data, done.unused)

    def train(self, rank: int, wanted: Train, rng: Random) -> Trained:
        """Trains as the wrapped workload does; the weights of a broken worker may be NaN afterwards."""
        done = self._work.train(rank, wanted, rng)
        if not self._is_bad(rank):
            return done
        return Trained(self._spoiled(done.x), done.samples, done.seconds, done.memory, done.data)

    def _is_bad(self, rank: int) -> bool:
        broken = self._broken.get(rank)
        return broken is not None and self._sim.now < broken.until and not self._random.randrange(broken.one_in)

    def _spoiled(self, v: Any) -> Any:
        """Returns a vector like `v` with NaN instead of its numbers."""
        self.made += 1
        return NotFinite(len(v), self.made) if isinstance(v, Ghost) else v * math.nan


def with_bad_results(sim: SimulationDriver, work: Workload) -> tuple[BadResults | None, Workload]:
    """Returns the bad results of a simulation, and the workload with them; None and `work` where there are none."""
    if not any(fault.kind == "bad-results" for fault in sim.cluster.faults):
        return None, work
    bad = BadResults(sim, work)
    return bad, bad
