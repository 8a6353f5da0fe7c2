"""Kim et al., HALoS: Hierarchical Asynchronous Local SGD over Slow Networks for Geo-Distributed Training, ICML 2025."""

from typing import Any

from paceline.core.scheme import make
from paceline.core.trace import Record, Span
from paceline.core.vector import Ghost
from paceline.schemes import halos
from paceline.sim import LocalSteps, Simulation
from paceline.sim.cluster.model import Cluster, Device, Host, Link
from tests.papers.sentences import says

SECONDS = 300.0
SITES = ("near", "far")
LENGTH = 5_000_000  # 20 MB: 1.6 s over the line between the sites


def cluster() -> Cluster:
    """Two regions of four uneven workers, and a slow line between them; the global server is in the first."""
    hosts = [
        Host(name=f"{site}-{number}", site=site, devices=(Device(factor=factor),))
        for site in SITES
        for number, factor in enumerate((1.0, 1.0, 2.0, 4.0))
    ]
    server = Host(name="server", site=SITES[0], servers=1)
    line = Link(between=SITES, bandwidth_gbps=0.1, latency_s=0.05)
    return Cluster(hosts=(*hosts, server), step_s=0.5, links=(line,))


def run(name: str, **parameters: Any) -> tuple[Simulation, dict[str, float]]:
    """A run over the two regions, and the share of the workers' time by what they do."""
    records: list[Record] = []
    work = LocalSteps(lambda rank, rng: 1.0)
    sim = Simulation(make(name, parameters), Ghost(LENGTH), work, cluster=cluster(), trace=records.append)
    sim.run(until=SECONDS)
    spans = [record for record in records if isinstance(record, Span)]
    total = sum(span.seconds for span in spans)
    kinds = ("computing", "waiting", "communicating")
    return sim, {kind: sum(s.seconds for s in spans if s.activity == kind) / total for kind in kinds}


def test_workers_do_not_wait_at_slow_links_or_for_one_another() -> None:
    """Abstract: it "reduces straggler effects, and leverages fast intra-region links"."""
    ours, shares = run("halos", h=4, k=8)
    synchronous, waits = run("diloco", h=4)
    assert shares["computing"] > 0.95
    assert waits["computing"] < 0.5
    assert sum(ours.steps) > 2 * sum(synchronous.steps)


def test_between_regions_goes_one_exchange_for_k_deltas() -> None:
    """Abstract: "This hierarchical design minimizes expensive inter-region communication"."""
    ours, _ = run("halos", h=4, k=8)
    _, shares = run("asyncdiloco", h=4, dynamic=False)
    exchanges = ours.world.servers[0].role.version
    assert exchanges > 20
    deltas = sum(ours.steps) / 4
    assert exchanges < 1.1 * deltas / 8
    assert shares["computing"] < 0.9, "all workers of the far region share the line"


def test_the_region_goes_on_while_its_delta_is_on_its_way() -> None:
    assert says(halos, "a group pauses while its exchange is on its way, and goes on from theta_g alone")
    ours, _ = run("halos", h=2, k=2)
    paused, _ = run("tiers", inner="asp(payload=delta, steps=2)", outer="asyncdiloco(h=1)")
    assert sum(ours.steps[4:]) > 1.1 * sum(paused.steps[4:])
