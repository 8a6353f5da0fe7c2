"""How long it takes a worker to hand a gradient over and get weights back, against what the machine allows.

python benchmarks/exchange.py [--mbytes 100] [--rounds 9] [--transports shm,tcp] [--slice-mb shm=0,tcp=4] [--gate warn]

One worker, one server, ASP, plain SGD; what is measured and against which limit is told by `paceline bench exchange
--help`, which measures the same. Claims: shared memory within 1.5 times its limit, TCP within 1.25 times, and, with
--gate off,warn, which take turns, that judging what is pushed makes it at most 1.05 times as long.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

from paceline.bench import exchange
from paceline.bench.report import conditions, table, write
from paceline.bench.result import Figure, floats

BOUNDS = {"shm": 1.5, "tcp": 1.25}
GATE_BOUND = 1.05


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mbytes", type=float, default=100.0, help="size of the model, in millions of bytes")
    parser.add_argument("--rounds", type=int, default=9, help="measurements of each, in turn")
    parser.add_argument("--transports", default="shm,tcp", help="which, e.g. tcp")
    parser.add_argument("--slice-mb", default="shm=0,tcp=4", help="MiB of a slice by transport; 0: the whole vector")
    parser.add_argument("--gate", default="warn", help="whether the servers judge what is pushed; off,warn: in turn")
    parser.add_argument("--device", default="cpu", help="where the worker's vectors live: cpu or cuda")
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    slices_mb = {name: float(mb) for name, _, mb in (part.partition("=") for part in options.slice_mb.split(","))}
    jobs = [
        exchange.ExchangeJob(
            transport=name,
            length=floats(options.mbytes),
            slice_mb=slices_mb.get(name, 0.0),
            gate=gate,
            device=options.device,
        )
        for name in options.transports.split(",")
        for gate in options.gate.split(",")
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
    dear = [price for price in prices(figures) if price > GATE_BOUND]
    return 1 if late or dear else 0


def prices(figures: Sequence[Figure]) -> Iterator[float]:
    """How many times as long it takes with the gate, where it was measured with and without."""
    free = {f.conditions["transport"]: f for f in figures if f.conditions["gate"] == "off"}
    for figure in figures:
        without = free.get(figure.conditions["transport"])
        if without is not None and figure is not without:
            price = figure.seconds_median / without.seconds_median
            verdict = "holds" if price <= GATE_BOUND else "DOES NOT HOLD"
            print(f"{figure.what}: {price:.2f} times as long as without a gate, claimed {GATE_BOUND}: {verdict}")
            yield price


if __name__ == "__main__":
    sys.exit(main())
