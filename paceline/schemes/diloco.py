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

Eager updates (Kale et al. 2025, arXiv 2502.12996), with `eager`: an exchange may take until the next turn, and a worker
does not wait to use its own part of it. It goes on with an estimate: its fresh Delta, and those that the others had one
exchange before.

    at the turn of p:   Delta_i <- y_i,p - x_i,p
                        E_i <- Delta_i / M + (Delta' - Delta'_i / M)
                        (y_i,p, u_i,p) <- OuterOpt with E_i;  x_i,p <- y_i,p;  send Delta_i
    at the next turn:   receive the mean Delta;  (w_p, v_p) <- OuterOpt with Delta

Delta'_i and Delta' are this worker's part and the mean of the exchange of p before. So the mean replaces the estimate:
in the sum of all E_i every exchange but the last is its mean. w and v are those of DiLoCo with delayed outer gradients.
They are equal on all workers, and w is the model that is evaluated. y_i and u_i are a worker's own; they start as w and
v do, and with Delta' they cost three vectors. Late means make OuterOpt less stable: a lower lr or mu may be needed.

We had the abstract of that paper and others' summaries, not its algorithm boxes. Ours: 1 / M, M the number of workers,
is n_i over the samples of the last mean, once there is one. A newcomer starts with y = w and u = v, and so does a
worker whose Delta_i is not finite. What is on its way when a run ends, or is resumed, is lost.

Memory of the inner optimizer: kept by default; the paper found that to synchronise it costs three times the traffic for
no gain. `average` needs delay = 0 and no `eager`: otherwise the optimizers do not pause at one point.

Use it across thin links, with H of some hundred steps on a long run. On short runs H must be small, and on uneven
workers everybody waits for the slowest one's H steps (see asyncdiloco).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

from paceline.core.collective.mean_server import Averaged
from paceline.core.effects import Effect, Mean, Start, Wait
from paceline.core.errors import ConfigError
from paceline.core.local.local_sgd import AVERAGE, Trainer, memory_parameter
from paceline.core.role import Role, RoleContext
from paceline.core.scheme import Paper, Scheme, parameter, scheme
from paceline.core.vector import cut, is_finite, splice


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
    eager: bool = parameter(False, "an exchange takes until the next turn; meanwhile its own part of it is estimated")

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
        if self.eager and self.delay:
            raise ConfigError("diloco.eager: an exchange takes until the next turn, so leave out diloco.delay")
        if self.eager and self.memory == AVERAGE:
            raise ConfigError("diloco.memory = 'average' needs diloco.eager = false: with it nobody pauses to average")

    def worker(self, servers: int) -> type[Role]:
        return EagerWorker if self.eager else self.Worker

    def outer(self, w: Any, v: Any, delta: Any) -> tuple[Any, Any]:
        """Returns (w, v) after one step of OuterOpt, Nesterov momentum, along `delta`."""
        v = v * self.outer_momentum + delta
        return w - (delta + v * self.outer_momentum) * self.outer_lr, v

    class Worker(Trainer):
        common = ("round", "samples_seen", "v")

        def __init__(self, scheme: Any, place: RoleContext) -> None:
            super().__init__(scheme, place)
            self.x: Any = place.w
            self.v: Any = place.w * 0.0
            self.parts = cut(len(place.w), scheme.fragments)

        @property
        def private(self) -> tuple[str, ...]:  # type: ignore[override]
            return ("x",) if len(self.parts) > 1 or self.scheme.delay else ()  # else x is w after an exchange

        def run(self) -> Generator[Effect, Any, None]:
            tau, between = self.scheme.delay, self.scheme.h // self.scheme.fragments
            while True:
                if self.done is None:
                    # Of the steps between two exchanges, tau have been made while the last one was on its way.
                    self.done = yield self.train(self.x, between - (tau if self.round else 0))
                turn = self.round % len(self.parts)
                x, p = self.done.x, self.parts[turn]
                yield from self.average_memory()
                samples = self.samples_ahead + self.done.samples  # all that have moved x since the last exchange
                ticket = yield Start(self.mean(x[p] - self.w[p], float(samples), series=turn))
                ahead = 0
                if tau:
                    t = yield self.train(x, tau, begins=False)
                    x, ahead = t.x, t.samples
                mean = yield Wait(ticket)
                self.receive(p, mean.v, x)
                self.samples_seen += int(mean.weight)
                self.samples_ahead = ahead
                self.met()

        def receive(self, p: slice, minus_delta: Any, x: Any) -> None:
            alpha = self.scheme.alpha if self.scheme.delay else 0.0
            w, v = self.scheme.outer(self.w[p], self.v[p], minus_delta * -1.0)
            self.v, self.w = splice(self.v, p, v), splice(self.w, p, w)
            self.x = splice(x, p, x[p] * alpha + w * (1 - alpha) if alpha else w)


