"""How long it takes a worker to hand a gradient over and get weights back, against what the machine allows.

python benchmarks/exchange.py [--mbytes 100] [--rounds 9] [--transports shm,tcp] [--slice-mb shm=0,tcp=4]

One worker, one server, ASP, plain SGD; what is measured and against which limit is told by `paceline bench exchange
--help`, which measures the same. Claims: shared memory within 1.5 times its limit, TCP within 1.25 times.
"""

from __future__ import annotations

import argparse
import sys

from paceline.bench import exchange
from paceline.bench.figure import floats
from paceline.bench.report import conditions, table, write

BOUNDS = {"shm": 1.5, "tcp": 1.25}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mbytes", type=float, default=100.0, help="size of the model, in millions of bytes")
    parser.add_argument("--rounds", type=int, default=9, help="measurements of each, in turn")
    parser.add_argument("--transports", default="shm,tcp", help="which, e.g. tcp")
    parser.add_argument("--slice-mb", default="shm=0,tcp=4", help="MiB of a slice by transport; 0: the whole vector")
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    slices_mb = {name: float(mb) for name, _, mb in (part.partition("=") for part in options.slice_mb.split(","))}
    jobs = [
        exchange.Job(transport=name, length=floats(options.mbytes), slice_mb=slices_mb.get(name, 0.0))
        for name in options.transports.split(",")
    ]
    print(f"{conditions()}, {options.mbytes:g} MB of float32, {options.rounds} rounds")
    figures = list(exchange.measure(jobs, options.rounds))
    print(table(figures))
    if options.json:
        write(options.json, "exchange", figures)
    late = [figure for figure in figures if figure.ratio > BOUNDS[figure.conditions["transport"]]]
    for figure in late:
        bound = BOUNDS[figure.conditions["transport"]]
        print(f"{figure.what}: {figure.ratio:.2f} times the limit, claimed at most {bound}: DOES NOT HOLD")
    if not late:
        print(f"times the limit at most {BOUNDS}: the claims hold")
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
