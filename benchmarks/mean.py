"""What a mean over workers costs through each carrier, against torch's own all-reduce on Gloo.

python benchmarks/mean.py [--workers 2] [--mbytes 100] [--rounds 9] [--carriers ring,pairwise] [--transports shm,tcp]

What is measured, and against which limit, is told by `paceline bench mean --help`, which measures the same. The claim:
the carrier that `--allreduce auto` takes is not slower than Gloo.
"""

from __future__ import annotations

import argparse
import sys

from _verdict import verdict

from paceline.bench import mean
from paceline.bench.report import conditions, table, write
from paceline.bench.result import floats
from paceline.core.collective import PEERS, Fabric, LinkCost, choose

BOUND = 1.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2, help="processes that average")
    parser.add_argument("--mbytes", type=float, default=100.0, help="size of the vector")
    parser.add_argument("--rounds", type=int, default=9, help="rounds that count")
    parser.add_argument("--carriers", default=",".join(PEERS), help="schedules, of " + ", ".join(PEERS))
    parser.add_argument("--transports", default="shm,tcp", help="shm, tcp, or both")
    parser.add_argument("--json", metavar="FILE", help="also write the figures there")
    options = parser.parse_args()
    job = mean.MeanJob(
        carriers=options.carriers.split(","),
        transports=options.transports.split(","),
        length=floats(options.mbytes),
        workers=options.workers,
    )
    figures = list(mean.measure(job, options.rounds))
    print(f"{conditions()}, {options.workers} workers, {options.mbytes:g} MB of float32, {options.rounds} rounds")
    print(table(sorted(figures, key=lambda figure: figure.seconds_median)))
    if options.json:
        write(options.json, "mean", figures)
    seconds = {figure.what: figure.seconds_median for figure in figures}
    fabric = Fabric(("here",) * options.workers, LinkCost(1e-4, 2e-10))
    taken = f"{choose(fabric, round(options.mbytes * 1e6)).name}, {job.transports[0]}"
    if taken not in seconds:
        print(f"auto takes {taken}, which was not measured: DOES NOT HOLD")
        return 1
    ratio = seconds[taken] / seconds[mean.GLOO]
    return verdict(f"{taken} (what auto takes): {ratio:.2f} of Gloo, claimed at most {BOUND}", ratio <= BOUND)


if __name__ == "__main__":
    sys.exit(main())
