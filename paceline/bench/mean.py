"""What a mean over workers costs through each carrier, against the bytes that it has to move.

Every worker is a process with one thread for arithmetic. In every round each carrier averages one vector of float32 in
turn, after a barrier; a round counts as its slowest worker. A carrier gives a new vector, the weighted mean. `gloo` is
`torch.distributed.all_reduce` itself, which adds up in place and divides by nothing. What bounds it, with n workers:

- shared memory: `torch.add` of two such vectors into a third, in all workers at once; with two workers each has to
  read as much and to write as much as that.
- TCP, and gloo: each worker has to send 2 (n - 1) / n vectors, all of them together 2 (n - 1): n - 1 vectors there and
  as many back by plain sockets over the loopback address, on n - 1 connections at once. With --tls the limit is the
  same, and gloo stays as it is, which knows no TLS.
"""

from __future__ import annotations

import functools
import itertools
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from paceline.bench.bare_party import TIMEOUT_S, Ears, keys, open_party, way_of
from paceline.bench.hardware_limits import RawSockets
from paceline.bench.result import FLOAT_BYTES, Figure, Note, say_nothing, timed
from paceline.bench.subprocess_job import Child, Children, ParentStream
from paceline.core.coordination import party
from paceline.core.effects import Mean
from paceline.engine.adder import FlatAdder
from paceline.engine.vectors.flat import FlatMemory
from paceline.live.collectives.peer_backend import PeerCarrier

GLOO, ADD = "gloo", "add"
"""The names of two measurements: Gloo's own all-reduce, and a sum of two vectors in memory."""
WARM_ROUNDS = 2
"""Rounds before the first that counts."""
LIMITS = {"shm": "a pass over memory", "tcp": "plain sockets, one way after the other"}
"""What bounds a mean over each transport, as the table names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanJob:
    """Describes measured means: each carrier over each transport, and Gloo.

    length: float32 elements of the vector. tls: as between hosts; for tcp only.
    """

    carriers: Sequence[str]
    transports: Sequence[str]
    length: int
    workers: int = 2
    tls: bool = False

    def ways(self) -> Iterator[tuple[str, str]]:
        """Yields each carrier over each transport."""
        return itertools.product(self.carriers, self.transports)


def measure(job: MeanJob, rounds: int, note: Note = say_nothing) -> Iterator[Figure]:
    """Yields a figure for each carrier and transport, and one for Gloo. Raises PacelineError when a worker fails."""
    nbytes = FLOAT_BYTES * job.length
    took: dict[str, list[float]] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        keys(job.tls, map(party.worker, range(job.workers))) as credentials,
        RawSockets(nbytes, nbytes, lanes=job.workers - 1) as raw,
        Children() as children,
    ):
        note(f"means: starting {job.workers} processes")
        store = str(Path(folder) / "store")
        common = {**asdict(job), "store": store, "credentials": credentials}
        workers = [children.start("mean.work", {**common, "me": w}) for w in range(job.workers)]
        for _ in job.transports:
            _introduce(workers)
        for worker in workers:
            worker.hear()
        for number in range(WARM_ROUNDS + rounds):
            note(f"means: round {number + 1} of {WARM_ROUNDS + rounds}")
            seconds = {**_one_round(workers), "tcp": raw.once()}
            for name, each in seconds.items():
                took.setdefault(name, []).append(each)
    kept = {name: each[WARM_ROUNDS:] for name, each in took.items()}
    kept["shm"] = kept[ADD]
    for carrier, transport in [*job.ways(), (GLOO, "tcp")]:
        name = GLOO if carrier == GLOO else f"{carrier} {transport}"
        tls = job.tls and carrier != GLOO
        conditions = {"carrier": carrier, "transport": transport, "workers": job.workers, "tls": tls, "rounds": rounds}
        yield Figure.of(
            carrier if carrier == GLOO else f"{carrier}, {way_of(transport, tls)}",
            LIMITS[transport],
            nbytes,
            kept[name],
            kept[transport],
            **conditions,
        )


def _introduce(workers: Sequence[Child]) -> None:
    """Passes the workers' addresses round, so that each can connect to all others."""
    addresses = [worker.hear() for worker in workers]
    for worker in workers:
        worker.tell(addresses)


def _one_round(workers: Sequence[Child]) -> dict[str, float]:
    """Returns the seconds of each way, those of its slowest worker."""
    for worker in workers:
        worker.tell("again")
    answers = [worker.hear() for worker in workers]
    return {name: max(answer[name] for answer in answers) for name in answers[0]}


def work(job: dict[str, Any], stream: ParentStream) -> None:
    """Is the main function of a worker's process: it makes a round whenever it is told something.

    It answers with the seconds of each way. A barrier before each makes all workers begin together.
    """
    me, store, credentials = job.pop("me"), job.pop("store"), job.pop("credentials")
    own = MeanJob(**job)
    torch.set_num_threads(1)
    dist.init_process_group(GLOO, f"file://{store}", rank=me, world_size=own.workers)
    v = FlatMemory().empty(own.length)
    gradient, sums = torch.randn(own.length), torch.empty(own.length)
    ways: dict[str, Callable[[], object]] = {}
    for transport in own.transports:
        mean = _carried(me, own.workers, transport, credentials, stream)
        for carrier in own.carriers:
            ways[f"{carrier} {transport}"] = functools.partial(mean, carrier, v)
    ways[GLOO] = functools.partial(dist.all_reduce, gradient)
    ways[ADD] = functools.partial(torch.add, gradient, gradient, out=sums)
    stream.tell("ready")
    while stream.hear():
        v.tensor.normal_()
        gradient.fill_(1.0)
        seconds = {}
        for name, way in ways.items():
            dist.barrier()
            seconds[name] = timed(way)
        stream.tell(seconds)


def _carried(
    me: int, workers: int, transport: str, credentials: str, stream: ParentStream
) -> Callable[[str, Any], Any]:
    """Returns a function that takes a mean by a carrier, over connections of this transport."""
    node, way = open_party(party.worker(me), transport, workers=workers, servers=0, credentials=credentials)
    peers = node.peers = PeerCarrier(way, FlatMemory(), FlatAdder())
    way.open(Ears(node))
    stream.tell(way.address)
    addresses = stream.hear()
    for other in range(me):
        way.connect(party.worker(other), addresses[other])
    node.neighbours.meet([other for other in range(workers) if other != me], range(me))
    count, everybody = itertools.count(), tuple(range(workers))

    def mean(carrier: str, v: Any) -> Any:
        return peers.begin(Mean(v, everybody, next(count)), carrier, (everybody,)).wait(TIMEOUT_S)

    return mean
