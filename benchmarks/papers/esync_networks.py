"""ESync's table of networks, on the six devices of its paper: samples/s and time to 0.8 by network.

python benchmarks/papers/esync_networks.py [--data-dir FOLDER] [--train alexnet,resnet18,mobilenet] [--keep FOLDER]

The six networks have their published sizes; how long a step of each takes, in steps of ResNet-18, is measured on this
machine with pictures of the paper's sizes. ResNet-18 has the paper's steps: 3.5 s on a CPU, 0.03 s on a GPU.

Claims of the preprint (Li et al. 2019, table of networks): as fast as SSGD to a test accuracy of 0.8 on Fashion-MNIST,
times 27 with AlexNet, 7 with Inception-v3, 7 with ResNet-18, 4 with ResNet-50, 6 with ResNet-50 v2, 2 with MobileNet.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import networks
import torch
from common import PAGES, Job, Page, Side, Trial, axes_of, conditions, curves_of, full_batches, shown, table, times
from torch import nn

from paceline.engine.models import build
from paceline.engine.specs import ModelRecipe
from paceline.sim import Cluster
from paceline.sim.cluster.model import Device, Host, NetworkSpec

CPU_S, GPU_S = 3.5, 0.03
JITTER = 0.03
BATCH = 64
CLASSES = 10
TARGET = 0.8
ESYNC, SSGD = Side(name="ESync", scheme="esync", allreduce="servers"), Side(name="SSGD", scheme="bsp")
RING = Side(name="ESync by a ring", scheme="esync", allreduce="ring")


Curves = dict[str, Any]
"""`seconds` to the target, and `curve`."""


@dataclass(frozen=True, kw_only=True)
class Network:
    """A row of the paper's table. side: of its pictures there; lr: for the trained ones here."""

    name: str
    side: int
    paper: float
    width: float = 0.125
    lr: float = 0.1


