"""What one worker under BSP costs over the plain PyTorch loop of the same model.

python benchmarks/overhead.py [--steps 8] [--rounds 9] [--models lenet,cnn,resnet18]

What is measured is told by `paceline bench overhead --help`, which measures the same: `alone` is `paceline.join`
without a launcher (no server: the optimizer runs in this process), `1 server` is `paceline launch -n 1 -s 1` (gradient
and weights go to a process of their own and back, every step). The claim is a ratio of at most 1.05.
"""

from __future__ import annotations

import argparse
import sys

from _verdict import verdict

from paceline.bench import overhead
from paceline.bench.report import conditions, table, write

MODELS = ("lenet", "cnn", "resnet18")
BOUND = 1.05


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=8, help="steps of a block")
    parser.add_argument("--rounds", type=int, default=9, help="pairs of blocks")
    parser.add_argument("--models", default=",".join(MODELS), help="names separated by commas")
    parser.add_argument("--transport", default="auto", help="auto, shm or tcp")
    parser.add_argument("--json", metavar="FILE", help="also write the figures there")
    options = parser.parse_args()
    jobs = [
        overhead.OverheadJob(
            model=model, servers=servers, transport=options.transport, steps=options.steps, rounds=options.rounds
        )
        for model in options.models.split(",")
        for servers in (0, 1)
    ]
    print(f"{conditions()}, one thread each, {options.rounds} rounds of {options.steps} steps", flush=True)
    figures = list(overhead.measure(jobs))
    print(table(figures, speed=False))
    if options.json:
        write(options.json, "overhead", figures)
    worst = max(figure.ratio for figure in figures)
    return verdict(f"worst ratio {worst:.3f}, claimed at most {BOUND}", worst <= BOUND)


if __name__ == "__main__":
    sys.exit(main())
