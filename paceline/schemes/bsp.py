"""Bulk synchronous parallel makes one update a round, from the gradients of all workers.

    worker i:  repeat  g_i <- grad f_i(w);  push g_i;  w <- pull
    server:    upon g_1 .. g_N:  g <- sum(n_i g_i) / sum(n_i);  w <- w - eta g;  answer everybody

n_i is the number of samples behind g_i, so N workers with batch b equal one process with batch N b, and unequal
batches equal one process with the union. g and w are flat float32 vectors of the size of the model (shards hold
slices). The pace is that of the slowest worker, every round.

A round may be several mini-batches of each worker (`steps`): gradients averaged, or, with `payload` = delta, local
training whose differences are averaged, as in SpeeDO.

Use it as the reference, and on clusters of equal machines. Not where one worker is slow: everyone waits for it.
Without servers the same box runs on any carrier of Mean (all-reduce), with the optimizer on every worker. `updates` =
workers does so on servers, too, which then carry the mean: an update that needs the norm of the whole gradient
(`--clip-norm`) cannot be made on several servers, since each holds a part of it, so there it is made so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Generator
from typing import Any

from paceline.core.effects import Compute, Effect, Mean, Train, memory_after
from paceline.core.paramserver.gated_server import ClockedServer
from paceline.core.paramserver.gated_worker import ClockedWorker
from paceline.core.paramserver.options import Delta
from paceline.core.role import Role
from paceline.core.scheme import WHOLE_ROUND, Paper, RateShare, parameter, scheme
from paceline.core.spans import updated

ON_SERVERS, ON_WORKERS = "servers", "workers"


@scheme(
    "bsp",
    summary="bulk synchronous: every round waits for everybody",
    paper=Paper(
        key="valiant1990bridging",
        authors="Valiant, Leslie G.",
        title="A Bridging Model for Parallel Computation",
        venue="Communications of the ACM 33(8)",
        year=1990,
        url="https://doi.org/10.1145/79173.79181",
    ),
)
class BSP(Delta):
    updates: str = parameter(
        ON_SERVERS,
        "who makes the update: servers; or workers, each for itself by the mean (so always without servers)",
        choices=(ON_SERVERS, ON_WORKERS),
    )

    whole_rounds = True
    lock_step = True

    Worker = ClockedWorker

    def max_ahead(self) -> int:
        return 0

    def rate_share(self, workers: int) -> RateShare:
        return WHOLE_ROUND

    def worker(self, servers: int) -> type[Role]:
        return self.Equals if self.uses_mean(servers) else super().worker(servers)

    def server(self, servers: int) -> type[Role] | None:
        return None if self.uses_mean(servers) else self.Server

    def uses_mean(self, servers: int) -> bool:
        return servers == 0 or self.updates == ON_WORKERS

    def with_whole_updates(self) -> BSP:
        return dataclasses.replace(self, updates=ON_WORKERS)

    class Server(ClockedServer):
        def partition(self) -> tuple[tuple[int, ...], ...]:
            return (self.workers,)

    class Equals(Role):
        t = 0
        memory: str | None = None  # what the optimizer starts with in the next local steps; None: what the scheme says
        common = ("t", "samples_seen")
        transient = ("memory",)

        def run(self) -> Generator[Effect, Any, None]:
            while True:
                yield from self.local_round() if self.scheme.trains_locally else self.round()
                self.t += 1

        def round(self) -> Generator[Effect, Any, None]:
            c = yield Compute(self.w, self.scheme.steps)
            mean = yield self.mean(c.g, c.samples)
            unused = c.unused if len(self.workers) == 1 else ()
            self.w = updated(self.update, self.w, mean.v, int(mean.weight), unused)
            self.samples_seen += int(mean.weight)

        def local_round(self) -> Generator[Effect, Any, None]:
            trained = yield Train(self.w, self.scheme.steps, memory=self.memory or self.scheme.memory)
            self.memory = memory_after(trained.x, self.scheme.memory)
            mean = yield self.mean(trained.x - self.w, trained.samples)
            self.w = self.w + mean.v * (1.0 / self.scheme.factor)
            self.samples_seen += int(mean.weight)

        def mean(self, v: Any, samples: int) -> Mean:
            return Mean(v, self.workers, tag=f"bsp/{self.t}", weight=float(samples))
