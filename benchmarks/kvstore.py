"""A push and pull of one large vector, against MXNet 1.9.1's distributed KVStore on the same machine.

python benchmarks/kvstore.py [--mbytes 100] [--rounds 7] [--only async-shm,async-tcp,sync-shm,async-door,sync-door]

Matches, each with one server and as many workers on either side, processes of their own, plain SGD on the server,
float32. Both sides stay up, and exchanges of the one and the other take turns. An exchange begins with the gradient in
the worker's buffer and ends with the new weights in another buffer of the worker's own, as MXNet's pull does (over
shared memory that is a copy, without which it is faster still: benchmarks/exchange.py). With two workers it lasts as
long as the slower one's. The figures are medians, the ratio is that of the medians. The last two go through
`paceline.kvstore`, on shared memory: the same calls on either side, one push and one pull, with copies in and out.

Claims: asynchronous, one worker, same host (shared memory): 12 times as fast as `dist_async`; the same over TCP: 4
times; a synchronous round of two workers, same host: 8 times as fast as `dist_sync`; through `paceline.kvstore` 3 times
as fast as either.

MXNet is installed into an environment of its own (`.peers/mxnet`, or where PACELINE_MXNET_VENV says).
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

from peers import kvstore  # noqa: E402
from peers.door import Door  # noqa: E402

from paceline.bench.exchange import ExchangeJob, Running  # noqa: E402
from paceline.bench.result import floats  # noqa: E402


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """What is compared, and how many times as fast ours is claimed to be."""

    store: str
    scheme: str
    transport: str
    workers: int
    slice_mb: float
    claimed: float
    door: bool = False


MATCHES = {
    "async-shm": Match(store="dist_async", scheme="asp", transport="shm", workers=1, slice_mb=0.0, claimed=12.0),
    "async-tcp": Match(store="dist_async", scheme="asp", transport="tcp", workers=1, slice_mb=4.0, claimed=4.0),
    "sync-shm": Match(store="dist_sync", scheme="bsp", transport="shm", workers=2, slice_mb=0.0, claimed=8.0),
    "async-door": Match(
        store="dist_async", scheme="asp", transport="shm", workers=1, slice_mb=0.0, claimed=3.0, door=True
    ),
    "sync-door": Match(
        store="dist_sync", scheme="bsp", transport="shm", workers=2, slice_mb=0.0, claimed=3.0, door=True
    ),
}


def play(match: Match, length: int, rounds: int) -> tuple[float, float]:
    """Median seconds of an exchange of MXNet's and of ours."""
    job = ExchangeJob(
        transport=match.transport,
        length=length,
        workers=match.workers,
        scheme=match.scheme,
        slice_mb=match.slice_mb,
        load=match.transport == "shm",  # over TCP they arrive in a buffer of the worker's own
    )
    own = Door(match.store, match.workers, length) if match.door else Running(job)
    with kvstore.Job(match.store, match.workers, length) as peer, own as ours:
        sides: list[tuple[Any, list[float]]] = [(peer, []), (ours, [])]
        for side, _ in sides:
            side.exchange(3)  # warm
        for _ in range(rounds):
            for side, times in sides:
                times += side.exchange(2)[1:]  # the first finds the caches full of the other side's vectors
        return statistics.median(sides[0][1]), statistics.median(sides[1][1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mbytes", type=float, default=100.0, help="size of the vector, in millions of bytes")
    parser.add_argument("--rounds", type=int, default=7, help="measurements of each side, in turn")
    parser.add_argument("--only", default=",".join(MATCHES), help="which matches, e.g. async-tcp")
    parser.add_argument("--json", help="also write the rows to this file")
    options = parser.parse_args()
    unknown = sorted(set(options.only.split(",")) - set(MATCHES))
    if unknown:
        parser.error(f"--only {unknown[0]}: there are {', '.join(MATCHES)}")
    length = floats(options.mbytes)
    rows = []
    print(f"{datetime.date.today()}, {os.cpu_count()} cores, {options.mbytes:g} MB of float32, {options.rounds} rounds")
    print(f"{'':<11}{'MXNet ms':>10}{'Paceline ms':>13}{'times as fast':>15}{'claimed':>9}")
    for name in options.only.split(","):
        match = MATCHES[name]
        try:
            theirs, ours = play(match, length, options.rounds)
        except kvstore.NotThereError as error:
            print(error, file=sys.stderr)
            return 2
        ratio = theirs / ours
        rows.append({"match": name, "mxnet_s": theirs, "paceline_s": ours, "ratio": ratio, "claimed": match.claimed})
        print(f"{name:<11}{theirs * 1e3:>10.1f}{ours * 1e3:>13.1f}{ratio:>15.1f}{match.claimed:>9.1f}", flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=2))
    holds = all(row["ratio"] >= row["claimed"] for row in rows)
    print("the claims hold" if holds else "a claim does not hold")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
