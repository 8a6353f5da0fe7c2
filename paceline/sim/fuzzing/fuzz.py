"""Runs in which everything that can go wrong is drawn from a seed, while all invariants watch.

    virtual time      what happens                                                      checked
    0 to CALM_S       hazards, and up to 8 faults (12 where servers are lost)           safety, at every event
    from CALM_S       no more hazards; every worker joins again (`go_on`)               each makes FURTHER_STEPS
    then              half of the workers leave or crash (`end`)                        the others make STEPS_ALONE
    at last           the others leave, one after the other, until nothing is left      nothing is lost or counted twice

A seed draws a scheme, a cluster, how bad its links are, and the faults. The same seed is the same run, event by
event, on every machine. `paceline fuzz` and the fuzz tests call `draw` and `play`.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from paceline.core.errors import Diverged
from paceline.core.samples.sample_leases import Leases
from paceline.core.scheme import Scheme
from paceline.core.trace import Record
from paceline.core.vector import Ghost
from paceline.sim.checking.oracles.end_of_run import StopWish
from paceline.sim.cluster.model import LASTING, SERVERS_KEEP, Cluster, Fault, Hazards, uniform
from paceline.sim.faults.coordination.members import RunLost
from paceline.sim.faults.servers.recoverable_server import can_be_replaced
from paceline.sim.fuzzing.runs import (
    bad_results,
    bring_up,
    clocks,
    drains,
    lying_workers,
    server_losses,
    shared_hosts,
    stalls,
    stopping,
    upgrades,
)
from paceline.sim.kernel.workload import LocalSteps
from paceline.sim.simulation import Simulation

CALM_S = 20.0
"""From here on nothing goes wrong; a step takes about a second."""
FURTHER_STEPS = 8
"""Steps that each worker must make then, within BOUND_S virtual seconds."""
BOUND_S = 400.0
"""Virtual seconds within which the liveness checks must come true; far more than any scheme needs."""
STEPS_ALONE = 3
"""Steps that the remaining workers must make when the others have left."""
CRASH_AT_LAST = 0.5
"""How likely the first of these is to crash; all others leave."""
DIES_LEAVING = 0.5
"""How likely one of those who leave at last crashes meanwhile."""
DIES_WITHIN_S = 3.0
"""Within how many seconds after all were asked to leave."""
LOOK_S = 0.03
"""Seconds between two looks whether it has begun to."""
LENGTH = 12
"""Parameters of the model, which has no content: only sizes and order matter here."""
SUSPECT_AFTER_S = 3.0
"""Seconds of silence after which a party is declared lost: a few steps, so that faults are both noticed and missed."""

OF_WORKERS = ("crash", "restart", "leave", "pause", "mute", "deaf", "reset", "clock-step", "clog")
"""Faults that hit a worker's host."""
OF_SERVERS = ("crash", "pause", "mute", "deaf", "reset", "clock-step", "disk-full", "torn-write", "clog")
"""Faults that hit a server's host."""

RUNS = ("faults", "stall", "liar", "stop", "clock", "bring-up", "upgrade", "servers", "drain", "hosts", "bad-results")
"""The runs that may belong to a plan: the drawn faults, a slow worker without faults, the faults with a liar, the
faults in a run that is to end, in one whose clocks drift and jump, in one that is brought up, in one in which processes
of other versions come, in one of several servers that are lost while others are, in one whose workers are
drained, in one in which workers and servers share hosts, and in one with workers whose results are NaN."""


@dataclass(frozen=True)
class FuzzPlan:
    """Holds the run that a seed stands for: scheme, cluster with faults and hazards, and batch sizes. `str`
    prints it."""

    seed: int
    scheme: Scheme
    cluster: Cluster
    samples: tuple[int, ...]  # in a batch, by rank
    leased: tuple[int, int] = (60, 7)  # samples of an epoch and of a lease, where samples are leased
    runs: tuple[str, ...] = RUNS  # those to make

    def __str__(self) -> str:
        faults = " ".join(f"{f.kind}@{f.at_s:.1f}" for f in self.cluster.faults)
        parties = f"{self.cluster.workers} workers, {self.cluster.servers} servers"
        parameters = " ".join(f"{name}={value}" for name, value in self.scheme.parameters().items())
        return f"{self.scheme.name} ({parameters}), {parties}; {self.cluster.hazards}; {faults}"