class EagerWorker(Trainer):
    """Runs the box of eager updates.

    x: its weights; y, u: its own outer weights and momentum; w, v: those of all workers, without what is on its way.
    owed: by fragment, Delta' - Delta'_i / M, what the means bring that y has not; without Delta' until that has come.
    under_way: the exchange that is not over yet. together: samples of all in the last mean.
    """

    common = ("round", "samples_seen", "v")
    private = ("x", "y", "u", "owed")

    def __init__(self, scheme: Any, place: RoleContext) -> None:
        super().__init__(scheme, place)
        self.x: Any = place.w
        self.y: Any = place.w
        self.v: Any = place.w * 0.0
        self.u: Any = self.v
        self.owed: Any = self.v
        self.parts = cut(len(place.w), scheme.fragments)
        self.under_way: Mean | None = None
        self.together = 0.0

    def load_join_state(self, shown: Mapping[str, Any]) -> None:
        resumed = self.u is not self.v  # what this worker alone has was restored before
        super().load_join_state(shown)
        if not resumed:
            self.u = self.v

    def run(self) -> Generator[Effect, Any, None]:
        while True:
            if self.under_way is None and self.round:
                self.under_way = self.nothing()
            ticket = (yield Start(self.under_way)) if self.under_way else None
            if self.done is None:
                self.done = yield self.train(self.x, self.scheme.h // self.scheme.fragments)
            if ticket is not None:
                self.receive((yield Wait(ticket)))
            self.hand_over()

    def part(self, round: int) -> slice:
        """Returns which fragment has its turn in that round."""
        return self.parts[round % len(self.parts)]

    def nothing(self) -> Mean:
        """Returns a part without weight in the exchange under way, for a newcomer that needs its mean."""
        turn = (self.round - 1) % len(self.parts)
        zero = self.v[self.parts[turn]] * 0.0
        return Mean(zero, self.workers, tag=f"{self.scheme.name}/{self.round - 1}", weight=0.0, series=turn)

    def receive(self, mean: Averaged) -> None:
        """Applies the mean to w and v, and keeps it for the next turn of its fragment, when y takes it in."""
        self.under_way = None
        if not mean.weight:  # everybody has been resumed, and nobody has what was under way
            return
        p, delta = self.part(self.round - 1), mean.v * -1.0
        w, v = self.scheme.outer(self.w[p], self.v[p], delta)
        self.w, self.v = splice(self.w, p, w), splice(self.v, p, v)
        self.owed = splice(self.owed, p, self.owed[p] + delta)
        self.together = mean.weight
        self.samples_seen += int(mean.weight)

    def hand_over(self) -> None:
        """Goes on with the estimate, and has the exchange of this turn under way."""
        assert self.done is not None
        p, samples = self.part(self.round), float(self.done.samples)
        delta = self.y[p] - self.done.x[p]
        self.under_way = self.mean(delta * -1.0, samples, series=self.round % len(self.parts))
        if is_finite(delta):
            self.estimate(p, delta * min(1.0, samples / (self.together or samples * len(self.workers))))
        else:
            self.x, self.y, self.u, self.owed = self.w, self.w, self.v, self.v * 0.0
        self.samples_ahead = int(samples)
        self.met()

    def estimate(self, p: slice, own: Any) -> None:
        """Takes y, u and x on by E_i of fragment `p`; `own` is Delta_i / M."""
        assert self.done is not None
        y, u = self.scheme.outer(self.y[p], self.u[p], own + self.owed[p])
        self.x, self.y, self.u = splice(self.done.x, p, y), splice(self.y, p, y), splice(self.u, p, u)
        self.owed = splice(self.owed, p, own * -1.0)
