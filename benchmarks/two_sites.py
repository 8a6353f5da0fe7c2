"""Two sites, joined by a thin link: tiers against flat schemes. Samples a second, traffic between sites, accuracy.

python benchmarks/two_sites.py [--cluster two-sites] [--parameters 25000000] [--seconds 120] [--rates 0.1,0.3]

The cluster is that of the file, simulated. Digits are trained by the small network that is the default, on links that
are slower by as much as it is smaller than a model of --parameters: it takes as long to pass a link as that one would.
Traffic is what passes between the sites, in models of that size. Every scheme has the best of --rates, by its accuracy
at the end of --seconds of virtual time; one seed.

Claims: of all rows under which the far site trains a third of the samples or more, halos sends least between the sites
for a sample and trains most samples a second. Of those without halos, esync inside a site and asyncdiloco between them
sends least, and no flat scheme trains more. Exit code 1 when one fails.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from _verdict import verdict

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline import config as configuration
from paceline.core.collective import schedule_for
from paceline.launch.local.train import Silent
from paceline.runtime.simulated.setup import SimulationSetup
from paceline.runtime.simulated.simulated_run import VirtualRun
from paceline.sim.cluster.collective_time import CollectiveTiming
from paceline.sim.cluster.model import Cluster
from paceline.sim.cluster.network import Network, Nic
from paceline.sim.cluster.toml_file import load

H = 40
"""Steps between two exchanges over the link, where a scheme has them."""
HALOS = "halos"
BEST = "tiers: esync in asyncdiloco"
ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "bsp": ("bsp", {}),
    "asp, 1/Y": ("asp", {"weighting": "inverse"}),
    "ssp": ("ssp", {}),
    "esync": ("esync", {}),
    "localsgd": ("localsgd", {"tau": H}),
    "diloco": ("diloco", {"h": H}),
    "asyncdiloco": ("asyncdiloco", {"h": H}),
    HALOS: ("halos", {"h": H // 4, "k": 32}),
    "tiers: bsp in asyncdiloco": ("tiers", {"inner": "bsp", "outer": f"asyncdiloco(h={H})"}),
    BEST: ("tiers", {"inner": "esync", "outer": f"asyncdiloco(h={H})"}),
    "tiers: localsgd in asyncdiloco": ("tiers", {"inner": "localsgd(tau=8)", "outer": f"asyncdiloco(h={H // 8})"}),
    "tiers: asp in asyncdiloco": ("tiers", {"inner": "asp(weighting=inverse)", "outer": f"asyncdiloco(h={H})"}),
    "tiers: bsp in bsp": ("tiers", {"inner": "bsp", "outer": f"bsp(payload=delta, steps={H})"}),
    "tiers: bsp in asp, 1/Y": ("tiers", {"inner": "bsp", "outer": "asp(weighting=inverse)"}),
}
EVEN = 1 / 3
"""A far site that has half of the workers and trains less than this share of the samples hardly takes part."""


@dataclass(frozen=True)
class Result:
    samples_per_s: float
    away: float  # share of the samples that were trained at the site without servers
    models: float  # that passed between the sites, both ways, for a thousand samples
    accuracy: float
    rate: float


@contextmanager
def counted() -> Iterator[list[float]]:
    """Counts the bytes that pass between sites, in the one number of the list: of messages, and of means that workers
    carry themselves by a schedule."""
    total, arrival, moved = [0.0], Network.arrival, CollectiveTiming.moved

    def counting(network: Network, now: float, src: Nic, dst: Nic, nbytes: int) -> float:
        total[0] += nbytes * (src.site != dst.site)
        return arrival(network, now, src, dst, nbytes)

    def counting_means(timing: CollectiveTiming, among: tuple[int, ...], rank: int, nbytes: int, **how: bool) -> Any:
        schedule = schedule_for(timing._name, len(among), timing._hosts(among))
        sites = [timing._cards[member].site for member in among]
        for sent in schedule.tasks[among.index(rank)].sends:
            for send in sent:
                pieces = (send.stop - send.first) * (sites[among.index(rank)] != sites[send.dst])
                total[0] += pieces / schedule.pieces * nbytes
        return moved(timing, among, rank, nbytes, **how)

    Network.arrival = counting  # type: ignore[method-assign]
    CollectiveTiming.moved = counting_means  # type: ignore[method-assign]
    try:
        yield total
    finally:
        Network.arrival, CollectiveTiming.moved = arrival, moved  # type: ignore[method-assign]


def scaled(cluster: Cluster, share: float) -> Cluster:
    """Returns the cluster with `share` of its bandwidths."""
    network = replace(
        cluster.network,
        bandwidth_gbps=cluster.network.bandwidth_gbps * share,
        local_bandwidth_gbps=cluster.network.local_bandwidth_gbps * share,
    )
    links = tuple(replace(link, bandwidth_gbps=link.bandwidth_gbps * share) for link in cluster.links)
    return replace(cluster, network=network, links=links)


def trained(name: str, rate: float, job: argparse.Namespace) -> Result:
    scheme, parameters = ROWS[name]
    values: dict[str, Any] = {
        "run": {"scheme": scheme},
        "optimizer": {"lr": rate},
        "data": {"name": "digits"},
        "stop": {"epochs": 0, "seconds": job.seconds},
        "evaluation": {"every": job.seconds / 4},
        scheme: parameters,
    }
    cluster = load(job.cluster)
    values["cluster"] = {"workers": cluster.workers, "servers": cluster.servers}
    config = configuration.build(values)
    length = VirtualRun(SimulationSetup(config=config, cluster=cluster), Silent()).model_length
    setting = SimulationSetup(config=config, cluster=scaled(cluster, length / job.parameters))
    with counted() as total:
        summary = VirtualRun(setting, Silent()).run(leave=False)
    models = total[0] / (4 * length) / (summary.samples / 1000)
    placements = cluster.worker_placements()
    home = cluster.server_placements()[0].host.site
    away = sum(worker.samples for worker in summary.workers if placements[worker.rank].host.site != home)
    return Result(summary.samples_per_second, away / summary.samples, models, summary.test_accuracy or 0.0, rate)


def draw(found: dict[str, Result], path: Path) -> None:
    """Draws samples a second and traffic between the sites; pale where the far site trains less than its part."""
    from matplotlib.figure import Figure

    from paceline.observe.plots import style

    ordered = sorted(found.items(), key=lambda item: -item[1].models)
    names = [name for name, _ in ordered]
    kinds = {"flat": style.LINES[0], "tiers": style.LINES[1], HALOS: style.LINES[2]}
    colours = [
        next((colour for kind, colour in kinds.items() if name.startswith(kind)), kinds["flat"]) for name in names
    ]
    shades = [
        (colour, 1.0 if result.away > EVEN else 0.35) for colour, (_, result) in zip(colours, ordered, strict=True)
    ]
    drawn = Figure(figsize=(10, 4.5), layout="constrained")
    panels = ("samples a second", "models between the sites for 1,000 samples")
    for place, label in enumerate(panels, start=1):
        axes = drawn.add_subplot(1, 2, place)
        axes.barh(names, [r.samples_per_s if place == 1 else r.models for _, r in ordered], color=shades)
        axes.set(xscale="log", xlabel=label)
        if place == 2:
            axes.set_yticks([])
    drawn.suptitle(f"Two sites; pale: the far one trains less than {EVEN:.0%} of the samples", fontsize=10)
    style.save(drawn, path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cluster", default="two-sites")
    parser.add_argument("--parameters", type=int, default=25_000_000)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--rates", default="0.1,0.3")
    parser.add_argument("--rows", default="", help="names of rows, separated by semicolons; all by default")
    parser.add_argument("--out", type=Path, help="a figure of traffic against samples a second")
    job = parser.parse_args()
    rates = [float(rate) for rate in job.rates.split(",")]
    names = job.rows.split(";") if job.rows else list(ROWS)
    print(f"{'scheme':30} {'samples/s':>10} {'away':>6} {'models a 1000 samples':>22} {'accuracy':>9} {'lr':>6}")
    found: dict[str, Result] = {}
    for name in names:
        best = max((trained(name, rate, job) for rate in rates), key=lambda result: result.accuracy)
        found[name] = best
        cells = f"{best.samples_per_s:10.0f} {best.away:6.0%} {best.models:22.3f} {best.accuracy:9.3f} {best.rate:6g}"
        print(f"{name:30} {cells}", flush=True)
    if job.out:
        draw(found, job.out)
    if job.rows:
        return 0
    even = {name: result for name, result in found.items() if result.away > EVEN}
    others = {name: result for name, result in even.items() if name != HALOS}
    first = HALOS in even and all(even[HALOS].models <= result.models for result in others.values())
    first = first and all(even[HALOS].samples_per_s >= result.samples_per_s for result in others.values())
    least = BEST in others and others[BEST].models <= min(result.models for result in others.values())
    flat = [result.samples_per_s for name, result in others.items() if not name.startswith("tiers")]
    where = f"where the far site trains over {EVEN:.0%}"
    codes = [
        verdict(f"halos sends least and trains most, {where}", first),
        verdict(
            f"without it {BEST} sends least, and trains most but for other tiers, {where}",
            least and others[BEST].samples_per_s >= max(flat),
        ),
    ]
    return max(codes)


if __name__ == "__main__":
    raise SystemExit(main())
