"""Of the fuzzer: a run in whose middle processes of another version come, while everything goes wrong that is drawn.

One seed in three draws it. Another version is installed on some hosts, and put right later or never. The processes
there end when that is done, and some others too; workers that come late may have it as well. A supervisor starts them
again as that of a live run does (`paceline.core.supervisor`), so restarts keep bringing the version of their host. The
run goes on without who is refused: nobody waits for it, its leases are given to others, and it says why. When the right
version comes, it enters. The run ends as in `stopping`, and all that holds there holds here.
"""

from __future__ import annotations

import math
from random import Random

from paceline.core.coordination.lifecycle import StopRule
from paceline.sim.checking.oracles.end_of_run import StopWish
from paceline.sim.checking.oracles.upgrades import OTHERS, Upgrades
from paceline.sim.cluster.model import Cluster
from paceline.sim.faults.coordination.members import RunLost
from paceline.sim.fuzzing.runs import stopping
from paceline.sim.simulation import Simulation

ONE_IN = 3
"""One seed in so many draws such a run."""
RESTARTS = (3, 3, 3, 0, 1, 10)
BACK_S = 100.0
"""Virtual seconds after the last fault in which everybody comes back whose host has the right version: three times the
longest pause before a restart."""


def draw(seed: int, cluster: Cluster, epoch: int, calm_s: float) -> StopWish | None:
    """Returns what ends the run of `seed`, and its versions; None if it has no such run. `calm_s`: when faults end.

    Worker 0 stays as it is, so that the run rarely loses all workers at once.
    """
    random = Random(f"fuzz/{seed}/upgrade")
    if random.randrange(ONE_IN):
        return None
    workers = [f"worker {rank}" for rank in range(1, cluster.workers)]
    servers = [f"server {shard}" for shard in range(cluster.servers)]
    names = [*workers, *servers]
    upgraded = random.sample(names, random.randint(1, len(names)))
    other: dict[str, tuple[int, float, float]] = {}
    ends: list[tuple[str, float]] = []
    for name in upgraded:
        since = random.uniform(0.0, 0.5 * calm_s)
        until = math.inf if random.randrange(4) == 0 else random.uniform(since + 2.0, calm_s)
        other[name] = random.choice(OTHERS), since, until
        ends.append((name, random.uniform(since, min(until, since + 4.0))))
    for _ in range(random.randrange(4)):
        ends.append((random.choice(names), random.uniform(0.0, calm_s)))
    late = random.sample(range(1, cluster.workers), random.randrange(cluster.workers)) if random.randrange(2) else []
    upgrades = Upgrades(
        restarts=random.choice(RESTARTS),
        other=other,
        ends=tuple(sorted(ends, key=lambda end: end[1])),
        late=tuple((rank, random.uniform(0.5, calm_s)) for rank in sorted(late)),
        silent=random.choice((0.0, 0.0, 0.0, 0.3, 1.0)),
        kills=bool(random.randrange(2)),
    )
    rules = (StopRule(seconds=random.uniform(2.0, calm_s + BACK_S)), StopRule(samples=random.randint(1, 4 * epoch)))
    return StopWish(random.choice((*rules, StopRule(), StopRule())), upgrades=upgrades)


def check(sim: Simulation, wish: StopWish, calm_s: float) -> None:
    """Runs `sim`, which has `wish.upgrades` and ends by `wish`, until nothing is left to happen.

    calm_s: when nothing goes wrong any more; who was lost comes back as the supervisor says.
    Raises InvariantBroken; RunLost if somebody was lost without whom the run cannot go on.
    """
    supervisor = sim.members.supervisor
    assert sim.streams is not None
    assert supervisor is not None
    try:
        sim.run(until=calm_s)
        sim.streams.calm()
        sim.run(until=calm_s + BACK_S)
        supervisor.check_all_are_back(calm_s)
        stopping.check_end(sim, wish, calm_s + BACK_S)
    except RunLost as error:
        supervisor.oracle.failed(str(error))
        raise
