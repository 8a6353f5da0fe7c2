"""Delay-compensated ASGD: a late gradient is corrected to what it would roughly be at today's weights.

    worker m:  repeat  g_m <- grad f_m(w);  push g_m;  w <- pull
    server:    upon g from m:   w <- w - eta (g + lambda_t g . g . (w - w_bak(m)));  answer m
               when m is answered:   w_bak(m) <- w                                          (Algorithms 1 and 2)

    constant   lambda_t = lambda_0                                                              (DC-ASGD-c)
    adaptive   MS <- m MS + (1 - m) g . g;   lambda_t = lambda_0 / sqrt(MS + 1e-7)              (DC-ASGD-a)
    mxnet      lambda_t = lambda_0, and one w_bak for all: the weights before the last update

The dot is element by element. The correction is the first-order Taylor term of the gradient, its Hessian replaced by
lambda g . g (Section 3). `lam` is lambda_0, `m` is m. The paper has lambda_0 = 0.04 for -c, and 2 with m = 0.95 for -a
(Cifar-10); with lambda_0 = 0 it is ASGD. MS is one for all workers, as in the algorithm's box.

`mxnet` is what MXNet's optimizer.DCASGD does, for reproduction: it compensates the last update only, whatever the
delay. (Momentum never worked there. Here, as in every variant, the corrected gradient goes to the server's optimizer.)

The server keeps the weights that each worker computes on: up to one more model per worker, but a reference only, where
workers were answered with the same weights. Adaptive keeps MS as well.

Use it instead of ASP where staleness hurts and the server has the memory. Not with gradients of very different scale
under `constant`: lambda g . g grows with their square (the adaptive variant is for that).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from paceline.core.effects import Reply, Tell
from paceline.core.paramserver.gated_server import ClockedServer, Weights
from paceline.core.paramserver.gated_worker import ClockedWorker
from paceline.core.paramserver.options import Clocked
from paceline.core.role import RoleContext
from paceline.core.scheme import Paper, parameter, scheme

EPSILON = 1e-7
"""Not in the paper's text; that of its authors' code."""


@scheme(
    "dcasgd",
    summary="asynchronous: a late gradient is corrected by a first-order guess of how it has changed",
    paper=Paper(
        key="zheng2017asynchronous",
        authors="Zheng, Shuxin and Meng, Qi and Wang, Taifeng and Chen, Wei and Yu, Nenghai and Ma, Zhi-Ming and "
        "Liu, Tie-Yan",
        title="Asynchronous Stochastic Gradient Descent with Delay Compensation",
        venue="International Conference on Machine Learning (ICML)",
        year=2017,
        url="https://arxiv.org/abs/1609.08326",
    ),
)
class DCASGD(Clocked):
    lam: float = parameter(0.04, "lambda_0: strength of the correction (the paper: 0.04; adaptive: 2)", low=0.0)
    m: float = parameter(0.95, "adaptive: decay of the mean square of the gradients", low=0.0, high=1.0)
    variant: str = parameter(
        "constant", "constant, adaptive, or mxnet (one backup for all)", choices=("constant", "adaptive", "mxnet")
    )

    Worker = ClockedWorker

    class Server(ClockedServer):
        saved = ("mean_square",)
        transient = ("w_bak", "w_prev", "epsilon")  # w_bak: all begin at the weights that they pull

        def __init__(self, scheme: Any, place: RoleContext) -> None:
            super().__init__(scheme, place)
            self.w_bak: dict[int, Any] = {}
            self.w_prev: Any = self.w  # before the last update
            self.mean_square: Any = None
            self.epsilon: Any = None

        def state(self) -> dict[str, Any]:
            return {**super().state(), **({"w_prev": self.w_prev} if self.scheme.variant == "mxnet" else {})}

        def load_state(self, state: Mapping[str, Any]) -> None:
            super().load_state(state)
            self.w_prev = state.get("w_prev", self.w)

        def corrected(self, rank: int, g: Any) -> Any:
            w_bak = self.w_prev if self.scheme.variant == "mxnet" else self.w_bak.get(rank, self.w)
            correction = g * g * (self.w - w_bak) * self.scheme.lam
            if self.scheme.variant == "adaptive":
                correction = correction / self._root_mean_square(g)
            return g + correction

        def _root_mean_square(self, g: Any) -> Any:
            m, square = self.scheme.m, g * g
            if self.epsilon is None:
                self.epsilon = g**0 * EPSILON  # as a vector: vectors are not added to numbers
            if self.mean_square is None:
                self.mean_square = square * (1 - m)
            else:
                self.mean_square = self.mean_square * m + square * (1 - m)
            return (self.mean_square + self.epsilon) ** 0.5

        def move(self, ranks: Collection[int], v: Any, samples: int, weight: float) -> None:
            self.w_prev = self.w
            super().move(ranks, v, samples, weight)

        def answer(self, rank: int, current: bool) -> Weights:
            self.w_bak[rank] = self.w
            return super().answer(rank, current)

        def on_worker_left(self, now: float, rank: int) -> Iterator[Tell | Reply]:
            self.w_bak.pop(rank, None)
            yield from super().on_worker_left(now, rank)
