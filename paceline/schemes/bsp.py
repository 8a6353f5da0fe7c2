"""Bulk synchronous parallel: one update a round, made of everybody's gradient.

    worker i:  repeat  g_i <- grad f_i(w);  push g_i;  w <- pull
    server:    upon g_1 .. g_N:  g <- sum(n_i g_i) / sum(n_i);  w <- w - eta g;  answer everybody

n_i is the number of samples behind g_i, so N workers with batch b equal one process with batch N b, and unequal
batches equal one process with the union. g and w are flat float32 vectors of the size of the model (shards hold
slices). The pace is that of the slowest worker, every round.

A round may be several mini-batches of each worker (`steps`): gradients averaged, or, with `payload` = delta, local
training whose differences are averaged, as in SpeeDO.

Use it as the reference, and on clusters of equal machines. Not where one worker is slow: everyone waits for it.
Without servers the same box runs on any carrier of Mean (all-reduce), with the optimizer on every worker.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from paceline.core.clocked import ClockedServer
from paceline.core.effects import Compute, Effect, Mean, Train
from paceline.core.exchange import Delta
from paceline.core.pushing import ClockedWorker
from paceline.core.role import Role
from paceline.core.scheme import Paper, scheme
from paceline.core.spans import updated


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
    whole_rounds = True

    Worker = ClockedWorker

    def max_ahead(self) -> int:
        return 0

    class Server(ClockedServer):
        def partition(self) -> tuple[tuple[int, ...], ...]:
            return (self.workers,)

    class Equals(Role):
        t = 0
        common = ("t",)

        def run(self) -> Generator[Effect, Any, None]:
            while True:
                yield from self.local_round() if self.scheme.trains_locally else self.round()
                self.t += 1

        def round(self) -> Generator[Effect, Any, None]:
            c = yield Compute(self.w, self.scheme.steps)
            mean = yield self.mean(c.g, c.samples)
            unused = c.unused if len(self.workers) == 1 else ()
            self.w = updated(self.update, self.w, mean.v, int(mean.weight), unused)

        def local_round(self) -> Generator[Effect, Any, None]:
            trained = yield Train(self.w, self.scheme.steps, memory=self.scheme.memory)
            mean = yield self.mean(trained.x - self.w, trained.samples)
            self.w = self.w + mean.v * (1.0 / self.scheme.factor)

        def mean(self, v: Any, samples: int) -> Mean:
            return Mean(v, self.workers, tag=f"bsp/{self.t}", weight=float(samples))
