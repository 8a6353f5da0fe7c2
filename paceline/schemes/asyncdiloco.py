"""Asynchronous DiLoCo: nobody waits, momentum is applied once every N arrivals, and slow workers make fewer steps.

    worker i:  repeat  x <- w;  H_i local steps on x;  send Delta = w - x;  (w, H_i) <- the answer
    server:    upon Delta from i (Delayed Nesterov, Algorithm 3):
                   D <- D + Delta;  t <- t + 1
                   every N-th time:   m <- beta m + D / N;  D <- 0
                                      w <- w - eps ((1 - c N + c) beta m + Delta / N)
                   otherwise:         w <- w - eps (c beta m + Delta / N)
                   answer w and H_i <- floor(v_i / max_j v_j  H)        (Dynamic Local Updates)

Liu et al. 2024. eps: `outer_lr`; beta: `outer_momentum`; m and D start at zero; N: `buffer`, by default the workers
that take part; c (0 <= c <= 1 / N) says how much of the momentum is spread over the arrivals between, c = 0 none of it.
v_i is the speed of worker i in steps a second, from durations it reports. So all exchange about equally often, and the
momentum meets one round's worth of gradients instead of each stale one.

Ours: H_i is at least 1, and the first round has H_i = H, because nobody has been timed. The paper's grace period, which
lets the server wait a moment for others that are about to arrive, is left out. Each shard counts N on its own.

Memory of the local optimizer: kept, or reset at every exchange. There is no average: workers never meet.

The default of beta is ours, and lower than DiLoCo's 0.9: late Deltas act as momentum of their own (Mitliagkas et al.
2016, arXiv 1605.09774). With 0.9 and short rounds both together made a small language model diverge; with 0.5 it did
not.

Use it for uneven workers across thin links. On equal workers diloco does the same with less noise.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, ClassVar

from paceline.core.adaptive.step_times import Ranked
from paceline.core.effects import KEEP, RESET, SERVERS, Call, Effect, Reply, Tell
from paceline.core.errors import ConfigError
from paceline.core.local.local_sgd import Trainer
from paceline.core.message import INCREMENT, STATE, Nature, message
from paceline.core.paramserver.async_server import ArrivalServer
from paceline.core.paramserver.gated_server import Pull
from paceline.core.role import RoleContext
from paceline.core.scheme import Paper, Scheme, parameter, scheme
from paceline.core.validation import bounds


@message("asyncdiloco.Delta")
class LocalDelta:
    """`delta` of `samples` samples; `speed`: steps a second; `clock` counts exchanges from 1. Answered by Outer."""

    carries: ClassVar[Nature] = INCREMENT

    delta: bounds.Whole
    clock: bounds.Clock
    samples: bounds.Samples
    speed: bounds.Speed


@message("asyncdiloco.Outer")
class Outer:
    """The global weights; `steps`: how many to make on them."""

    carries: ClassVar[Nature] = STATE

    w: bounds.Whole
    version: bounds.Count
    steps: bounds.Count
    samples_seen: bounds.Count = 0


@scheme(
    "asyncdiloco",
    summary="DiLoCo without waiting: delayed Nesterov momentum, fewer steps for slow workers",
    paper=Paper(
        key="liu2024asynchronous",
        authors="Liu, Bo and Chhaparia, Rachita and Douillard, Arthur and Kale, Satyen and others",
        title="Asynchronous Local-SGD Training for Language Modeling",
        venue="arXiv 2401.09135",
        year=2024,
        url="https://arxiv.org/abs/2401.09135",
    ),
)
class AsyncDiLoCo(Scheme):
    h: int = parameter(20, "H: local steps of the fastest worker between two exchanges", low=1)
    outer_lr: float = parameter(0.7, "eps: outer learning rate", low=0.0)
    outer_momentum: float = parameter(0.5, "beta: outer Nesterov momentum", low=0.0, high=0.999)
    buffer: int = parameter(0, "N: arrivals between two updates of the momentum; 0: the number of workers", low=0)
    c: float = parameter(0.0, "share of the momentum in each arrival, at most 1 / N", low=0.0, high=1.0)
    dynamic: bool = parameter(True, "slow workers make fewer steps (DyLU); otherwise everybody makes H")
    memory: str = parameter(
        "keep", "what an exchange does to the local optimizer's memory: keep or reset it", choices=(KEEP, RESET)
    )

    round_steps = "h"
    trains_locally = True

    def check(self, workers: int, servers: int) -> None:
        super().check(workers, servers)
        n = self.buffer or workers
        if self.c * n > 1:
            raise ConfigError(f"asyncdiloco.c = {self.c:g}: must be at most 1 / N = {1 / n:g}")

    class Worker(Trainer):
        transient = ("steps",)
        steps = 0

        def run(self) -> Generator[Effect, Any, None]:
            if not self.steps:
                self.take((yield Call(SERVERS, Pull())))
            while True:
                if self.done is None:
                    self.done = yield self.train(self.w, self.steps)
                t, clock, speed = self.done, self.round + 1, self.steps / max(self.done.seconds, 1e-9)
                delta = LocalDelta(delta=self.w - t.x, clock=clock, samples=t.samples, speed=speed)
                self.take((yield Call(SERVERS, delta)))
                self.met()

        def take(self, answer: Outer) -> None:
            self.w, self.steps, self.samples_seen = answer.w, answer.steps, answer.samples_seen

    class Server(ArrivalServer):
        takes = LocalDelta
        saved = ("m", "d", "arrived")
        transient = ("speed",)

        def __init__(self, scheme: Any, place: RoleContext) -> None:
            super().__init__(scheme, place)
            self.m: Any = place.w * 0.0
            self.d: Any = None
            self.arrived = 0
            self.speed = Ranked(self.workers)

        def apply(self, src: int, message: LocalDelta) -> float:
            eps, beta, c = self.scheme.outer_lr, self.scheme.outer_momentum, self.scheme.c
            n, delta = self.scheme.buffer or len(self.clocks), message.delta
            self.speed.put(src, message.speed)
            self.d = delta if self.d is None else self.d + delta
            self.arrived += 1
            if self.arrived >= n:
                self.m = self.m * beta + self.d * (1 / n)
                self.arrived, self.d, c = 0, None, 1 - c * n + c
            move = delta * (1 / n) + self.m * (c * beta) if c else delta * (1 / n)
            self.w = self.w - move * eps
            return float(eps / n)

        def answer(self, src: int, before: Any) -> Outer:
            steps, samples = self.steps_of(src), self.samples_seen
            return Outer(w=self.w, version=self.version, steps=steps, samples_seen=samples)

        def steps_of(self, rank: int) -> int:
            h = int(self.scheme.h)
            return self.speed.steps_meanwhile(rank, h) if self.scheme.dynamic else h

        def on_worker_left(self, now: float, rank: int) -> Iterator[Tell | Reply]:
            self.speed.drop(rank)
            yield from super().on_worker_left(now, rank)

        def on_worker_joined(self, now: float, rank: int) -> Iterator[Tell | Reply]:
            self.speed.add(rank)
            yield from super().on_worker_joined(now, rank)
