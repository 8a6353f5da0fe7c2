"""Of the fuzzer: a run in which workers are drained, as SIGTERM drains live ones, while everything else goes wrong.

One seed in three draws it, and each seed under schemes in which every worker has a model of its own: there a message
that a drained worker does not take is a part of the model. All workers but one may be drained, at drawn times, and a
server that can be lost may end just then. Where something ends the run, all may be told at nearly the same time: those
that wait for one another leave together then, and nobody may be let go before it is sure that another one stays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from paceline.core.scheme import Scheme
from paceline.sim.cluster.model import Cluster, Fault
from paceline.sim.faults.servers.recoverable_server import can_be_replaced

ONE_IN = 3
"""One seed in so many makes such a run, where workers have no model of their own."""
LAST_S = 2.0
"""Seconds before the end of the faults until which workers are drained."""
ALL_WITHIN_S = (0.0, 0.3, 3.0)
"""Seconds within which all workers are drained, where all are."""
LATE, LATE_S = (0.2, 0.5), (0.3, 2.0, 5.0)
"""How likely messages are late, and by how much at most, where workers have models of their own."""


def draw(
    seed: int, scheme: Scheme, cluster: Cluster, calm_s: float, loss: Callable[[Random], Fault], *, ends: bool
) -> Cluster | None:
    """Returns the cluster of the run of `seed`, with its drains; None without a run.

    loss: draws the loss of a server. ends: something ends the run.
    """
    random = Random(f"fuzz/{seed}/drains")
    if random.randrange(ONE_IN) and not scheme.workers_differ:
        return None
    faults = list(cluster.faults)
    for rank in random.sample(range(cluster.workers), random.randint(1, cluster.workers - 1)):
        at_s = random.uniform(0.0, calm_s - LAST_S)
        faults.append(Fault(kind="drain", at_s=at_s, workers=(rank,)))
        if can_be_replaced(scheme, cluster.servers) and random.randrange(2):
            faults.append(replace(loss(random), at_s=at_s + random.uniform(0.0, LAST_S)))
    more = Random(f"fuzz/{seed}/drains of all")
    if ends and more.randrange(2):
        faults = [*cluster.faults, *_of_all(more, cluster.workers, calm_s)]
    if scheme.workers_differ and cluster.hazards:
        late = replace(cluster.hazards, late=more.choice(LATE), late_s=more.choice(LATE_S))
        cluster = replace(cluster, hazards=late)
    return replace(cluster, faults=tuple(faults))


def _of_all(random: Random, workers: int, calm_s: float) -> list[Fault]:
    """Returns the drains of all workers, at nearly the same time."""
    at_s, within_s = random.uniform(0.0, calm_s - LAST_S - max(ALL_WITHIN_S)), random.choice(ALL_WITHIN_S)
    times = [at_s + random.uniform(0.0, within_s) for _ in range(workers)]
    return [Fault(kind="drain", at_s=at, workers=(rank,)) for rank, at in enumerate(times)]
