"""Prague against BSP on an all-reduce and AD-PSGD, with one worker that is slower: time to a target.

python benchmarks/papers/prague.py [--lrs 0.1,0.3,1] [--seeds 1,2,3] [--workers 16] [--target 0.9]

Claim of Luo et al. (ASPLOS 2020), abstract: with equal workers Prague is 1.2 times faster than All-Reduce and 3.7 times
faster than AD-PSGD; in a heterogeneous setting it "tolerates slowdowns well and achieves 4.4x speedup over All-Reduce".
"""

from __future__ import annotations

import argparse
import statistics
import sys

from common import (
    Job,
    Page,
    Side,
    Sweep,
    Trial,
    axes_of,
    conditions,
    curves,
    options_of,
    rates_of,
    shown,
    sweep,
    table,
    times,
)

from paceline.sim import Cluster
from paceline.sim.cluster.model import Device, Host, NetworkSpec

BSP = Side(name="BSP, ring", scheme="bsp", allreduce="ring")
ADPSGD = Side(name="AD-PSGD", scheme="adpsgd")
PRAGUE = Side(name="Prague", scheme="prague")
UNFILTERED = Side(name="Prague, no filter", scheme="prague", parameters={"c_thres": 1_000_000})
SIDES = (BSP, ADPSGD, PRAGUE, UNFILTERED)
FACTORS = (1.0, 2.0, 5.0)
"""How much slower one worker is."""
BATCH = 16
STEP_S = 0.1
GBPS = 0.1
"""At which a model takes a twentieth of a step."""


def cluster(workers: int, factor: float) -> Cluster:
    devices = [Device(factor=factor if rank == workers // 3 else 1.0, jitter=0.05) for rank in range(workers)]
    hosts = tuple(Host(name=f"worker-{rank}", devices=(device,)) for rank, device in enumerate(devices))
    return Cluster(hosts=hosts, step_s=STEP_S, network=NetworkSpec(bandwidth_gbps=GBPS))


def job(factor: float, options: argparse.Namespace) -> Job:
    return Job(
        cluster=cluster(options.workers, factor),
        values={
            "data": {"name": "digits", "batch_size": BATCH},
            "model": {"name": "mlp"},
            "stop": {"epochs": 60.0, "target_accuracy": options.target},
            "evaluation": {"every": 0.2},
        },
    )


def main(arguments: list[str] | None = None) -> int:
    parser = options_of(__doc__, lrs=[0.1, 0.3, 1.0], seeds=[1, 2, 3])
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--target", type=float, default=0.95)
    options = parser.parse_args(arguments)
    page = Page("prague", "Prague against BSP on an all-reduce and AD-PSGD", options.pages, __doc__)
    page.say(
        conditions(
            f"{options.workers} workers without servers, batches of {BATCH}, an mlp on the digits, target "
            f"{options.target} on the test set for the mean of the workers' models. A step takes {STEP_S} s with 5 % "
            f"jitter; cards of {GBPS * 1000:g} Mbit/s, on which the model takes about 5 ms. One worker is slower by "
            f"the factor in the first column. Plain SGD; each side at its best rate, median of seeds "
            f"{', '.join(map(str, options.seeds))}."
        )
    )
    found = {factor: {side.name: train(job(factor, options), side, options) for side in SIDES} for factor in FACTORS}
    page.say("## Time to the target")
    page.say(table(HEAD, [row for factor in FACTORS for row in rows_of(factor, found[factor])]))
    page.say(reading(found))
    page.say("## Every rate")
    for factor, sweeps in found.items():
        page.say(f"Seconds to the target with one worker {factor:g} times slower:")
        rates = rates_of(sweeps.values())
        page.say(table(["rate", *sweeps], [[f"{lr:g}", *(s.cell(lr) for s in sweeps.values())] for lr in rates]))
    figure, axes = axes_of(len(FACTORS))
    for one, (factor, sweeps) in zip(axes, found.items(), strict=True):
        curves(one, sweeps, target=options.target)
        one.set_title("equal workers" if factor == 1 else f"one of them {factor:g} times slower", fontsize=9)
    page.figure(figure, "Test accuracy against virtual time, for three speeds of one worker")
    page.write()
    return 0


def train(work: Job, side: Side, options: argparse.Namespace) -> Sweep:
    return sweep(work, side, options.lrs, options.seeds)


HEAD = ["slower", "scheme", "best rate", "seconds to target", "times as fast as BSP", "samples/s", "waits"]


def rows_of(factor: float, sweeps: dict[str, Sweep]) -> list[list[str]]:
    base = sweeps[BSP.name].best
    return [
        [
            f"{factor:g} times",
            name,
            f"{s.best_lr:g}",
            shown(s.best, " s"),
            f"{base / s.best:.2f}",
            shown(median(s, lambda trial: trial.summary.samples_per_second)),
            f"{100 * median(s, lambda trial: trial.summary.shares.waiting):.0f} %",
        ]
        for name, s in sweeps.items()
    ]


def median(found: Sweep, figure: object) -> float:
    """Of a figure of the summary, over the seeds at the best rate."""
    trials: list[Trial] = [trial for trial in found.trials[found.best_lr] if trial.summary]
    return statistics.median(map(figure, trials))  # type: ignore[call-overload, no-any-return]


def reading(found: dict[float, dict[str, Sweep]]) -> str:
    ratio = {factor: sweeps[BSP.name].best / sweeps[PRAGUE.name].best for factor, sweeps in found.items()}
    gossip = {factor: sweeps[ADPSGD.name].best / sweeps[PRAGUE.name].best for factor, sweeps in found.items()}
    own = {factor: found[factor][PRAGUE.name].best / found[1.0][PRAGUE.name].best for factor in FACTORS}
    tolerated = max(own.values()) < 1.5 and ratio[5.0] > 2
    return (
        f"Against BSP Prague is {times(ratio[1.0])} as fast with equal workers, {times(ratio[2.0])} with one that is "
        f"twice as slow and {times(ratio[5.0])} with one that is five times as slow. Its own time is then "
        f"{own[2.0]:.2f} and {own[5.0]:.2f} of that with equal workers. That slowdowns are tolerated is "
        f"{'reproduced' if tolerated else '**NOT reproduced**'}; the paper's 4.4 depends on its cluster, and a factor "
        f"of 5 bounds it here.\n\nAgainst AD-PSGD it is {times(gossip[1.0])}, {times(gossip[2.0])} and "
        f"{times(gossip[5.0])} as fast. The paper's 3.7 is not to be had here: its reason is the overhead of AD-PSGD's "
        "synchronisation, and ours never waits."
    )


if __name__ == "__main__":
    sys.exit(main())
