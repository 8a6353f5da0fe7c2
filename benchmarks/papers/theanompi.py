"""Theano-MPI's scaling table: BSP by all-reduce on one to eight K80 GPUs of one host, in the simulator.

python benchmarks/papers/theanompi.py [--gbytes 6] [--latency-us 20]

Claims of its authors' table (README and notebook, K80, nccl32; seconds for 5120 images, computing + communicating): 8
GPUs are 6.3 times as fast as one with AlexNet, 7.5 with GoogLeNet, 5.3 and 7.1 with VGG16 (batches of 16 and 32), 7.9
with ResNet-50. The waits that the notebook leaves out make that 3.3, 7.0, 5.0, 6.5 and 7.2.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from common import PAGES, Job, Page, Side, axes_of, shown, table

from paceline.engine.models.zoo import NETWORKS
from paceline.observe.plots.style import LINES
from paceline.sim import Cluster
from paceline.sim.cluster.model import Device, Host, NetworkSpec

IMAGES = 5120
COUNTS = (1, 2, 4, 8)
BSP = Side(name="BSP", scheme="bsp")
WITHIN = 0.2
"""A speed-up within a fifth of the paper's counts as reproduced."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of the table: seconds of computing by number of GPUs, of communicating, and of waiting with eight."""

    name: str
    network: str
    batch: int
    computing: tuple[float, float, float, float]
    communicating: tuple[float, float, float, float]
    waiting: float

    @property
    def parameters(self) -> int:
        return NETWORKS[self.network].parameters

    def speed_up(self, place: int, waiting: float = 0.0) -> float:
        return self.computing[0] / (self.computing[place] + self.communicating[place] + waiting)


