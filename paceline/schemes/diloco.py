"""DiLoCo takes many local steps, then one outer Nesterov step along their average; optionally in fragments.

    worker i:  repeat  H times:  x_i <- InnerOpt(x_i, grad f_i(x_i))
                       Delta <- sum(n_i (w - x_i)) / sum(n_i)          (one Mean over all)
                       v <- mu v + Delta;  w <- w - lr (Delta + mu v)  (OuterOpt)
                       x_i <- w

Douillard et al. 2023, Algorithm 1. w: the global weights, x_i: those of worker i; v, the outer momentum, starts at
zero; all workers compute the same w and v. lr = 1 and mu = 0 is local SGD. InnerOpt is AdamW in the paper.

Streaming DiLoCo (Douillard et al. 2025, arXiv 2501.18512, Algorithm 2): with P `fragments` one of them is exchanged
every H / P steps, in turn, so each one every H steps; with a `delay` of tau steps workers train on while it travels:

    at step t:          send Delta_p = w_p - x_i,p of the fragment p whose turn it is
    at step t + tau:    receive its mean;  (w_p, v_p) <- OuterOpt;  x_i,p <- alpha x_i,p + (1 - alpha) w_p

alpha = 0 forgets what was learnt of p in those tau steps, alpha = 1 would never synchronise. Without a delay alpha
does not matter: x_i,p <- w_p. A fragment is a run of consecutive parameters here (groups of layers in the paper). Only
one is on its way at a time, so tau < H / P.

Memory of the inner optimizer: kept by default; the paper found that to synchronise it costs three times the traffic for
no gain. `average` needs delay = 0: during a delay the optimizers do not pause at one point.

Use it across thin links, with H of some hundred steps on a long run. On short runs H must be small, and on uneven
workers everybody waits for the slowest one's H steps (see asyncdiloco).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from paceline.core.effects import Effect, Start, Wait
from paceline.core.errors import ConfigError
from paceline.core.local.local_sgd import AVERAGE, Trainer, memory_parameter
from paceline.core.role import RoleContext
from paceline.core.scheme import Paper, Scheme, parameter, scheme
from paceline.core.vector import cut, splice


@scheme(
    "diloco",
    summary="many local steps, then an outer Nesterov step; streaming fragments with overlap",
    paper=Paper(
        key="douillard2023diloco",
        authors="Douillard, Arthur and Feng, Qixuan and Rusu, Andrei A. and Chhaparia, Rachita and others",
        title="DiLoCo: Distributed Low-Communication Training of Language Models",
        venue="arXiv 2311.08105",
        year=2023,
        url="https://arxiv.org/abs/2311.08105",
    ),
)
class DiLoCo(Scheme):
    h: int = parameter(20, "H: local steps between two exchanges of the same parameters", low=1)
    outer_lr: float = parameter(0.7, "lr: outer learning rate", low=0.0)
    outer_momentum: float = parameter(0.9, "mu: outer Nesterov momentum", low=0.0, high=0.999)
    fragments: int = parameter(1, "P: parts of the model that are exchanged in turn", low=1)
    delay: int = parameter(0, "tau: local steps during which an exchange may be on its way", low=0)
    alpha: float = parameter(0.5, "with a delay: share of a worker's own fragment in the mixture", low=0.0, high=1.0)
    memory: str = memory_parameter("keep")

    needs_mean = True
    trains_locally = True
    lock_step = True

    def check(self, workers: int, servers: int) -> None:
        super().check(workers, servers)
        if self.h % self.fragments:
            raise ConfigError(f"diloco.h = {self.h} must be a multiple of diloco.fragments = {self.fragments}")
        if self.delay >= self.h // self.fragments:
            raise ConfigError(
                f"diloco.delay = {self.delay}: a fragment must be back before the next one leaves, "
                f"{self.h // self.fragments} steps later; take less"
            )
        if self.delay and self.memory == AVERAGE:
            raise ConfigError("diloco.memory = 'average' needs diloco.delay = 0: with a delay nobody pauses to average")

    class Worker(Trainer):
        common = ("round", "samples_seen", "v")

        def __init__(self, scheme: Any, place: RoleContext) -> None:
            super().__init__(scheme, place)
            self.x: Any = place.w
            self.v: Any = place.w * 0.0
            self.parts = cut(len(place.w), scheme.fragments)
            self.whole = len(self.parts) == 1

        @property
        def private(self) -> tuple[str, ...]:  # type: ignore[override]
            return () if self.whole and not self.scheme.delay else ("x",)  # else x is w after an exchange

        def run(self) -> Generator[Effect, Any, None]:
            tau, between = self.scheme.delay, self.scheme.h // self.scheme.fragments
            while True:
                if self.done is None:
                    # Of the steps between two exchanges, tau have been made while the last one was on its way.
                    self.done = yield self.train(self.x, between - (tau if self.round else 0))
                turn = self.round % len(self.parts)
                x, p = self.done.x, self.parts[turn]
                if self.scheme.memory == AVERAGE:
                    yield from self.average_memory()
                samples = self.samples_ahead + self.done.samples  # all that have moved x since the last exchange
                minus_delta = x - self.w if self.whole else x[p] - self.w[p]
                exchange, ahead = self.mean(minus_delta, float(samples), series=turn), 0
                if tau:
                    ticket = yield Start(exchange)
                    t = yield self.train(x, tau, begins=False)
                    x, ahead = t.x, t.samples
                    mean = yield Wait(ticket)
                else:
                    mean = yield exchange
                self.receive(p, mean.v, x)
                self.samples_seen += int(mean.weight)
                self.samples_ahead = ahead
                self.met()

        def receive(self, p: slice, minus_delta: Any, x: Any) -> None:
            lr, mu = self.scheme.outer_lr, self.scheme.outer_momentum
            alpha = self.scheme.alpha if self.scheme.delay else 0.0
            v_p, w_p, x_p = (self.v, self.w, x) if self.whole else (self.v[p], self.w[p], x[p])
            v = v_p * mu - minus_delta
            w = w_p + (minus_delta - v * mu) * lr
            x_p = x_p * alpha + w * (1 - alpha) if alpha else w
            if self.whole:
                self.v, self.w, self.x = v, w, x_p
            else:
                self.v, self.w, self.x = splice(self.v, p, v), splice(self.w, p, w), splice(x, p, x_p)
