"""Of the fuzzer: a worker whose results are NaN, among all else that goes wrong.

The run is the one that the seed draws, with the same faults, made once more with such a worker in it, or with such
workers alone. Servers have the gradient check of live runs in it. What is drawn here comes from a stream of its own.

    a result is bad                     its samples wait, and are left out when another result of them is bad, too
    all results of a worker are         the worker is expelled
    all results of everybody are        the run ends: the model has diverged
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, cast

from paceline.core.coordination import control_messages as control
from paceline.core.errors import Diverged
from paceline.core.paramserver.gradient_check import GradientCheckPolicy, SliceGradientCheck
from paceline.core.scheme import Scheme
from paceline.sim.cluster.model import Cluster, Fault
from paceline.sim.kernel.vectors import ghost_norm
from paceline.sim.simulation import Simulation

if TYPE_CHECKING:
    from paceline.sim.faults.coordination.lossy_members import LossyMembers

ONE_SEED_IN = 4
"""How many seeds there are for one with bad results; its run takes as long as the first one."""
POLICY = GradientCheckPolicy()
"""The check of live runs, as it is without options."""
ENOUGH = 3 * POLICY.strikes
"""After so many strikes at one server the worker must have been expelled: a server asks for it once in `strikes`, and
asks in vain while the worker is away."""


def draw(seed: int, scheme: Scheme, cluster: Cluster, until_s: float) -> Cluster | None:
    """Returns the cluster with a worker whose results are bad, or with such workers alone; None without such a run.

    It takes a scheme whose servers check what workers push.
    """
    random = Random(f"fuzz/{seed}/bad results")
    if random.randrange(ONE_SEED_IN) or not _is_checked(scheme, cluster.servers):
        return None
    at_s = random.choice((0.0, random.uniform(0.0, until_s)))
    one_in, for_s = random.choice((1, 1, 3, 20)), random.choice((0.0, 0.0, random.uniform(1.0, until_s)))
    bad = Fault(kind="bad-results", at_s=at_s, for_s=for_s, one_in=one_in, workers=(random.randrange(cluster.workers),))
    if not random.randrange(4):
        bad = Fault(kind="bad-results", at_s=at_s, workers=tuple(range(cluster.workers)))
    return replace(cluster, faults=(*cluster.faults, bad))


def _is_checked(scheme: Scheme, servers: int) -> bool:
    """Returns True if servers of that scheme look at each contribution, and at each part of a mean.

    Not so where workers hand one another what they have computed.
    """
    return servers > 0 and not scheme.needs_peers


def gates(cluster: Cluster, made: Sequence[Simulation]) -> Callable[[int], SliceGradientCheck | None]:
    """Returns what makes the gradient check of a server: none where no results are bad, so that other runs take no
    longer.

    `made` has the simulation once that is made.
    """
    if not any(fault.kind == "bad-results" for fault in cluster.faults):
        return lambda shard: None

    def gate(shard: int) -> SliceGradientCheck | None:
        def expel(rank: int, reason: str) -> None:
            (sim,) = made
            if sim.invariants and sim.invariants.bad_results:
                sim.invariants.bad_results.expels(rank)
            cast("LossyMembers", sim.members).tell(sim.world.servers[shard], control.Unfit(rank=rank, reason=reason))

        return POLICY.gate(ghost_norm, cluster.workers, shard, lambda record: made[0].noted(record), expel)

    return gate


def go_on_until_found(sim: Simulation, within_s: float) -> None:
    """Runs on until each worker is expelled whose results are all bad, for `within_s` seconds at most.

    Raises InvariantBroken if one is not; Diverged if the model has diverged, as it must if nobody's results are finite.
    """
    assert sim.bad_results is not None
    assert sim.invariants is not None
    assert sim.invariants.bad_results is not None
    always, strikes = sim.bad_results.always, sim.invariants.bad_results.strikes
    before = strikes.copy()
    sim.run(until=sim.now + within_s, stop=lambda sim: always <= sim.members.banned)
    for (shard, rank), count in (strikes - before).items():
        if rank in always - sim.members.banned and count >= ENOUGH:
            what = f"server {shard} has rejected {count} more contributions of worker {rank}, which still takes part"
            raise sim.invariants.broken(what)
    if always - sim.members.banned == set(range(sim.cluster.workers)) - sim.members.banned:
        raise sim.invariants.broken(f"nobody's results are finite, and the run goes on after {within_s:g} s")


def has_diverged(sim: Simulation, why: Diverged) -> None:
    """Takes it that a run ends because its model has diverged. Raises `why` where no results were bad, and
    InvariantBroken if a server still heard others.
    """
    if sim.invariants is None or sim.invariants.bad_results is None:
        raise why
    sim.invariants.bad_results.diverged(str(why))
