"""Of the fuzzer: a run that is brought up, while processes start late, end before it trains, and join meanwhile.

One seed in three draws it. The run is one of its own, with the faults of the plan, most of which strike while it is
brought up or just after that. Processes start within some seconds of one another; workers that the run does not wait
for may come before it trains. In one run of three a party ends before that: then the run fails, and says who it was. In
one of six a party hangs: it lives and never says what the run waits for, until the deadline of that phase ends the run.
Otherwise everybody begins, and the run ends as in `stopping`.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from paceline.core.coordination.lifecycle import StopRule
from paceline.sim.checking.oracles.bring_up import HANGS, Starts
from paceline.sim.checking.oracles.end_of_run import StopWish
from paceline.sim.cluster.model import Cluster
from paceline.sim.faults.coordination.members import RunLost
from paceline.sim.fuzzing.runs import stopping
from paceline.sim.simulation import Simulation

ONE_IN = 3
"""One seed in so many draws such a run."""
HANGS_ONE_IN = 6
"""In one of so many of these runs a process hangs."""
DIES_MAX_S = 40.0
"""Until when processes of the evaluator end."""
JOINS_S = (3.0, 15.0)
"""Until when workers come that the run does not wait for: mostly before it trains, or mostly after."""


def draw(seed: int, cluster: Cluster, epoch: int) -> StopWish | None:
    """Returns how the run of `seed` is brought up and what ends it; None if it has no such run."""
    random = Random(f"fuzz/{seed}/bring-up")
    if random.randrange(ONE_IN):
        return None
    slowest_s, joins_s = random.choice((0.0, 1.0, 5.0)), random.choice(JOINS_S)
    first = random.randint(1, cluster.workers) if random.randrange(2) else cluster.workers
    workers, servers = (
        [f"{kind} {n}" for n in range(count)]
        for kind, count in (("worker", cluster.workers), ("server", cluster.servers))
    )
    at_s = {name: random.uniform(0.0, slowest_s) for name in (*workers, *servers)}
    at_s |= {name: random.uniform(0.0, joins_s) for name in workers[first:]}
    dies = () if random.randrange(3) else ((random.choice((*workers, *servers)), random.uniform(0.0, slowest_s + 2.0)),)
    rules = (StopRule(seconds=random.uniform(2.0, 25.0)), StopRule(samples=random.randint(1, epoch)), StopRule())
    late, hangs = tuple(range(first, cluster.workers)), _one_that_hangs(seed, workers[:first], servers)
    starts = replace(_evaluator(seed, slowest_s), at_s=at_s, late=late, dies=dies, hangs=hangs)
    return StopWish(random.choice(rules), starts=starts)


def _evaluator(seed: int, slowest_s: float) -> Starts:
    """Returns when the evaluator of the run starts, and when its processes end; without one in half of the runs."""
    random = Random(f"fuzz/{seed}/evaluator")
    if random.randrange(2):
        return Starts()
    dies = tuple(random.uniform(0.0, DIES_MAX_S) for _ in range(random.randrange(4)))
    return Starts(evaluator_at_s=random.uniform(0.0, slowest_s), evaluator_dies_s=dies)


def _one_that_hangs(seed: int, workers: list[str], servers: list[str]) -> tuple[str, str] | None:
    """Returns who never says what, though it lives and is heard; None in most runs."""
    random = Random(f"fuzz/{seed}/keeps silent")
    if random.randrange(HANGS_ONE_IN):
        return None
    what = random.choice(HANGS)
    return random.choice(workers if what == "Ready" else [*workers, *servers]), what


def check(sim: Simulation, wish: StopWish, calm_s: float) -> None:
    """Runs `sim`, which is brought up and ends by `wish`, until nothing is left to happen.

    calm_s: when nothing goes wrong any more.
    Raises InvariantBroken; RunLost if somebody was lost without whom the run cannot go on.
    """
    bring_up = sim.members.bring_up
    assert bring_up is not None
    try:
        stopping.check(sim, wish, calm_s)
    except RunLost as error:
        bring_up.oracle.failed(str(error), bring_up.dead, sim.now)
        raise
    bring_up.over()
