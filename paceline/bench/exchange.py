"""How long it takes a worker to hand a gradient over and get weights back, against what the machine allows.

Workers and servers are processes of their own with one thread each for arithmetic; ASP (or another scheme), plain SGD,
float32. A push and pull begins with the gradient in the worker's buffer and ends with the new weights in its hands: all
of them can be read, as one vector. With several workers it lasts as long as the slowest one's. What bounds it:

- shared memory: the servers read w and g and write w', 3 bytes moved for each byte of the model, once a worker. The
  limit is the time of as many `torch.add(w, g, alpha=..., out=w')` in one process, on a thread a server. The gradient
  is not copied on its way, the weights are read where the server wrote them.
- TCP: the gradients one way and the weights the other, by plain `sendmsg` and `recv_into` of two processes over the
  loopback address, one way after the other, on a connection for each pair of worker and server. Slices pass both ways
  at once, so an exchange may take less. With --tls the limit is the same: the ratio has the price of TLS in it.
- a worker on a GPU: the gradient from the GPU into page-locked memory and the weights back, one after the other, by
  torch alone, and then the limit as above. With slices the copies go on beside the rest.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from paceline.bench.bare_party import Ears, keys, open_party, way_of
from paceline.bench.hardware_limits import RawSockets, copy_limit, update_limit
from paceline.bench.result import FLOAT_BYTES, Figure, Note, say_nothing
from paceline.bench.subprocess_job import Child, Children, ParentStream
from paceline.core.coordination import party
from paceline.core.effects import Computed
from paceline.core.paramserver.gradient_check import WARN, GradientCheckPolicy
from paceline.core.role import RoleContext
from paceline.core.scheme import make
from paceline.core.sharding import Layout, lay_out
from paceline.engine.accelerators import wait_for
from paceline.engine.optim.optimizers import make_rule
from paceline.engine.specs import OptimizerRecipe
from paceline.engine.vectors.buffer_pool import spare
from paceline.engine.vectors.flat import Flat
from paceline.engine.vectors.norm_probe import Probe
from paceline.live.node.hosted_slice import ServedSlice

WARM_ROUNDS = 3
"""Exchanges before the first that counts: buffers are allocated, and connections find their speed."""
SLICES_MB = {"shm": 0.0, "tcp": 4.0}
"""MiB of a slice with which each way is at its best where the weights are wanted as one vector."""
LIMITS = {"shm": "a pass over memory", "tcp": "plain sockets, one way after the other"}
"""What bounds an exchange over each transport, as the table names it."""
COPIES = "copies off and onto the GPU, then"
"""What comes before that for workers on a GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeJob:
    """Describes one measured exchange: who takes part, over which transport, with how many parameters.

    length    float32 parameters of the model
    slice_mb  MiB of a slice; 0 for one slice a server
    load      the new weights are copied into a buffer of the worker's own, as into a module
    tls       as between hosts; for tcp only
    gate      how the servers check what is pushed (docs/numbers.md)
    device    where gradients and weights of the workers live; on a GPU, `load` is as if it were given
    """

    transport: str
    length: int
    workers: int = 1
    servers: int = 1
    scheme: str = "asp"
    slice_mb: float = 0.0
    load: bool = False
    tls: bool = False
    gate: str = WARN
    device: str = "cpu"

    def layout(self) -> Layout:
        """Returns how the model is cut into shards and slices. Raises ConfigError where it is too small for that."""
        return lay_out(self.length, self.servers, round(self.slice_mb * 2**20 / FLOAT_BYTES))

    def limit(self) -> contextlib.AbstractContextManager[Callable[[], float]]:
        """Returns a context whose function measures the seconds of the limit once for each call."""
        bare = _raw(self) if self.transport == "tcp" else contextlib.nullcontext(_updates(self))
        return bare if self.device == "cpu" else _after_copies(self, bare)


def _updates(job: ExchangeJob) -> Callable[[], float]:
    """Returns a function that measures the updates of all workers in one process, a thread for each server."""
    return update_limit(job.length, threads=job.servers, times=job.workers)


