"""Of the fuzzer: a run that shall end, by a rule or by hand, while everything goes wrong that the seed has drawn.

One seed in three draws it. The run is one of its own, with the faults of the plan. Something ends it: seconds, samples,
an accuracy, somebody's wish, or that all workers leave. It must end once, at the right count, and then be over within
BOUND_S for everybody: nobody waits for a worker that is lost, hangs, joins just then, or is told twice. A run that ends
after samples has the time in which the slowest worker alone trains them.
"""

from __future__ import annotations

from random import Random

from paceline.core.coordination.lifecycle import StopRule
from paceline.sim.checking.oracles.end_of_run import StopWish
from paceline.sim.cluster.model import Cluster
from paceline.sim.faults.parties.run_end import HANG_S
from paceline.sim.simulation import Simulation

ONE_IN = 3
"""One seed in so many draws such a run."""
BOUND_S = 400.0
"""Virtual seconds after the last fault within which a run has ended, unless its samples take longer (`ends_within_s`),
and after its end within which it is over."""
STEP_S = (0.5, 1.5)
"""The least and the most seconds that a drawn step takes on the reference device."""
STUCK_S = 40.0
"""Seconds without a step after which a worker counts as lost; far more than a drawn step and a pause take."""
LEAVE_S = (60.0, 300.0)
"""Seconds after the last fault when the workers begin to leave, where that ends the run: when who was lost has come
back, and when who hung in its first step has."""


def draw(seed: int, cluster: Cluster, epoch: int) -> StopWish | None:
    """Returns what ends the run of `seed`, or None if it has no such run. `epoch`: samples of one."""
    random = Random(f"fuzz/{seed}/stop")
    if random.randrange(ONE_IN):
        return None
    what = random.choice(("seconds", "samples", "accuracy", "by hand", "leave"))
    first = random.uniform(0.5, 25.0)
    hangs = tuple((random.randrange(cluster.workers), random.uniform(0.0, first)) for _ in range(random.randrange(2)))
    match what:
        case "seconds":
            rule = StopRule(seconds=first)
        case "samples":
            rule = StopRule(samples=random.randint(1, 2 * epoch))
        case "accuracy":
            rule = StopRule(target_accuracy=random.uniform(0.1, 0.9))
        case _:
            rule = StopRule()
    asked = tuple(sorted((first, random.uniform(first, first + 3.0)))) if what == "by hand" else ()
    accuracies = tuple((2.0 * n, min(1.0, 0.1 * n)) for n in range(1, 11)) if what == "accuracy" else ()
    return StopWish(rule, asked, accuracies, hangs, stuck_s=STUCK_S)


def check(sim: Simulation, wish: StopWish, calm_s: float) -> None:
    """Runs `sim`, which ends by `wish`, until nothing is left to happen. Raises InvariantBroken.

    calm_s: when nothing goes wrong any more; then workers that were lost come back.
    """
    assert sim.streams is not None
    assert sim.invariants is not None
    sim.run(until=calm_s)
    sim.streams.calm()
    for again in (0.0, 10.0):
        for rank in range(sim.cluster.workers):
            sim.heap.push(calm_s + again, sim.join, rank)
    check_end(sim, wish, calm_s)


def ends_within_s(sim: Simulation, wish: StopWish) -> float:
    """Returns the virtual seconds after the last fault within which `sim` must have ended by `wish`.

    All workers but one may have left for good, a step may count one sample, and, where only the first contributions
    count, only the slowest worker's interval between two updates is certain.
    """
    slowest_s = STEP_S[1] * max(sim.cluster.seconds_per_step())
    return max(BOUND_S, (wish.rule.samples or 0) * slowest_s)


def check_end(sim: Simulation, wish: StopWish, calm_s: float) -> None:
    """Runs on `sim`, in which nothing goes wrong any more since `calm_s`, to its end, and until nothing is left."""
    assert sim.invariants is not None
    if not wish.due_s and (wish.rule.samples is None or sim.leasing is None):
        for at in LEAVE_S:
            for rank in range(sim.cluster.workers):
                sim.heap.push(calm_s + at + 2.0 * rank, sim.leave, rank)
    ends = sim.members.ends
    assert ends is not None
    within_s = ends_within_s(sim, wish)
    sim.run(until=calm_s + within_s, stop=lambda sim: ends.oracle.ended is not None)
    if not ends.oracle.ended:
        raise sim.invariants.broken(f"{within_s:g} s after the last fault the run has not ended: {wish}")
    sim.run(until=sim.now + BOUND_S, stop=lambda sim: ends.oracle.over)
    if not ends.oracle.over:
        waiting = [name for name, _ in ends.oracle.unsaved()]
        still = [party.name for party in sim.world.workers if party.here]
        raise sim.invariants.broken(
            f"{BOUND_S:g} s after it ended by {ends.oracle.ended.reason} the run is not over; "
            f"training: {still}, saving: {waiting}"
        )
    sim.run(until=sim.now + BOUND_S + HANG_S)  # the process of a worker that hung may still be at its step
    if len(sim.heap):
        raise sim.invariants.broken(f"{BOUND_S:g} s after the run is over something still happens")