@dataclass(frozen=True)
class FuzzOutcome:
    """Holds the result of a fuzzed run. `faults`: counts by kind. `digest`: of the trace, if asked for."""

    events: int
    seconds: float
    faults: Counter[str]
    digest: str


def draw(seed: int, schemes: Sequence[Scheme]) -> FuzzPlan:
    """Returns the plan of `seed` for one of `schemes`. Those are tried in a drawn order until one fits the cluster."""
    random = Random(f"fuzz/{seed}")
    workers, servers = random.randint(2, 6), random.randint(0, 3)
    factors = tuple(random.uniform(0.5, 3.0) for _ in range(workers))
    cluster = uniform(workers, servers, latency_s=random.choice((1e-4, 0.01, 0.1)), factors=factors, skew_s=5.0)
    cluster = replace(
        cluster, faults=_faults(random, workers, servers), hazards=_hazards(random), suspect_after_s=SUSPECT_AFTER_S
    )
    fitting = [scheme for scheme in schemes if _fits(scheme, cluster)]
    if not fitting:
        cluster = replace(cluster, hosts=(*cluster.hosts, *uniform(1, 1).hosts[1:]))
        fitting = [scheme for scheme in schemes if _fits(scheme, cluster)]
    scheme, batches = random.choice(fitting), tuple(random.randint(1, 9) for _ in range(workers))
    lengths = Random(f"fuzz/{seed}/leases")
    plan = FuzzPlan(seed, scheme, cluster, batches, (lengths.randint(20, 200), lengths.randint(1, 12)))
    return _where_servers_are_lost(plan)


def _faults(random: Random, workers: int, servers: int) -> tuple[Fault, ...]:
    return tuple(_fault(random, workers, servers) for _ in range(random.randint(0, 8)))


def faults_of(random: Random, cluster: Cluster) -> tuple[Fault, ...]:
    """Returns drawn faults, up to 8, for a run of that cluster."""
    return _faults(random, cluster.workers, cluster.servers)


def _fits(scheme: Scheme, cluster: Cluster) -> bool:
    """Returns True if the scheme runs on that cluster."""
    try:
        scheme.check(cluster.workers, cluster.servers)
    except ValueError:
        return False
    return True


def _hazards(random: Random) -> Hazards:
    """Returns drawn probabilities of loss, repetition and delay; each may be 0, so that single hazards occur alone."""
    lost, repeated, late = (random.choice((0.0, 0.02, 0.2)) for _ in range(3))
    return Hazards(lost=lost, repeated=repeated, late=late, late_s=random.choice((0.01, 0.3, 2.0)))


def _where_servers_are_lost(plan: FuzzPlan) -> FuzzPlan:
    """Returns the plan with servers that lose their state, if its scheme can go on without a server.

    What the plan had drawn stays the same, because this draws from a stream of its own: older seeds keep their runs.
    """
    random, cluster = Random(f"fuzz/{plan.seed}/lost"), plan.cluster
    keep = random.choice(SERVERS_KEEP)
    assert cluster.hazards is not None
    hazards = replace(cluster.hazards, servers_keep=keep, snapshot_every_s=random.choice((1.0, 5.0, 30.0)))
    if keep == "all" or not can_be_replaced(plan.scheme, cluster.servers):
        return plan
    losses = [_fault(random, cluster.workers, cluster.servers, kinds=("crash",)) for _ in range(random.randint(0, 4))]
    faults = tuple(sorted((*cluster.faults, *losses), key=lambda fault: fault.at_s))
    return replace(plan, cluster=replace(cluster, hazards=hazards, faults=faults))


def _fault(random: Random, workers: int, servers: int, kinds: Sequence[str] = ()) -> Fault:
    """Returns a drawn fault. `kinds`: draw one of these, and for a server."""
    on_server = bool(kinds) or (servers > 0 and random.random() < 0.35)
    kind = random.choice(kinds or (OF_SERVERS if on_server else OF_WORKERS))
    host = f"servers-{random.randrange(servers)}" if servers > 1 else "servers"
    whom: dict[str, Any] = {"hosts": (host if on_server else f"worker-{random.randrange(workers)}",)}
    for_s = random.choice((0.3, 1.0, 2 * SUSPECT_AFTER_S))
    at_s = random.uniform(0.0, CALM_S - for_s)
    extra_s = random.uniform(0.1, 3600.0)
    if kind not in ("crash", *LASTING):
        for_s = 0.0
    return Fault(kind=kind, at_s=at_s, for_s=for_s, extra_s=extra_s if kind == "clock-step" else 0.0, **whom)