@contextlib.contextmanager
def _after_copies(
    job: ExchangeJob, bare: contextlib.AbstractContextManager[Callable[[], float]]
) -> Iterator[Callable[[], float]]:
    """Gives a function that measures both copies of a GPU, and the limit of a worker without one after them."""
    copies = copy_limit(job.length, job.device)
    with bare as limit:
        yield lambda: copies() + limit()


@contextlib.contextmanager
def _raw(job: ExchangeJob) -> Iterator[Callable[[], float]]:
    """Gives a function that moves a server's shard each way by plain sockets, one lane for each worker and server."""
    nbytes = max(1, FLOAT_BYTES * job.length // job.servers)
    with RawSockets(nbytes, nbytes, lanes=job.workers * job.servers) as raw:
        yield raw.once


class Running:
    """Starts the processes of a job on entry, connects them, and ends them on exit.

    servers   listen, and tell their address
    workers   start meanwhile; are told all addresses; connect; say that they are ready
    then      each number that a worker is told is answered by the seconds of so many exchanges
    """

    def __init__(self, job: ExchangeJob) -> None:
        self._job = job
        self._held = contextlib.ExitStack()
        self._children = self._held.enter_context(Children())
        self._workers: list[Child] = []

    def __enter__(self) -> Running:
        job = self._job
        parties = [*map(party.server, range(job.servers)), *map(party.worker, range(job.workers))]
        try:
            credentials = self._held.enter_context(keys(job.tls, parties))
            plain = {**dataclasses.asdict(job), "credentials": credentials}
            servers = [self._children.start("exchange.serve", {**plain, "me": s}) for s in range(job.servers)]
            workers = [self._children.start("exchange.work", {**plain, "me": w}) for w in range(job.workers)]
            addresses = [server.hear() for server in servers]
            for worker in workers:
                worker.hear()  # that it is here
                worker.tell(addresses)
            for worker in workers:
                worker.hear()  # that it is ready
        except BaseException:
            self.__exit__()
            raise
        self._workers = workers
        return self

    def exchange(self, times: int) -> list[float]:
        """Returns the seconds of each of `times` exchanges, those of the slowest worker.

        An exchange is a push and a pull of the whole vector. All workers begin together.
        """
        return [max(together) for together in zip(*self.exchange_each(times), strict=True)]

    def exchange_each(self, times: int) -> list[list[float]]:
        """Returns the seconds of each of `times` exchanges of each worker, which begin together and go on alone."""
        for worker in self._workers:
            worker.tell(times)
        return [worker.hear() for worker in self._workers]

    def __exit__(self, *_: object) -> None:
        self._held.close()


def serve(job: dict[str, Any], stream: ParentStream) -> None:
    """Is the main function of a server's process; it returns when its parent wants nothing more.

    Its boxes run on the transport's thread, as in a run. This thread only waits.
    """
    me, credentials = job.pop("me"), job.pop("credentials")
    own = ExchangeJob(**job)
    node, way = open_party(
        party.server(me), own.transport, workers=own.workers, servers=own.servers, credentials=credentials
    )
    layout, scheme = own.layout(), make(own.scheme, {})
    box = scheme.server(len(layout.slices))
    assert box is not None

    def hosted(number: int) -> ServedSlice:
        part = layout.slices[number]
        w, rule = Flat(spare(part.stop - part.start).zero_()), make_rule(OptimizerRecipe(name="sgd", lr=0.01))
        gate = GradientCheckPolicy(mode=own.gate).gate(Probe(len(w)), own.workers, me, None)
        place = RoleContext(me=number, workers=tuple(range(own.workers)), w=w, update=rule, gate=gate)
        return ServedSlice(len(w), box(scheme, place))

    node.host([hosted(number) for number in layout.of(me)])
    way.open(Ears(node))
    stream.tell(way.address)
    stream.hear()


def work(job: dict[str, Any], stream: ParentStream) -> None:
    """Is the main function of a worker's process: for each number that it is told it makes so many exchanges.

    It answers with their seconds. The scheme is the one of a run, resumed with the same gradient again and again.
    """
    me, credentials = job.pop("me"), job.pop("credentials")
    own = ExchangeJob(**job)
    node, way = open_party(
        party.worker(me),
        own.transport,
        workers=own.workers,
        servers=own.servers,
        credentials=credentials,
        device=own.device,
    )
    way.open(Ears(node))
    device = torch.device(own.device)
    g, module = Flat(spare(own.length, device).fill_(1e-3)), spare(own.length, device).zero_()
    stream.tell("here")
    for server, address in enumerate(stream.hear()):
        way.connect(party.server(server), address)
    layout, scheme = own.layout(), make(own.scheme, {})
    place = RoleContext(me=me, workers=tuple(range(own.workers)), w=None, update=lambda w, g, samples: w)
    node.place(scheme.worker(len(layout.slices))(scheme, place), layout)
    compute: Any = node.advance()
    stream.tell("ready")
    while True:
        times = []
        for _ in range(stream.hear()):
            began = time.perf_counter()
            compute = node.advance(Computed(g=g, samples=1, seconds=0.0))
            if own.load or device.type != "cpu":
                compute.w.copy_into(module)
                wait_for(device)
            else:
                _ = compute.w.tensor  # waits for weights that are still arriving, and joins those that lie apart
            times.append(time.perf_counter() - began)
        stream.tell(times)


def time_push_pull(running: Running, times: int = 1) -> float:
    """Returns the median seconds of a push and a pull."""
    return statistics.median(running.exchange(times))


def measure(jobs: Sequence[ExchangeJob], rounds: int, note: Note = say_nothing) -> Iterator[Figure]:
    """Yields a figure for each job. Neighbours with the same limit take turns with it and with one another.

    Raises ConfigError before any process is started for a job that cannot be laid out, PacelineError when one fails.
    """
    for job in jobs:
        job.layout()
    for _, alike in itertools.groupby(jobs, key=_same_limit):
        yield from _in_turns(list(alike), rounds, note)


def _same_limit(job: ExchangeJob) -> tuple[str, int, int, int, str]:
    """Returns what the limit depends on."""
    return job.transport, job.length, job.workers, job.servers, job.device


def _in_turns(jobs: Sequence[ExchangeJob], rounds: int, note: Note) -> Iterator[Figure]:
    """Yields the figures of jobs that have one limit: in each round every job is measured once, and the limit.

    What slows the machine down for a while then slows all sides down, and the ratio stays.
    """
    what = f"push and pull over {way_of(jobs[0].transport, jobs[0].tls)}"
    note(f"{what}: starting {sum(job.workers + job.servers for job in jobs)} processes")
    bound: list[float] = []
    with jobs[0].limit() as limit, contextlib.ExitStack() as stack:
        sides = [(stack.enter_context(Running(job)), list[float]()) for job in jobs]
        for running, _ in sides:
            time_push_pull(running, WARM_ROUNDS)
        limit()
        for number in range(rounds):
            note(f"{what}: round {number + 1} of {rounds}")
            for running, seconds in sides:
                seconds.append(time_push_pull(running))
            bound.append(limit())
    for job, (_, seconds) in zip(jobs, sides, strict=True):
        yield _figure(job, seconds, bound)


def _figure(job: ExchangeJob, seconds: Sequence[float], bound: Sequence[float]) -> Figure:
    gate = f", gate {job.gate}" if job.gate != WARN else ""
    return Figure.of(
        f"push and pull, {way_of(job.transport, job.tls)}{gate}{', ' + job.device if job.device != 'cpu' else ''}",
        LIMITS[job.transport] if job.device == "cpu" else f"{COPIES} {LIMITS[job.transport]}",
        FLOAT_BYTES * job.length,
        seconds,
        bound,
        transport=job.transport,
        workers=job.workers,
        servers=job.servers,
        scheme=job.scheme,
        slice_mb=job.slice_mb,
        tls=job.tls,
        gate=job.gate,
        device=job.device,
        rounds=len(bound),
    )
