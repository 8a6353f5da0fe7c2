"""What a mean over workers costs through each carrier, against torch's own all-reduce on Gloo.

python benchmarks/mean.py [--workers 2] [--mbytes 100] [--rounds 9] [--carriers ring,pairwise] [--transports shm,tcp]

Every worker is a process of this machine with one thread for arithmetic. In every round each carrier averages one
vector of float32 in turn, after a barrier; a round counts as its slowest worker, the figures are medians of the rounds.
`gloo` is `torch.distributed.all_reduce` itself, which adds up in place and divides by nothing; the others give a new
vector, the weighted mean. `limit` is `torch.add` of two such vectors into a third, in all workers at once: with two
workers, each has to read as much and to write as much as that.

The claim: the carrier that `--mean auto` takes is not slower than Gloo.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from paceline.core.collective import PEERS, Fabric, Link, choose

BOUND = 1.0
PATIENCE_S = 60.0


class Handler:
    """A worker that knows how to carry means, and nothing else."""

    def __init__(self, node: Any) -> None:
        self.node = node

    def deliver(self, src: Any, envelope: Any) -> None:
        self.node.deliver(src, envelope)

    def room_for(self, src: Any, kind: Any, id: int, cls: type, lengths: Any, shared: Any = ()) -> list[Any]:
        return list(self.node.room_for(src, kind, id, lengths, shared))

    def lost(self, src: Any, why: str) -> None:
        self.node.lost(src, why)

    def failed(self, error: BaseException) -> None:
        print(f"failed: {error!r}", file=sys.stderr, flush=True)


def carriers(
    rank: int, workers: int, transport_name: str, parent: Connection, memory: Any
) -> Callable[[str, Any], Any]:
    """`mean(schedule, v)` over connections of that kind; the parent passes the addresses round."""
    from paceline.core.effects import Mean
    from paceline.engine.adder import FlatAdder
    from paceline.job.seat import Seat
    from paceline.live import party
    from paceline.live.node import Node
    from paceline.live.peers import PeerCarrier

    seat = Seat(party=f"worker {rank}", workers=workers, servers=0, coordinator="", token="t", exchange=transport_name)
    transport = seat.transport()
    node = Node(transport, memory)
    peers = node.peers = PeerCarrier(transport, memory, FlatAdder())
    transport.open(Handler(node))
    parent.send(transport.address)
    addresses = parent.recv()
    for other in range(rank):
        transport.connect(party.worker(other), addresses[other])
    node.meet([other for other in range(workers) if other != rank], range(rank))
    count, everybody = itertools.count(), tuple(range(workers))

    def mean(schedule: str, v: Any) -> Any:
        return peers.begin(Mean(v, everybody, next(count)), schedule, (everybody,)).wait(PATIENCE_S)

    return mean


def work(rank: int, options: argparse.Namespace, folder: str, parent: Connection) -> None:
    """One worker: sends the seconds of each round, by carrier."""
    import torch
    import torch.distributed as dist

    from paceline.engine.vector import FlatMemory

    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=options.workers)
    length = options.mbytes * 10**6 // 4
    memory = FlatMemory()
    ways: dict[str, Callable[[], Any]] = {}
    for transport in options.transports.split(","):
        mean = carriers(rank, options.workers, transport, parent, memory)
        v = memory.empty(length)
        v.tensor.normal_()
        for name in options.carriers.split(","):
            ways[f"{name} {transport}"] = lambda mean=mean, name=name, v=v: mean(name, v)  # type: ignore[misc]
    gradient, sums = torch.randn(length), torch.empty(length)
    ways["gloo"] = lambda: dist.all_reduce(gradient)
    ways["limit"] = lambda: torch.add(gradient, gradient, out=sums)
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(options.rounds + 2):
        gradient.fill_(1.0)
        for name, way in ways.items():
            dist.barrier()
            began = time.perf_counter()
            way()
            seconds[name].append(time.perf_counter() - began)
    parent.send({name: each[2:] for name, each in seconds.items()})  # the first two warm up
    parent.recv()


def measure(options: argparse.Namespace) -> dict[str, float]:
    """Median seconds by carrier, of the slowest worker in each round."""
    context = get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        pipes = [context.Pipe() for _ in range(options.workers)]
        workers = [
            context.Process(target=work, args=(rank, options, folder, theirs)) for rank, (_, theirs) in enumerate(pipes)
        ]
        for worker in workers:
            worker.start()
        ours = [end for end, _ in pipes]
        try:
            for _ in options.transports.split(","):
                addresses = [hear(end) for end in ours]
                for end in ours:
                    end.send(addresses)
            answers = [hear(end) for end in ours]
            for end in ours:
                end.send("over")
        finally:
            for worker in workers:
                worker.join(5.0)
                worker.kill()
    slowest = {name: [max(each) for each in zip(*(a[name] for a in answers), strict=True)] for name in answers[0]}
    return {name: statistics.median(each) for name, each in slowest.items()}


def hear(end: Connection) -> Any:
    if not end.poll(PATIENCE_S * 5):
        raise TimeoutError("a worker is silent")
    return end.recv()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2, help="processes that average")
    parser.add_argument("--mbytes", type=int, default=100, help="size of the vector")
    parser.add_argument("--rounds", type=int, default=9, help="rounds that count")
    parser.add_argument("--carriers", default=",".join(PEERS), help="schedules, of " + ", ".join(PEERS))
    parser.add_argument("--transports", default="shm,tcp", help="shm, tcp, or both")
    parser.add_argument("--json", metavar="FILE", help="write the figures there, too")
    options = parser.parse_args()
    medians = measure(options)
    gloo = medians["gloo"]
    print(f"{datetime.date.today()}, {os.cpu_count()} cores, {options.workers} workers, {options.mbytes} MB of float32")
    print(f"{'carrier':<22}{'ms':>8}{'of gloo':>9}{'of limit':>10}")
    for name, seconds in sorted(medians.items(), key=lambda item: item[1]):
        print(f"{name:<22}{seconds * 1e3:>8.1f}{seconds / gloo:>9.2f}{seconds / medians['limit']:>10.1f}")
    fabric = Fabric(("here",) * options.workers, Link(1e-4, 2e-10))
    taken = f"{choose(fabric, options.mbytes * 10**6).name} {options.transports.split(',')[0]}"
    holds = taken in medians and medians[taken] <= BOUND * gloo
    print(
        f"{taken} (what auto takes): {medians.get(taken, 0.0) / gloo:.2f} of Gloo, claimed at most {BOUND}: "
        f"{'holds' if holds else 'DOES NOT HOLD'}"
    )
    if options.json:
        Path(options.json).write_text(
            json.dumps({"workers": options.workers, "bytes": options.mbytes * 10**6, **medians})
        )
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