ROWS = (
    Row(name="AlexNet", network="alexnet", batch=128, computing=(20.50, 10.35, 5.13, 2.63),
        communicating=(0, 0.78, 0.54, 0.61), waiting=3.03),
    Row(name="GoogLeNet", network="googlenet", batch=32, computing=(63.89, 31.40, 15.51, 7.69),
        communicating=(0, 1.00, 0.71, 0.80), waiting=0.61),
    Row(name="VGG16, 16", network="vgg16", batch=16, computing=(358.29, 176.08, 90.44, 55.12),
        communicating=(0, 13.90, 9.28, 12.59), waiting=3.93),
    Row(name="VGG16, 32", network="vgg16", batch=32, computing=(343.37, 169.12, 86.97, 43.29),
        communicating=(0, 7.14, 4.80, 5.41), waiting=3.75),
    Row(name="ResNet-50", network="resnet50", batch=64, computing=(163.15, 80.09, 40.25, 20.12),
        communicating=(0, 0.81, 0.56, 0.57), waiting=1.90),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Seconds for 5120 images, and how many of them a worker did not compute."""

    total: float
    exchanging: float


def cluster(row: Row, gpus: int, options: argparse.Namespace) -> Cluster:
    """Each GPU has a link of its own, as on a PCI Express switch; a step lasts as long as the paper's on one GPU."""
    step_s = row.computing[0] * row.batch / IMAGES
    hosts = tuple(Host(name=f"gpu-{number}", devices=(Device(name="K80", seconds=step_s),)) for number in range(gpus))
    network = NetworkSpec(latency_s=options.latency_us * 1e-6, bandwidth_gbps=8 * options.gbytes)
    return Cluster(hosts=hosts, step_s=step_s, network=network)


def timed(row: Row, gpus: int, options: argparse.Namespace) -> Timing:
    machines = cluster(row, gpus, options)
    steps = 16
    data = {"name": "synthetic", "samples": steps * row.batch * gpus, "batch_size": row.batch}
    job = Job(cluster=machines, values={"data": data, "stop": {"epochs": 1.0}}, timing_only=True,
              model_length=row.parameters)  # fmt: skip
    summary = job.trial(BSP).summary
    total = summary.seconds / summary.samples * IMAGES
    return Timing(total=total, exchanging=total - row.computing[0] / gpus)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gbytes", type=float, default=6.0, help="gigabytes a second of a GPU (default: %(default)s)")
    parser.add_argument("--latency-us", type=float, default=20.0, help="of a message (default: %(default)s)")
    parser.add_argument("--pages", type=Path, default=PAGES, help="where the page goes (default: docs/papers)")
    options = parser.parse_args(arguments)
    page = Page("theanompi", "Theano-MPI's scaling table", options.pages, __doc__)
    found = {row.name: {gpus: timed(row, gpus, options) for gpus in COUNTS} for row in ROWS}
    report(page, found, options)
    page.write()
    return 0


def report(page: Page, found: dict[str, dict[int, Timing]], options: argparse.Namespace) -> None:
    page.say(
        "Virtual time, timing only. A step lasts as long as the paper's on one GPU, so a GPU computes as in the paper. "
        f"Each has a link of {options.gbytes:g} GB/s, with {options.latency_us:g} microseconds a message: that is what "
        "one of the two GPUs of a K80 board gets of PCI Express 3.0, and what the paper's exchange of AlexNet on two "
        "GPUs comes to. Means are carried by the workers (`--servers 0`), by the cheapest schedule, in 32 bits. "
        "Nothing overlaps with computing, as in Theano-MPI."
    )
    page.say(f"## Seconds for {IMAGES} images beyond computing, of which the paper counts communicating")
    rows = []
    for row in ROWS:
        cells = [f"{found[row.name][n].exchanging:.2f} ({row.communicating[at]:.2f})" for at, n in enumerate(COUNTS)]
        rows.append([f"{row.name}, {row.parameters / 1e6:.1f} million", *cells[1:], f"{row.waiting:.2f}"])
    page.say(table(["network", "2 GPUs (paper)", "4 (paper)", "8 (paper)", "paper: waiting, 8"], rows))
    page.say("## Speed-up of eight GPUs over one")
    rows = []
    for row in ROWS:
        ours = found[row.name][1].total / found[row.name][8].total
        paper, waited = row.speed_up(3), row.speed_up(3, row.waiting)
        agrees = "reproduced" if abs(ours / paper - 1) <= WITHIN else "**NOT reproduced**"
        rows.append([row.name, shown(ours), shown(paper), shown(waited), agrees])
    page.say(table(["network", "here", "paper", "paper, with its waits", f"within {WITHIN:.0%}"], rows))
    page.say(
        "On two and four GPUs the exchanges of the large models agree. On eight the paper's are about twice as long: "
        "its eight GPUs hung on two processors, and a ring passed between them. GoogLeNet's, with many small tensors, "
        "are longer at any number: Theano-MPI sent tensor by tensor. What the simulator leaves out is what made "
        "Theano-MPI wait: processes of one host that share its memory and cores. VGG16 with batches of 16 slowed down "
        "on 8 GPUs in computing too (55.1 s where an eighth is 44.8), which no link explains. " + overlap(found)
    )
    draw(page, found)


def overlap(found: dict[str, dict[int, Timing]]) -> str:
    worst = min(ROWS, key=lambda row: found[row.name][1].total / found[row.name][8].total)
    ratio = found[worst.name][1].total / found[worst.name][8].total
    return f"The least speed-up is that of {worst.name}, {shown(ratio)}: many parameters for little computing."


def draw(page: Page, found: dict[str, dict[int, Timing]]) -> None:
    figure, (axes,) = axes_of()
    for row, colour in zip(ROWS, LINES, strict=False):
        ours = [found[row.name][1].total / found[row.name][n].total for n in COUNTS]
        axes.plot(COUNTS, ours, color=colour, label=row.name)
        axes.plot(COUNTS, [row.speed_up(at) for at in range(4)], color=colour, linestyle=":", marker="o", markersize=3)
    axes.plot(COUNTS, COUNTS, color="#767676", linewidth=0.8)
    axes.set_xlabel("GPUs (dotted: paper)")
    axes.set_ylabel("speed-up")
    axes.legend(frameon=False, fontsize=8)
    page.figure(figure, "Speed-up by number of GPUs of five networks, simulated and in the paper")


if __name__ == "__main__":
    sys.exit(main())
