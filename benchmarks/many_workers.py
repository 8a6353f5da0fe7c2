"""How many exchanges a second many workers make with few servers, and how long the slowest of a hundred takes.

python benchmarks/many_workers.py [--workers 2,4,8,16] [--servers 1,2] [--mbytes 1] [--transports shm,tcp] [--times 200]

ASP, plain SGD, one process each, as in `benchmarks/exchange.py`, nothing computed in between: each worker pushes as
soon as it has its weights, so all servers are always busy. For each number of workers and servers the table has

    exchanges/s   pushes and pulls of the whole model, of all workers together
    MB/s          bytes of gradients and weights that went either way
    of the limit  exchanges a second over those of the limit: over shared memory one pass over memory an exchange
                  (`torch.add` of two vectors into a third, a thread a server), over TCP the same bytes by plain
                  sockets, a connection for each pair
    p50, p99      milliseconds of single exchanges: half of them, and 99 of 100, take no longer

The claim: 99 of 100 exchanges take at most 4 times as long as the median one, so that no worker is forgotten.
"""

from __future__ import annotations

import argparse
import statistics
import sys

from _verdict import verdict

from paceline.bench import exchange
from paceline.bench.exchange import ExchangeJob
from paceline.bench.report import conditions
from paceline.bench.result import FLOAT_BYTES, floats

WARM = 20
"""Exchanges of each worker before the first that counts."""
LIMIT_ROUNDS = 15
TAIL_BOUND = 4.0


def measured(job: ExchangeJob, times: int) -> list[list[float]]:
    """Returns the seconds of `times` exchanges of each worker."""
    with exchange.Running(job) as running:
        running.exchange_each(WARM)
        return running.exchange_each(times)


def limit(job: ExchangeJob) -> float:
    """Returns the median seconds in which the machine moves the bytes of one exchange of every worker."""
    with job.limit() as once:
        once()
        return statistics.median(once() for _ in range(LIMIT_ROUNDS))


def row(job: ExchangeJob, times: int) -> float:
    """Prints one line of the table; returns how many times the median the slowest of a hundred takes."""
    each, bound = measured(job, times), limit(job)
    # Workers end at different moments, so each counts with its own rate.
    rate = sum(times / sum(seconds) for seconds in each)
    of_limit = rate * bound / job.workers
    moved = 2 * FLOAT_BYTES * job.length * rate / 1e6
    together = [1e3 * seconds for one in each for seconds in one]
    p50, p99 = statistics.median(together), statistics.quantiles(together, n=100)[98]
    print(
        f"{job.transport:9} {job.workers:7} {job.servers:7} {rate:11.0f} {moved:7.0f} {of_limit:12.2f}"
        f" {p50:8.2f} {p99:8.2f}",
        flush=True,
    )
    return p99 / p50


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", default="2,4,8,16")
    parser.add_argument("--servers", default="1,2")
    parser.add_argument("--mbytes", type=float, default=1.0, help="size of the model, in millions of bytes")
    parser.add_argument("--transports", default="shm,tcp")
    parser.add_argument("--times", type=int, default=200, help="exchanges of each worker")
    options = parser.parse_args()
    print(f"{conditions()}, {options.mbytes:g} MB of float32, {options.times} exchanges of each worker")
    print("transport workers servers exchanges/s    MB/s of the limit   p50 ms   p99 ms")
    worst = 0.0
    for name in options.transports.split(","):
        for servers in map(int, options.servers.split(",")):
            for workers in map(int, options.workers.split(",")):
                job = ExchangeJob(transport=name, length=floats(options.mbytes), workers=workers, servers=servers)
                worst = max(worst, row(job, options.times))
    return verdict(
        f"99 of 100 exchanges within {worst:.1f} times the median, claimed {TAIL_BOUND}", worst <= TAIL_BOUND
    )


if __name__ == "__main__":
    sys.exit(main())