def play(plan: FuzzPlan, trace: Callable[[Record], None] | None = None, *, digest: bool = True) -> FuzzOutcome:
    """Carries `plan` out, and returns its outcome. Raises InvariantBroken.

    The runs of RUNS may belong to a plan. `trace` gets the records of all but the second. The digest covers them too,
    so two machines can be compared; without it and `trace` no record is made that no invariant reads, which saves a
    tenth of the time.
    """
    written = hashlib.sha256()

    def hashed(record: Record) -> None:
        written.update(repr(record).encode())
        if trace:
            trace(record)

    write = hashed if digest else trace

    events, now, faults = 0, 0.0, Counter(fault.kind for fault in plan.cluster.faults)
    if "faults" in plan.runs:
        sim = simulation(plan, write)
        faults["run ended"] += bool(go_on_to_the_end(sim))
        assert sim.streams is not None
        faults += sim.streams.injected
        events, now = sim.events, sim.now
    if "stall" in plan.runs:
        stalls.check(plan.seed, plan.scheme, plan.cluster, plan.samples)
    if "stop" in plan.runs and (wish := stopping.draw(plan.seed, plan.cluster, plan.leased[0])):
        faults["run stopped"] += not go_to_its_end(simulation(plan, write, wish), wish)
    if wish := clocks_of(plan):
        faults["clocks jump"] += len(wish.clock.jumps)
        go_to_its_end(simulation(plan, write, wish), wish, clocks.check)
    if "bring-up" in plan.runs and (wish := bring_up.draw(plan.seed, plan.cluster, plan.leased[0])):
        faults["run brought up"] += not go_to_its_end(simulation(plan, write, wish), wish, bring_up.check)
    if wish := versions_of(plan):
        faults["versions differ"] += 1
        go_to_its_end(simulation(plan, write, wish), wish, upgrades.check)
    if losing := with_server_losses(plan):
        servers = simulation(losing, write)
        go_on_to_the_end(servers, server_losses.losing(servers, CALM_S))
        assert servers.streams is not None
        faults["server lost"] += servers.streams.injected["server lost"]
    if with_liar := with_a_liar(plan):
        liar = simulation(with_liar, write)
        go_on_to_the_end(liar)
        assert liar.lies is not None
        faults["lie"] += liar.lies.told.total()
    if draining := with_drains(plan):
        outcome = play(draining, trace, digest=digest)
        faults["drain"] += outcome.faults["drain"]
        written.update(outcome.digest.encode())
    if sharing := with_shared_hosts(plan):
        outcome = play(sharing, trace, digest=digest)
        faults["hosts shared"] += 1
        written.update(outcome.digest.encode())
    if with_nan := with_bad_results(plan):
        go_on_to_the_end(broken := simulation(with_nan, write))
        assert broken.bad_results is not None
        faults["bad result"] += broken.bad_results.made
    if "faults" in plan.runs:
        written.update(f"{sim.events} {sim.now!r} {sim.steps}".encode())
    return FuzzOutcome(events, now, faults, written.hexdigest()[:16] if digest else "")


def clocks_of(plan: FuzzPlan) -> StopWish | None:
    """Returns what ends the run of a plan whose clocks drift and jump; None without such a run."""
    return clocks.draw(plan.seed, plan.cluster, plan.leased[0], CALM_S) if "clock" in plan.runs else None


def versions_of(plan: FuzzPlan) -> StopWish | None:
    """Returns what ends the run of a plan in which other versions come; None without such a run."""
    return upgrades.draw(plan.seed, plan.cluster, plan.leased[0], CALM_S) if "upgrade" in plan.runs else None


def go_to_its_end(
    sim: Simulation, wish: StopWish, check: Callable[[Simulation, StopWish, float], None] = stopping.check
) -> str:
    """Runs a simulation that is to end by `wish`, as `check` does; returns why it failed before, or ""."""
    try:
        check(sim, wish, CALM_S)
    except RunLost as error:  # before there was a snapshot, or the last worker that could have the model
        return str(error)
    return ""


