"""What a newcomer gets: every scheme at its defaults on 4, 16 and 32 workers, even and uneven, against BSP.

python benchmarks/defaults.py [--schemes asp,ssp,...] [--workers 4,16,32] [--seeds 1,2] [--epochs 6] [--data digits]

All runs train for real, in virtual time: digits for 6 epochs at the default rate, a step of 20 ms, all workers alike or
1 to 4 times as slow. One update more or less moves the accuracy of such short runs by up to 40 points, and the last
mini-batches are small; so a figure is the mean accuracy of the evaluations after the last tenth of the samples and of
the seeds. BSP has the same samples. The claim: no scheme ends more than --bound (5) points below BSP, unless a line has
said before training that it may.
"""

from __future__ import annotations

import argparse
import datetime
import statistics
import sys
from dataclasses import dataclass

import torch
from _verdict import verdict

from paceline import config as configuration
from paceline.config import Config
from paceline.core.errors import PacelineError
from paceline.core.scheme import names
from paceline.launch.local.train import Silent
from paceline.runtime.simulated.setup import SimulationSetup, cluster_of
from paceline.runtime.simulated.simulated_run import VirtualRun
from paceline.runtime.spec.setup_notes import short_run_note
from paceline.runtime.worker.train_loop import load_data
from paceline.sim.cluster.model import NetworkSpec

NETWORK = NetworkSpec(latency_s=1e-4, bandwidth_gbps=10.0)
STEP_MS = 20.0
SLOWEST = 4.0
JUDGED = 0.9
"""Part of the samples after which evaluations count."""


@dataclass(frozen=True, slots=True)
class Column:
    """One cluster of the table."""

    workers: int
    uneven: bool

    @property
    def slowdown(self) -> list[float]:
        last = max(1, self.workers - 1)
        return [1 + (SLOWEST - 1) * rank / last if self.uneven else 1.0 for rank in range(self.workers)]

    def __str__(self) -> str:
        return f"{self.workers} {'uneven' if self.uneven else 'even'}"


def config_of(scheme: str, column: Column, seed: int, options: argparse.Namespace) -> Config:
    return configuration.build(
        {
            "run": {"scheme": scheme, "seed": seed},
            "data": {"name": options.data},
            "cluster": {"workers": column.workers, "slowdown": column.slowdown, "step_ms": STEP_MS},
            "stop": {"epochs": options.epochs},
            "evaluation": {"every": 0.01},
        }
    )


def accuracy(config: Config) -> float:
    """Returns the mean accuracy after the last tenth of the samples; 0 for a run that diverged."""
    run = VirtualRun(SimulationSetup(config=config, cluster=cluster_of(config, NETWORK, lambda: 0.0)), Silent())
    try:
        run.run(leave=False)
    except PacelineError as error:
        print(f"{config.run.scheme}: {error}", file=sys.stderr)
        return 0.0
    last = run.evaluations[-1].samples
    return statistics.mean(one.accuracy for one in run.evaluations if one.samples >= JUDGED * last)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schemes", default=",".join(names()))
    parser.add_argument("--workers", default="4,16,32")
    parser.add_argument("--seeds", default="1,2")
    parser.add_argument("--epochs", type=float, default=6.0)
    parser.add_argument("--data", default="digits")
    parser.add_argument("--bound", type=float, default=5.0, help="points of accuracy below BSP")
    options = parser.parse_args()
    torch.set_num_threads(1)
    seeds = [int(seed) for seed in options.seeds.split(",")]
    columns = [Column(int(n), uneven) for n in options.workers.split(",") for uneven in (False, True)]

    def figure(scheme: str, column: Column) -> float:
        return 100 * statistics.mean(accuracy(config_of(scheme, column, seed, options)) for seed in seeds)

    print(f"{datetime.date.today()}; {options.data}, {options.epochs:g} epochs, seeds {options.seeds}; accuracy in %,")
    print("points against bsp in brackets; * a line before training says that the run is short for the scheme")
    print(" | ".join(["scheme     ", *(f"{column!s:<12}" for column in columns)]))
    of_bsp = {column: figure("bsp", column) for column in columns}
    print(" | ".join(["bsp        ", *(f"{of_bsp[column]:<12.1f}" for column in columns)]), flush=True)
    short: list[str] = []
    for scheme in options.schemes.split(","):
        if scheme == "bsp":
            continue
        cells = []
        for column in columns:
            found, config = figure(scheme, column), config_of(scheme, column, 1, options)
            said = bool(short_run_note(config, len(load_data(config).train)))
            if found < of_bsp[column] - options.bound and not said:
                short.append(f"{scheme} on {column}: {found:.1f}, bsp {of_bsp[column]:.1f}")
            cells.append(f"{found:.1f} ({found - of_bsp[column]:+.0f})" + "*" * said)
        print(" | ".join([f"{scheme:<11}", *(f"{cell:<12}" for cell in cells)]), flush=True)
    for line in short:
        print(f"falls short without a word: {line}")
    return verdict(f"no scheme falls {options.bound:g} points short of bsp without a word", not short)


if __name__ == "__main__":
    sys.exit(main())
