"""Of the fuzzer: a run whose clocks differ, drift and jump ahead, while everything goes wrong that the seed has drawn.

One seed in four draws it. The coordinator's clock gains or loses, and jumps up to three times, by less than the silence
after which a party is lost or by up to an hour. Those of the other parties differ and drift, and the faults make some
of them jump (`clock-step`). The run ends as in `stopping`, and all that holds there holds here; a run that is to end
after so many seconds ends when that clock has counted them. Nobody is lost as silent who was heard
(`sim/checking/oracles/silence.py`).

No clock runs back: live code reads monotonic clocks.
"""

from __future__ import annotations

from random import Random

from paceline.core.coordination.lifecycle import StopRule
from paceline.sim.checking.oracles.end_of_run import StopWish
from paceline.sim.cluster.model import Cluster
from paceline.sim.fuzzing.runs import stopping
from paceline.sim.kernel.host_clock import HostClock
from paceline.sim.simulation import Simulation

ONE_IN = 4
"""One seed in so many draws such a run."""
DRIFTS = (0.0, 1e-4, -1e-4, 0.02, -0.02)
"""Seconds that a clock gains in a second. Quartz gains about 1e-5; 0.02 is a clock that is being set right."""
DRIFT_EVERY_S = 0.5
"""Virtual seconds after which the clocks of workers and servers have gained what they gain."""


def draw(seed: int, cluster: Cluster, epoch: int, calm_s: float) -> StopWish | None:
    """Returns what ends the run of `seed`, with the coordinator's clock; None if it has no such run."""
    random = Random(f"fuzz/{seed}/clock")
    if random.randrange(ONE_IN):
        return None
    shorter, longer = cluster.suspect_after_s, 3600.0
    jumps = [
        (random.uniform(0.0, calm_s), random.uniform(0.0, random.choice((shorter, longer))))
        for _ in range(random.randrange(4))
    ]
    clock = HostClock(random.choice(DRIFTS), tuple(sorted(jumps)))
    seconds = StopRule(seconds=clock.reads(random.uniform(0.5, calm_s + 5.0)))
    rule = random.choice((seconds, StopRule(samples=random.randint(1, 2 * epoch)), StopRule()))
    return StopWish(rule, clock=clock)


def drift(sim: Simulation, until_s: float) -> None:
    """Lets the clocks of all workers and servers of `sim` drift until `until_s`, each by a rate of its own."""
    random = Random(f"{sim.seed}/drift")
    rates = {party.name: random.choice(DRIFTS) for party in (*sim.world.workers, *sim.world.others)}

    def gain() -> None:
        for party in (*sim.world.workers, *sim.world.others):
            party.skew_s += rates[party.name] * DRIFT_EVERY_S
        if sim.now < until_s:
            sim.heap.push(sim.now + DRIFT_EVERY_S, gain)

    sim.heap.push(DRIFT_EVERY_S, gain)


def check(sim: Simulation, wish: StopWish, calm_s: float) -> None:
    """Runs `sim`, which ends by `wish`, until nothing is left to happen. Raises InvariantBroken.

    calm_s: when nothing goes wrong any more.
    """
    drift(sim, calm_s)
    stopping.check(sim, wish, calm_s)