def with_a_liar(plan: FuzzPlan) -> FuzzPlan | None:
    """Returns the plan of the run with a liar, who is one fault more, or None if nobody lies under this seed."""
    if "liar" not in plan.runs:
        return None
    lying = lying_workers.draw(plan.seed, plan.scheme, plan.cluster, CALM_S)
    return replace(plan, cluster=lying, runs=("faults",)) if lying else None


def with_server_losses(plan: FuzzPlan) -> FuzzPlan | None:
    """Returns the plan of the run that loses servers when it hurts most, or None if this seed has none."""
    cluster = server_losses.draw(plan.seed, plan.scheme, plan.cluster) if "servers" in plan.runs else None
    return replace(plan, cluster=cluster, runs=("servers",)) if cluster else None


def with_shared_hosts(plan: FuzzPlan) -> FuzzPlan | None:
    """Returns the plan of the run in which workers and servers share hosts, or None if this seed has none."""
    cluster = shared_hosts.draw(plan.seed, plan.cluster, CALM_S) if "hosts" in plan.runs else None
    return replace(plan, cluster=cluster, runs=("faults",)) if cluster else None


def with_bad_results(plan: FuzzPlan) -> FuzzPlan | None:
    """Returns the plan of the run with workers whose results are NaN, or None if this seed has none."""
    if "bad-results" not in plan.runs:
        return None
    cluster = bad_results.draw(plan.seed, plan.scheme, plan.cluster, CALM_S)
    return replace(plan, cluster=cluster, runs=("faults",)) if cluster else None


def with_drains(plan: FuzzPlan) -> FuzzPlan | None:
    """Returns the plan of the run whose workers are drained, or None if this seed has none. Where the seed draws what
    ends a run, this one ends by it, too."""
    if "drain" not in plan.runs:
        return None
    cluster, ends = plan.cluster, stopping.draw(plan.seed, plan.cluster, plan.leased[0]) is not None

    def loss(random: Random) -> Fault:
        return _fault(random, cluster.workers, cluster.servers, kinds=("crash",))

    draining = drains.draw(plan.seed, plan.scheme, cluster, CALM_S, loss, ends=ends)
    return replace(plan, cluster=draining, runs=("stop" if ends else "faults",)) if draining else None


def go_on_to_the_end(sim: Simulation, stop: Callable[[Simulation], bool] | None = None) -> str:
    """Runs all of a plan's simulation; returns why it ended early, or "". `stop` is called after each event."""
    with lying_workers.nobody_spins(sim):
        try:
            sim.run(until=CALM_S, stop=stop)
            go_on(sim)
            if sim.bad_results:
                bad_results.go_on_until_found(sim, BOUND_S)
            end(sim)
        except RunLost as error:  # before there was a snapshot; a run that says so has kept its word
            return str(error)
        except Diverged as error:
            bad_results.has_diverged(sim, error)
            return str(error)
    return ""


def simulation(
    plan: FuzzPlan,
    trace: Callable[[Record], None] | None = None,
    wish: StopWish | None = None,
    tables: dict[str, Any] | None = None,
) -> Simulation:
    """Returns the simulation of `plan`, before its first event. Steps take `stopping.STEP_S` on the reference device.

    wish, tables: what ends it, and the tables of the servers that it is resumed with.
    """
    work = LocalSteps(lambda rank, rng: rng.uniform(*stopping.STEP_S), samples=plan.samples.__getitem__)
    leases = Leases(*plan.leased)
    made: list[Simulation] = []
    sim = Simulation(
        plan.scheme,
        Ghost(LENGTH),
        work,
        cluster=plan.cluster,
        seed=plan.seed,
        trace=trace,
        leases=leases,
        batch_samples=max(plan.samples),
        wish=wish,
        tables=tables,
        gate=bad_results.gates(plan.cluster, made),
    )
    made.append(sim)
    return sim


