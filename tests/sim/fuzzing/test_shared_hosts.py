"""Runs in which workers and servers share hosts."""

from __future__ import annotations

from dataclasses import replace

import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.scheme import names
from paceline.sim.cluster.model import Fault, Hazards, uniform
from paceline.sim.fuzzing import shared_hosts
from paceline.sim.fuzzing.fuzz import CALM_S, FuzzPlan, draw, go_on_to_the_end, play, simulation, with_shared_hosts
from paceline.sim.fuzzing.random_parameters import schemes_of
from paceline.sim.fuzzing.shrink import without_last_server

SEEDS = 600


def plan_of(seed: int) -> FuzzPlan:
    return replace(draw(seed, schemes_of(seed, names())), runs=("hosts",))


@pytest.mark.parametrize("part", range(4))
def test_all_goes_on_when_hosts_are_lost_with_all_that_is_on_them(part: int) -> None:
    for seed in range(part, SEEDS, 4):
        play(plan_of(seed), digest=False)


def test_each_server_is_on_a_workers_host_and_faults_strike_it_there() -> None:
    cluster = replace(
        uniform(3, 2, factors=(1.0, 2.0, 3.0)),
        hazards=Hazards(),
        faults=(
            Fault(kind="disk-full", at_s=1.0, for_s=1.0, hosts=("servers-1",)),
            Fault(kind="pause", at_s=1.0, for_s=1.0, hosts=("worker-2",)),
        ),
    )
    drawn = [found for seed in range(100) if (found := shared_hosts.draw(seed, cluster, CALM_S))]
    assert 10 < len(drawn) < 40
    together = 0
    for found in drawn:
        assert (found.workers, found.servers) == (3, 2)
        assert all(host.devices for host in found.hosts)
        last = found.server_placements()[1].host
        assert found.faults[0].hosts == (last.name,)
        assert found.faults[1].hosts == ("worker-2",)
        assert all(host.servers for fault in found.faults[2:] for host in found.hosts if host.name in fault.hosts)
        together += last.servers == 2
    assert 0 < together < len(drawn)


def test_a_cluster_without_servers_has_no_such_run() -> None:
    assert not [seed for seed in range(50) if shared_hosts.draw(seed, uniform(3, 0, factors=(1.0, 1.0, 1.0)), CALM_S)]


def test_a_server_and_its_copy_are_lost_together_and_all_go_back_to_a_snapshot() -> None:
    rolled_back = from_a_copy = 0
    for seed in range(2 * SEEDS):
        plan = with_shared_hosts(plan_of(seed))
        if plan is None or plan.cluster.hazards is None or plan.cluster.hazards.servers_keep != "replica":
            continue
        sim = simulation(plan)
        go_on_to_the_end(sim)
        recovery = sim.members.machine.recovery
        rolled_back += recovery.server_view > 0
        from_a_copy += recovery.number > recovery.server_view
    assert rolled_back > 5
    assert from_a_copy > 0


def test_a_failure_shrinks_by_a_server_on_a_shared_host() -> None:
    plan = next(
        plan for seed in range(SEEDS) if (plan := with_shared_hosts(plan_of(seed))) and plan.cluster.servers > 1
    )
    smaller = without_last_server(plan)
    assert smaller is not None
    assert smaller.cluster.workers == plan.cluster.workers
    assert smaller.cluster.servers == plan.cluster.servers - 1
