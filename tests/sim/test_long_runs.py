"""What shows only after a day, and links of a few that stop and come back in another order."""

from __future__ import annotations

from random import Random

import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.scheme import make
from paceline.core.vector import Ghost
from paceline.sim.cluster.model import Cluster, Fault, Hazards, uniform
from paceline.sim.fuzzing.fuzz import SUSPECT_AFTER_S, FuzzPlan, end, go_on, simulation
from paceline.sim.kernel.workload import LocalSteps
from paceline.sim.simulation import Simulation

DAY_S = 24 * 3600.0
FAULTS = 72
HOSTS = ["workers-0", "workers-1", "workers-2", "workers-3", "servers-0", "servers-1"]


def cluster(faults: list[Fault], **hazards: object) -> Cluster:
    made = uniform(4, 2, latency_s=0.01)
    fields = {"hosts": made.hosts, "network": made.network, "suspect_after_s": SUSPECT_AFTER_S}
    return Cluster(**fields, faults=tuple(faults), hazards=Hazards(**hazards))  # type: ignore[arg-type]


# One lasts a day. The others have its faults and its steps in four hours: what is left out are hours of heartbeats.
@pytest.mark.parametrize(
    ("scheme", "seconds"),
    [("bsp", DAY_S), ("ssp", DAY_S / 6), ("asp", DAY_S / 6), ("esync", DAY_S / 6), ("localsgd", DAY_S / 6)],
)
def test_after_a_day_of_faults_nothing_has_grown_and_everybody_goes_on(scheme: str, seconds: float) -> None:
    """Tables of what was taken, kept and fenced are bounded by who takes part (`Invariants.look`); so is the heap."""
    between = seconds / FAULTS
    random = Random(scheme)
    faults = []
    for number in range(FAULTS):
        kind, host = random.choice(("crash", "pause", "reset", "mute")), random.choice(HOSTS)
        for_s = 2 * SUSPECT_AFTER_S if kind != "reset" else 0.0
        faults.append(Fault(kind=kind, at_s=(number + 0.5) * between, for_s=for_s, hosts=(host,)))
    made = cluster(faults, lost=0.01, repeated=0.01, late=0.01, servers_keep="snapshot", snapshot_every_s=between / 2)
    work = LocalSteps(lambda rank, rng: rng.uniform(between / 60, between / 30))
    sim = Simulation(make(scheme, {}), Ghost(12), work, cluster=made, seed=7)
    sim.run(until=seconds / 4)
    early = len(sim.heap)
    sim.run(until=seconds)
    assert min(sim.steps) > 500
    assert len(sim.heap) - early < 100, "apart from faults that are still to come there is not more to happen"
    assert sim.streams is not None
    assert sim.streams.most_known() <= 4 + 2 + 2


@pytest.mark.parametrize("seed", range(12))
def test_links_of_a_few_stop_one_by_one_and_come_back_in_another_order(seed: int) -> None:
    random = Random(f"links/{seed}")
    few = random.sample(HOSTS, random.randint(2, 4))
    back = random.sample(range(len(few)), len(few))
    faults = []
    for number, host in enumerate(few):
        stops, comes = 2.0 + 0.7 * number, 8.0 + 1.3 * back[number]
        for kind in random.choice((("mute", "deaf"), ("clog",), ("mute",), ("deaf",))):
            faults.append(Fault(kind=kind, at_s=stops, for_s=comes - stops, hosts=(host,)))
    scheme = make(random.choice(["bsp", "asp", "ssp", "ksync", "esync", "localsgd"]), {})
    keep = random.choice(("all", "replica", "snapshot"))
    plan = FuzzPlan(seed, scheme, cluster(faults, servers_keep=keep, snapshot_every_s=1.0), (1, 2, 3, 4))
    sim = simulation(plan)
    sim.run(until=20.0)
    go_on(sim)
    end(sim)