def go_on(sim: Simulation) -> None:
    """Ends the hazards, lets every worker join (again), and checks that each makes FURTHER_STEPS within BOUND_S.

    Workers that were expelled or have lied are left out.
    """
    assert sim.streams is not None
    assert sim.invariants is not None
    sim.streams.calm()
    began, goal = sim.now, {}
    without = set(range(sim.cluster.workers))  # a goal, as they have not come yet

    def all_went_on(sim: Simulation) -> bool:  # is asked after every event
        for rank in tuple(without):
            if sim.world.workers[rank].here:
                goal[rank] = sim.steps[rank] + FURTHER_STEPS
                without.remove(rank)
        if sim.now <= began + 5 * SUSPECT_AFTER_S:
            return False
        return sim.all_but_the_wrongful(lambda rank: rank in goal and sim.steps[rank] >= goal[rank])

    for rank in range(sim.cluster.workers):
        sim.members.stays(rank)
    for at in (0.0, 2 * SUSPECT_AFTER_S, 4 * SUSPECT_AFTER_S):  # one that is about to be declared dead is here still
        for rank in range(sim.cluster.workers):
            sim.heap.push(began + at, sim.join, rank)
    sim.run(until=began + BOUND_S, stop=all_went_on)
    if not all_went_on(sim):
        behind = [rank for rank in sorted(sim.rightful()) if rank not in goal or sim.steps[rank] < goal[rank]]
        waiting = "; ".join(sim.invariants.state_of(rank) for rank in behind)
        raise sim.invariants.broken(f"{BOUND_S:g} s after the last fault not all have gone on: {waiting}")


def end(sim: Simulation) -> None:
    """Lets half of the workers go, checks that the others go on, and lets these leave until nothing is left to happen.

    The first to go may crash (CRASH_AT_LAST), and one of them while it leaves (DIES_LEAVING). Raises InvariantBroken
    if an event is left or samples or mass are missing.
    """
    assert sim.invariants is not None
    random = Random(f"fuzz/{sim.seed}/end")
    ranks = random.sample(range(sim.cluster.workers), sim.cluster.workers)
    first, others = ranks[: len(ranks) // 2], ranks[len(ranks) // 2 :]
    go = sim.crash if random.random() < CRASH_AT_LAST else sim.leave
    for number, rank in enumerate(first):
        sim.heap.push(sim.now + 2.0 * number, go if number == 0 else sim.leave, rank)
    gone = sim.now + 2.0 * len(first)
    dying = Random(f"fuzz/{sim.seed}/dies leaving")
    if first and dying.random() < DIES_LEAVING:
        number, gone = dying.randrange(len(first)), gone + DIES_WITHIN_S
        sim.heap.push(sim.now + 2.0 * number, _crash_as_it_leaves, sim, first[number], gone)
    _without_those_who_went(sim, others, gone + SUSPECT_AFTER_S)
    for number, rank in enumerate(others):
        sim.heap.push(sim.now + 2.0 * number, sim.leave, rank)
    sim.run(until=sim.now + BOUND_S)
    if len(sim.heap):
        raise sim.invariants.broken(f"{BOUND_S:g} s after all were asked to leave something still happens")
    sim.invariants.all_is_accounted_for()


def _crash_as_it_leaves(sim: Simulation, rank: int, until: float) -> None:
    """Crashes a worker just when it has begun to leave, at its next step, or at `until`."""
    if sim.world.workers[rank].here and sim.now < until:
        sim.heap.push(sim.now + LOOK_S, _crash_as_it_leaves, sim, rank, until)
    else:
        sim.crash(rank)


def _without_those_who_went(sim: Simulation, others: Sequence[int], since: float) -> None:
    """Checks that `others` make STEPS_ALONE each within BOUND_S, counted from the time by which all know who has
    gone."""
    assert sim.invariants is not None
    sim.run(until=since)
    goal = {rank: sim.steps[rank] + STEPS_ALONE for rank in others}
    sim.run(
        until=since + BOUND_S,
        stop=lambda sim: sim.all_but_the_wrongful(lambda rank: sim.steps[rank] >= goal.get(rank, 0)),
    )
    behind = [rank for rank in sorted(sim.rightful(others)) if sim.steps[rank] < goal[rank]]
    if behind:
        waiting = "; ".join(sim.invariants.state_of(rank) for rank in behind)
        raise sim.invariants.broken(f"{BOUND_S:g} s after others went not all have gone on: {waiting}")
