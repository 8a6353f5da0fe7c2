"""Bulk synchronous parallel: one update a round, made of everybody's gradient.

    worker i:  repeat  g_i <- grad f_i(w);  push g_i;  w <- pull
    server:    upon g_1 .. g_N:  g <- sum(n_i g_i) / sum(n_i);  w <- w - eta g;  answer everybody

n_i is the number of samples behind g_i, so N workers with batch b equal one process with batch N b, and unequal
batches equal one process with the union. g and w are flat float32 vectors of the size of the model (shards hold
slices). The pace is that of the slowest worker, every round.

Use it as the reference, and on clusters of equal machines. Not where one worker is slow: everyone waits for it.
Without servers the same box runs on any carrier of Mean (all-reduce), with the optimizer on every worker.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from paceline.core.clocked import ClockedServer, ClockedWorker
from paceline.core.effects import Compute, Effect, Mean
from paceline.core.role import Role
from paceline.core.scheme import Paper, Scheme, scheme


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
class BSP(Scheme):
    Worker = ClockedWorker

    class Server(ClockedServer):
        def partition(self) -> tuple[tuple[int, ...], ...]:
            return (self.workers,)

    class Equals(Role):
        t = 0

        def run(self) -> Generator[Effect, Any, None]:
            while True:
                c = yield Compute(self.w)
                mean = yield Mean(c.g, self.workers, tag=f"bsp/{self.t}", weight=float(c.samples))
                self.w = self.update(self.w, mean.v, int(mean.weight))
                self.t += 1
