"""Loses the leader of a simulated run, and resumes the run from what lies on its disk.

    a run begins            the first with the model, each later one from the newest checkpoint on the disk
    it trains               with the faults of its plan; every complete snapshot of the servers is saved as a checkpoint
    the leader is lost      at a drawn moment, or before a drawn call of its disk: every process of the run ends
    its host goes down      in some seeds; then what was not synced is gone, but for a drawn part
    the last run            goes on to its end, with faults of its own

A leader is lost once or twice. What must hold (`promises` in `docs/fuzzing.md`):

    on resuming     the checkpoint is the newest whose save was reported, or the one that was being saved
    on resuming     it has the tables of the first server at that capture, and just the leased samples in its model
    until the end   all that holds of any run; of leased samples each counts once, those before the loss included
    at the end      the last run ends: at its number of samples, or when all have left

Capture, choice of the tables, files and what servers and workers resume with are the code of live runs. That of weights
and optimizers is not simulated, and each worker begins with an empty memory.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, Protocol

from paceline.checkpoint.folder_store import FolderStore
from paceline.core.coordination.lifecycle import StopRule
from paceline.core.effects import Data
from paceline.core.fault_tolerance.checkpoints import Tables, kept_tables, resumed_tables
from paceline.core.fault_tolerance.replication import SliceState
from paceline.core.paramserver.gated_worker import ClockedWorker
from paceline.core.trace import Record
from paceline.sim.checking.invariants import InvariantBroken
from paceline.sim.checking.oracles.contributions import ShardRecount
from paceline.sim.checking.oracles.end_of_run import StopWish
from paceline.sim.cluster.model import Cluster, Fault
from paceline.sim.faults.coordination.members import RunLost
from paceline.sim.faults.servers.recoverable_server import can_be_replaced
from paceline.sim.faults.servers.snapshots import recount_in
from paceline.sim.fuzzing.fuzz import CALM_S, FuzzPlan, faults_of, go_on_to_the_end, go_to_its_end, simulation
from paceline.sim.kernel.virtual_disk import DiskFaults, PowerCut, VirtualDisk
from paceline.sim.simulation import Simulation

ROOT = Path("/run/checkpoints")
ONE_IN = 3
"""One seed in so many draws such a run, of those whose servers can be captured."""
TOGETHER_S = 6.0
"""Seconds within which several servers are lost: a loss is noticed after half of that, and restored soon after."""
GOAL_MAX = 60
"""Samples that a single slow worker trains before `stopping.BOUND_S` is over."""
KEPT = 2
CALLS_MAX = 150
"""Calls of the disk before one of which it may all end; some ten of them are one checkpoint."""


@dataclass(frozen=True, slots=True)
class LeaderLoss:
    """Says when one leader is lost: at `at_s` of its run, or before call `stops_at` of its disk."""

    at_s: float
    stops_at: float
    cuts_power: bool


@dataclass(frozen=True, slots=True)
class LeaderPlan:
    """Holds what a seed draws: a plan for each run, the losses between them, and whether the last one has a goal.

    goal: samples that the last run trains beyond those in its checkpoint; 0 if it runs until all have left.
    """

    plans: tuple[FuzzPlan, ...]
    losses: tuple[LeaderLoss, ...]
    goal: int

    @property
    def seed(self) -> int:
        """Returns the seed of all its runs."""
        return self.plans[0].seed

    def __str__(self) -> str:
        lost = "; ".join(
            f"at {loss.at_s:.1f} s or disk call {loss.stops_at}, {'power cut' if loss.cuts_power else 'kill'}"
            for loss in self.losses
        )
        return f"the leader is lost: {lost}; {self.plans[0]}"


def draw(plan: FuzzPlan) -> LeaderPlan | None:
    """Returns the runs of the seed of `plan`, or None if its leader is not lost or its servers cannot be captured."""
    random, cluster = Random(f"fuzz/{plan.seed}/leader"), plan.cluster
    if random.randrange(ONE_IN) or cluster.hazards is None or not can_be_replaced(plan.scheme, cluster.servers):
        return None
    keep, every_s = random.choice(("snapshot", "replica")), random.choice((0.5, 2.0, 5.0))
    hazards = replace(cluster.hazards, servers_keep=keep, snapshot_every_s=every_s)
    first = replace(plan, cluster=replace(cluster, hazards=hazards), runs=("leader",))
    losses = tuple(
        LeaderLoss(
            at_s=random.uniform(1.0, CALM_S),
            stops_at=random.randint(1, CALLS_MAX) if random.random() < 0.5 else DiskFaults().stops_at,
            cuts_power=random.random() < 0.5,
        )
        for _ in range(random.randint(1, 2))
    )
    later = [replace(first, cluster=replace(first.cluster, faults=_faults(random, cluster))) for _ in losses]
    goal = random.randint(1, GOAL_MAX) if random.random() < 0.5 else 0
    return LeaderPlan((first, *later), losses, goal)


def _faults(random: Random, cluster: Cluster) -> tuple[Fault, ...]:
    """Returns drawn faults, and in half of the runs servers that are lost while others are being replaced."""
    faults = faults_of(random, cluster)
    if random.random() < 0.5:
        return faults
    begin_s, hosts = random.uniform(1.0, CALM_S - TOGETHER_S), len(cluster.server_placements())
    names = [f"servers-{shard}" for shard in range(hosts)] if hosts > 1 else ["servers"]
    together = [
        Fault(kind="crash", at_s=begin_s + random.uniform(0.0, TOGETHER_S), for_s=0.3, hosts=(random.choice(names),))
        for _ in range(random.randint(2, 4))
    ]
    return tuple(sorted((*faults, *together), key=lambda fault: fault.at_s))


@dataclass(slots=True)
class _Saved:
    """One checkpoint as it was handed to the disk, and what the oracle counted of the first shard at its capture."""

    tables: Tables
    recount: ShardRecount


@dataclass(slots=True)
class _Leader:
    """The disk of the leader, what it has saved on it, and the newest checkpoint whose save was reported."""

    disk: VirtualDisk
    saved: dict[int, _Saved] = field(default_factory=dict)
    reported: int = 0

    def save(self, states: dict[int, SliceState]) -> None:
        """Saves a complete capture of the servers as the next checkpoint. Raises PowerCut if the leader is lost."""
        tables = kept_tables([states[shard].facts["tables"] for shard in sorted(states)])
        number = max([*self.saved, 0]) + 1
        self.saved[number] = _Saved(tables, recount_in(states[0]))
        store = FolderStore(ROOT, self.disk)
        files = {f"slice-{shard}": [json.dumps(of.facts["tables"]).encode()] for shard, of in states.items()}
        store.save(number, files, finite=True, tables=tables)
        self.reported = number
        store.rotate(KEPT, healthy=number)

    def resumed(self, sim: Simulation) -> Tables | None:
        """Returns the tables that the next run begins with, None if it begins anew. `sim`: the run that has ended.

        Raises InvariantBroken if they are not those of the newest checkpoint.
        """
        store = FolderStore(ROOT, self.disk)
        number, _ = store.newest()
        if (number or 0) < self.reported:
            raise _broken(sim, f"the run is resumed from checkpoint {number}, though {self.reported} was saved")
        if number is None:
            return None
        facts, saved = store.manifest(number).facts["tables"], self.saved[number]
        if facts != json.loads(json.dumps(saved.tables)):
            raise _broken(sim, f"checkpoint {number} has other tables than were captured: {facts}")
        done: Data = tuple((epoch, start, stop) for epoch, start, stop in facts.get("done", ()))
        tables = resumed_tables(facts, range(sim.cluster.workers), done, samples=0)
        by_clocks = isinstance(sim.world.workers[0].role, ClockedWorker)
        if wrong := saved.recount.resumes_as(tables, by_clocks=by_clocks):
            raise _broken(sim, f"the run is resumed from checkpoint {number} with {wrong}")
        self.saved = {number: saved}
        self.reported = number
        return tables


def _broken(sim: Simulation, what: str) -> InvariantBroken:
    assert sim.invariants is not None
    return sim.invariants.broken(what)


class LeaderStory(Protocol):
    """Is told what happens in each run of a plan: `record` its records, and how it begins and ends."""

    def record(self, record: Record) -> None: ...
    def begins(self, sim: Simulation, run: FuzzPlan, how: str) -> None: ...
    def ends(self, how: str) -> None: ...


def play(plan: LeaderPlan, story: LeaderStory | None = None) -> Counter[str]:
    """Carries a plan out; returns what happened, by kind. Raises InvariantBroken."""
    told: Counter[str] = Counter()
    leader = _Leader(VirtualDisk(Random(f"fuzz/{plan.plans[0].seed}/leader-disk")))
    leader.disk.make_folder(ROOT.parent)
    tables: Tables | None = None
    for run, loss in zip(plan.plans, plan.losses, strict=False):
        told["leader lost"] += 1
        sim = _until_lost(run, loss, leader, tables, story)
        tables = leader.resumed(sim)
        told["resumed" if tables else "begun anew"] += 1
    told["run ended"] += bool(_to_the_end(plan, tables, story))
    return told


def _begun(run: FuzzPlan, tables: Tables | None, story: LeaderStory | None, wish: StopWish | None = None) -> Simulation:
    """Returns the simulation of one run, before its first event."""
    sim = simulation(run, story.record if story else None, wish, tables)
    if story:
        story.begins(sim, run, "begins with the model" if tables is None else f"is resumed at {tables}")
    return sim


def _until_lost(
    run: FuzzPlan, loss: LeaderLoss, leader: _Leader, tables: Tables | None, story: LeaderStory | None
) -> Simulation:
    """Runs one run until its leader is lost, with its disk switched on again; returns its simulation."""
    sim = _begun(run, tables, story)
    servers = sim.members.servers
    assert servers is not None
    servers.snapshots.taken = leader.save
    leader.disk.power_on(DiskFaults(stops_at=loss.stops_at))
    with contextlib.suppress(PowerCut, RunLost):  # it may also fail: a server was lost before there was a snapshot
        sim.run(until=loss.at_s)
    if loss.cuts_power:
        leader.disk.cut_power()
    leader.disk.power_on()
    if story:
        story.ends(f"LEADER LOST, {'with the power' if loss.cuts_power else 'by a kill'}; saved: {leader.reported}")
    return sim


def _to_the_end(plan: LeaderPlan, tables: Tables | None, story: LeaderStory | None) -> str:
    """Runs the last run to its end; returns why it failed before, or ""."""
    run = plan.plans[-1]
    before = sum(stop - start for _, start, stop in _done(tables))
    goal = StopWish(StopRule(samples=before + plan.goal, behind=before)) if plan.goal else None
    sim = _begun(run, tables, story, goal)
    if goal is None:
        return go_on_to_the_end(sim)
    return go_to_its_end(sim, goal)


def _done(tables: Tables | None) -> Any:
    return (tables or {}).get("done", ())
