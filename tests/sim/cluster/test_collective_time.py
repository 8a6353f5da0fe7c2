"""What a mean among workers takes on given links, by the schedule of its carrier."""

from __future__ import annotations

import pytest

from paceline.core.collective import PEERS
from paceline.core.scheme import make
from paceline.core.vector import Ghost
from paceline.sim import LocalSteps, Simulation
from paceline.sim.cluster.collective_time import CollectiveTiming, choice_for
from paceline.sim.cluster.model import Cluster, Device, Host, NetworkSpec, uniform
from paceline.sim.cluster.network import Network as Ways

GB = 10**9
LATENCY_S, LOCAL_LATENCY_S = 0.5, 0.125
NETWORK = NetworkSpec(
    latency_s=LATENCY_S, bandwidth_gbps=8.0, local_latency_s=LOCAL_LATENCY_S, local_bandwidth_gbps=80.0
)


def carriage(name: str, *hosts: int, gbps: tuple[float, ...] = ()) -> CollectiveTiming:
    """Hosts with so many workers each; a second carries 1 GB from host to host, 10 GB inside a host."""
    made = tuple(
        Host(name=f"h{k}", devices=(Device(count=count),), bandwidth_gbps=gbps[k] if gbps else 0.0)
        for k, count in enumerate(hosts)
    )
    cluster = Cluster(hosts=made, network=NETWORK)
    ways = Ways(cluster)
    cards = {
        placement.host_name: ways.nic(placement.host, placement.host_name) for placement in cluster.worker_placements()
    }
    return CollectiveTiming(ways, [cards[placement.host_name] for placement in cluster.worker_placements()], name)


def test_a_ring_moves_the_vector_twice_less_a_share() -> None:
    ring = carriage("ring", 1, 1, 1, 1)
    assert ring.seconds((0, 1, 2, 3), 4 * GB) == pytest.approx(6 * (LATENCY_S + 1.0))
    assert ring.seconds((2,), 4 * GB) == 0.0
    assert ring.moved((0, 1, 2, 3), 2, 4 * GB) == (6 * GB, 6 * GB)


def test_the_slowest_hop_sets_the_pace_of_a_ring() -> None:
    ring = carriage("ring", 1, 1, 1, 1, gbps=(8.0, 8.0, 8.0, 4.0))
    assert ring.seconds((0, 1, 2, 3), 4 * GB) == pytest.approx(6 * (LATENCY_S + 2.0))
    assert ring.seconds((0, 1), 4 * GB) == pytest.approx(2 * (LATENCY_S + 2.0))


def test_halving_takes_fewer_steps_for_as_many_bytes() -> None:
    butterfly = carriage("butterfly", *[1] * 8)
    everybody = tuple(range(8))
    assert butterfly.seconds(everybody, 8 * GB) == pytest.approx(6 * LATENCY_S + 2 * (4 + 2 + 1))
    assert carriage("ring", *[1] * 8).seconds(everybody, 8 * GB) == pytest.approx(14 * (LATENCY_S + 1.0))


def test_workers_of_one_host_share_its_card_so_one_that_speaks_for_it_is_sooner_through() -> None:
    """Of eight workers on two hosts, halving sends four vectors out of a host at once, and a leader one."""
    everybody, nbytes = tuple(range(8)), 8 * GB
    first_step_s = LATENCY_S + 4 * nbytes / 2 / GB
    assert carriage("butterfly", 4, 4).seconds(everybody, nbytes) > first_step_s
    inside_s = 3 * (LOCAL_LATENCY_S + nbytes / 4 / (10 * GB)) + 2 * LOCAL_LATENCY_S + (3 / 4 + 3) * nbytes / (10 * GB)
    across_s = 2 * LATENCY_S + nbytes / GB
    assert carriage("hierarchical", 4, 4).seconds(everybody, nbytes) == pytest.approx(inside_s + across_s)


@pytest.mark.parametrize("name", PEERS)
@pytest.mark.parametrize("servers", [0, 1])
def test_a_simulated_mean_takes_what_its_schedule_takes(name: str, servers: int) -> None:
    cluster = uniform(3, servers, latency_s=0.25, bandwidth_gbps=8.0)
    work = LocalSteps(lambda rank, rng: 1.0)
    scheme = make("localsgd", {"tau": 1})
    sim = Simulation(scheme, Ghost(3 * GB // 4), work, cluster=cluster, mean=name)
    ways = Ways(cluster)
    cards = [ways.nic(placement.host, f"{rank}") for rank, placement in enumerate(cluster.worker_placements())]
    round_s = 1.0 + CollectiveTiming(ways, cards, name).seconds((0, 1, 2), 3 * GB)
    sim.run(until=2 * round_s - 1e-6)
    assert sim.world.workers[0].role.round == 1
    sim.run(until=2 * round_s + 1e-6)
    assert sim.world.workers[0].role.round == 2
    assert sim.world.workers[1].sent == 2 * CollectiveTiming(ways, cards, name).moved((0, 1, 2), 1, 3 * GB)[0]


def test_auto_takes_few_steps_for_little_and_few_bytes_for_much() -> None:
    cluster = uniform(7, 0)
    assert choice_for(cluster, 400).name == "butterfly"
    assert choice_for(cluster, 400_000_000).name == "pairwise"
    assert choice_for(uniform(1, 0), 400).name == "ring"