NETWORKS = {
    "alexnet": Network(name="AlexNet", side=224, paper=27, lr=0.03),
    "inception-v3": Network(name="Inception-v3", side=299, paper=7),
    "resnet18": Network(name="ResNet-18", side=28, paper=7),
    "resnet50": Network(name="ResNet-50", side=28, paper=4),
    "resnet50-v2": Network(name="ResNet-50 v2", side=28, paper=6),
    "mobilenet": Network(name="MobileNet", side=28, paper=2),
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", default="", help="folder with the files of Fashion-MNIST (default: download)")
    parser.add_argument("--train", default="alexnet,resnet18,mobilenet", help="networks to train, '' for none")
    parser.add_argument("--rounds", type=int, default=250, help="give SSGD up after so many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5, help="steps that are timed of each network")
    parser.add_argument("--keep", type=Path, help="folder for what was measured and trained; what is in it is taken")
    parser.add_argument("--pages", type=Path, default=PAGES, help="where the page goes (default: docs/papers)")
    options = parser.parse_args(arguments)
    os.environ[networks.FOLDER_VARIABLE] = options.data_dir
    os.environ[networks.TESTED_VARIABLE] = "300"
    page = Page("esync_networks", "ESync's table of networks", options.pages, __doc__)
    ratios = kept(options.keep, "ratios", lambda: measured_ratios(options.repeats))
    pace_part(page, ratios)
    wanted = [name for name in options.train.split(",") if name]
    if wanted:
        training_part(page, ratios, wanted, options)
    page.write()
    return 0


def cluster(ratio: float, gbps: float = 1.0) -> Cluster:
    """The paper's six devices, with steps `ratio` times as long as those of ResNet-18."""
    hosts = (
        Host(name="cpu", count=2, devices=(Device(name="Xeon E5-2650v4", seconds=CPU_S * ratio, jitter=JITTER),)),
        Host(name="gpu", count=4, devices=(Device(name="GTX 1080 Ti", seconds=GPU_S * ratio, jitter=JITTER),)),
        Host(name="server", servers=1),
    )
    return Cluster(hosts=hosts, step_s=GPU_S, network=NetworkSpec(latency_s=100e-6, bandwidth_gbps=gbps))


# ---- step times --------------------------------------------------------------------------------------------------
def measured_ratios(repeats: int) -> dict[str, float]:
    """Processor seconds of a step by network, divided by those of ResNet-18; measured in turn, medians.

    Processor time, so that other work on the machine matters little.
    """
    torch.set_num_threads(1)
    steps = {name: stepper(name, network.side) for name, network in NETWORKS.items()}
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(repeats):
        for name, step in steps.items():
            begin = time.process_time()
            step()
            seconds[name].append(time.process_time() - begin)
    middle = {name: statistics.median(times_) for name, times_ in seconds.items()}
    return {name: one / middle["resnet18"] for name, one in middle.items()}


def stepper(name: str, side: int) -> Callable[[], None]:
    """Returns a forward and backward pass of two pictures at full width."""
    model = build(ModelRecipe(name=name), (1, side, side), CLASSES, 1)
    x, y = torch.randn(2, 1, side, side), torch.zeros(2, dtype=torch.int64)

    def step() -> None:
        model.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()

    step()
    return step


def length_of(name: str, width: float = 1.0, side: int = 0) -> int:
    shape = (1, side or NETWORKS[name].side, side or NETWORKS[name].side)
    return sum(p.numel() for p in build(ModelRecipe(name=name, width=width), shape, CLASSES, 1).parameters())


# ---- samples a second --------------------------------------------------------------------------------------------
def pace_part(page: Page, ratios: dict[str, float]) -> None:
    rows = []
    for name, network in NETWORKS.items():
        length, ratio = length_of(name), ratios[name]
        machines = cluster(ratio)
        values = {
            "data": full_batches(BATCH, machines.workers),
            "stop": {"epochs": 0.0, "seconds": 40 * (CPU_S * ratio + length * 32 / 1e8)},
        }
        job = Job(cluster=machines, values=values, timing_only=True, model_length=length)
        esync, ring, ssgd = (job.trial(side).summary.samples_per_second for side in (ESYNC, RING, SSGD))
        rate = esync / ssgd
        print(network.name, length, f"{ratio:.2f}", f"{rate:.1f}", flush=True)
        rows.append([
            network.name, network.side, f"{length / 1e6:.2f}", f"{ratio:.2f}",
            shown(ssgd), shown(esync), times(rate), f"{network.paper:g} times", shown(ring),
        ])  # fmt: skip
    page.say("## Samples a second")
    page.say(
        f"Timing only, with models of the published size for {CLASSES} classes. Two CPUs and four GPUs, one server, "
        f"1 Gbit/s, batches of {BATCH}. A step of ResNet-18 lasts {CPU_S} s and {GPU_S} s as in the paper; those of "
        "the others are as much longer as a forward and backward pass on this machine's CPU is, with one thread, at "
        "the paper's size of pictures. That a GPU has the same ratios is assumed, not measured. ESync's averages go "
        "through the server, as in the paper; by default they go round a ring of the workers here, which is the last "
        "column."
    )
    head = ["network", "side", "million parameters", "step, in ResNet-18's", "SSGD", "ESync", "ESync / SSGD",
            "paper, time to 0.8", "ESync by a ring"]  # fmt: skip
    page.say(table(head, rows))
    page.say(
        "Samples a second alone would make ESync many times as fast with any of the networks, by what its "
        "GPUs no longer wait. The paper's factors of 2 to 27 are smaller. So a sample of a long local run is worth "
        "less than one of a round of SSGD, and how much less depends on the network."
    )


# ---- time to the target ------------------------------------------------------------------------------------------
def training_part(page: Page, ratios: dict[str, float], wanted: list[str], options: argparse.Namespace) -> None:
    found: dict[str, dict[str, Curves]] = {}
    for name in wanted:
        found[name] = {side.name: trained(name, ratios[name], side, options) for side in (ESYNC, SSGD)}
    page.say(f"## Virtual seconds to a test accuracy of {TARGET}")
    page.say(
        conditions(
            f"The same devices and steps. The networks are trained with an eighth of the width on Fashion-MNIST at "
            f"{networks.SIDE} x {networks.SIDE}, batches of 16, plain SGD at one rate for both, seed {options.seed}; "
            "300 pictures to test. The cluster's links are as much slower as the model is smaller than the published "
            "one, so an exchange lasts as long as with it."
        )
    )
    rows = []
    for name, trials in found.items():
        esync, ssgd = (seconds_of(trials[side.name]) for side in (ESYNC, SSGD))
        row = [NETWORKS[name].name, f"{NETWORKS[name].lr:g}", shown(ssgd, " s"), shown(esync, " s")]
        least = options.rounds * round_of(name, ratios[name]) / esync
        factor = f"more than {times(least)}" if math.isinf(ssgd) else times(ssgd / esync)
        rows.append([*row, factor, f"{NETWORKS[name].paper:g} times"])
    page.say(table(["network", "rate", "SSGD", "ESync", "SSGD / ESync", "paper"], rows))
    page.say(verdict(found))
    figure, axes = axes_of(len(found))
    for one, (name, trials) in zip(axes, found.items(), strict=True):
        curves_of(one, {side: trial["curve"] for side, trial in trials.items()}, target=TARGET, log=True)
        one.set_title(NETWORKS[name].name, fontsize=10)
    page.figure(figure, "Test accuracy against virtual seconds of three networks")


def trained(name: str, ratio: float, side: Side, options: argparse.Namespace) -> Curves:
    """Returns seconds to the target, None where it was missed, and the curve, of a trial or of one that was kept."""

    def train() -> Curves:
        trial = trial_of(name, ratio, side, options)
        missed = math.isinf(trial.seconds_to_target)
        return {"seconds": None if missed else trial.seconds_to_target, "curve": trial.curve}

    found: Curves = kept(options.keep, f"{name}-{side.scheme}-{options.seed}", train)
    print(name, side.name, found["seconds"], flush=True)
    return found


def seconds_of(found: Curves) -> float:
    """Returns the seconds to the target; infinite where it was missed."""
    return math.inf if found["seconds"] is None else float(found["seconds"])


def kept(folder: Path | None, name: str, make: Callable[[], Any]) -> Any:
    """Returns what a file in `folder` has, or what `make` returns, which is written there."""
    if folder and (folder / f"{name}.json").exists():
        return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    made = make()
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.json").write_text(json.dumps(made), encoding="utf-8")
    return made


def trial_of(name: str, ratio: float, side: Side, options: argparse.Namespace) -> Trial:
    network = NETWORKS[name]
    gbps = length_of(name, network.width, networks.SIDE) / length_of(name)
    round_s = round_of(name, ratio)
    job = Job(
        cluster=cluster(ratio, gbps),
        values={
            "data": {"name": f"{Path(networks.__file__).resolve()}:load", "batch_size": 16},
            "model": {"name": name, "width": network.width},
            "stop": {"epochs": 0.0, "seconds": options.rounds * round_s, "target_accuracy": TARGET},
            "evaluation": {"every": round_s * (0.5 if side is ESYNC else 4)},
        },
    )
    return job.trial(side, lr=network.lr, seed=options.seed)


def round_of(name: str, ratio: float) -> float:
    """Returns the seconds of a round of SSGD: the slowest step, and six models in and out of the server."""
    return CPU_S * ratio + length_of(name) * 12 * 32 / 1e9


def verdict(found: dict[str, dict[str, Curves]]) -> str:
    ratios = {n: seconds_of(t["SSGD"]) / seconds_of(t["ESync"]) for n, t in found.items()}
    slower = [NETWORKS[name].name for name, ratio in ratios.items() if not ratio > 1]
    if slower:
        return f"NOT reproduced: ESync is not faster with {', '.join(slower)}."
    within = [NETWORKS[name].name for name, ratio in ratios.items() if 0.5 <= ratio / NETWORKS[name].paper <= 2]
    above = [NETWORKS[name].name for name, ratio in ratios.items() if 2 < ratio / NETWORKS[name].paper < math.inf]
    missed = [NETWORKS[name].name for name, ratio in ratios.items() if math.isinf(ratio)]
    below = [NETWORKS[name].name for name, ratio in ratios.items() if ratio / NETWORKS[name].paper < 0.5]
    parts = [
        f"{label} of the paper's figure: {', '.join(names)}."
        for label, names in (("Within a factor of two", within), ("More than twice", above), ("Less than half", below))
        if names
    ]
    parts += [f"SSGD was given up with {', '.join(missed)}."] if missed else []
    order = sorted(ratios, key=lambda name: -ratios[name])
    papers = sorted(ratios, key=lambda name: -NETWORKS[name].paper)
    agrees = "is the paper's" if order == papers else "is NOT the paper's"
    if math.inf in ratios.values():
        agrees = "is not decided, as SSGD missed the target with some"
    return "ESync is faster with each of them: reproduced. " + " ".join(parts) + (
        f" Their order, {', '.join(NETWORKS[name].name for name in order)}, {agrees}. The paper's devices also loaded "
        "data and evaluated within the round; ours compute and send only."
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
