"""GoSGD: everybody trains alone, and now and then tells somebody what it knows. Nobody waits.

    worker m:  x_m <- x;  w_m <- 1 / M
               repeat  process_messages
                       x_m <- x_m - eta grad L_m(x_m)
                       if S ~ B(p):  r <- random;  push_message(r)
    push_message(r):       w_m <- w_m / 2;  send (x_m, w_m) to the queue of r
    process_messages:      for (x_s, w_s) in the queue:
                               x_m <- w_m / (w_m + w_s) x_m + w_s / (w_m + w_s) x_s;  w_m <- w_m + w_s

x_m: flat weights (here `self.w`); w_m: what they count (`self.weight`). The sum of the weights is always 1: half of w_m
goes with every message, and messages under way count. eta: any local optimizer. A message waits in its
receiver's queue until that begins its next step; several of them are the same as one with their weighted mean, so the
queue takes the room of one. The model that is evaluated and saved is the mean of the workers' weighted by w_m.

Memory of the local optimizer: kept by default, or reset when a message is taken in. Workers never meet, so there is no
average.

Our choice: a message to a worker that has left comes back to its sender, and one that leaves hands over all it has, so
no weight is lost. p is 0.1 by default (the paper tries 0.01 and more). The higher p, the closer the workers and the
higher the traffic: p models a step and worker.

Use it where no machine can be a server and speeds differ. Not where labels differ between workers and p is low: they
drift apart.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from paceline.core.effects import KEEP, RESET, Effect, Train
from paceline.core.mass import Holder
from paceline.core.role import Place
from paceline.core.scheme import Paper, Scheme, parameter, scheme


@scheme(
    "gosgd",
    summary="gossip: everybody trains alone and now and then sends its model to somebody",
    paper=Paper(
        key="blot2016gossip",
        authors="Blot, Michael and Picard, David and Cord, Matthieu and Thome, Nicolas",
        title="Gossip Training for Deep Learning",
        venue="NIPS Workshop on Optimization for Machine Learning",
        year=2016,
        url="https://arxiv.org/abs/1611.09726",
    ),
)
class GoSGD(Scheme):
    p: float = parameter(0.1, "probability of a message after a step", low=0.0, high=1.0)
    memory: str = parameter(
        KEEP, "what a message does to its receiver's optimizer's memory: keep or reset it", choices=(KEEP, RESET)
    )

    trains_locally = True
    needs_peers = True
    workers_differ = True

    class Worker(Holder):
        def __init__(self, scheme: Any, place: Place) -> None:
            super().__init__(scheme, place)
            self.weight = 1.0 / len(self.workers)

        def run(self) -> Generator[Effect, Any, None]:
            yield from self.enter()
            while True:
                self.absorb()
                self.w = (yield Train(self.w, 1, memory=self.memory())).x
                if self.rng.random() < self.scheme.p:
                    r = self.anybody()
                    yield from self.give(() if r is None else (r,))
