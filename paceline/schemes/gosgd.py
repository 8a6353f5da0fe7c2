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

Where it differs from the paper: push_message first asks r, and the message goes, with x_m and w_m as they are then,
once r says that it is ready. r says so as it begins a step, to one of those who have asked, the first one. Nobody waits
for that, and who has asked r already does not ask again. The paper pushes at once, so that what is sent to a worker
that stalls lies there unused: half of the sender's weight with each message, until nearly all of it counts for a model
that is old. Here a worker that stalls holds its own weight and at most half of one other's.

Memory of the local optimizer: kept by default, or reset when a message is taken in. Workers never meet, so there is no
average.

Our choice: a message to a worker that has left comes back to its sender, and one that leaves hands over all it has, so
no weight is lost. p is 0.1 by default (the paper tries 0.01 and more). The higher p, the closer the workers and the
higher the traffic: p models a step and worker. That is the most: among 4 equal workers 0.95 of them go at p = 0.1 and
0.7 at p = 1, as a receiver may have other offers.

Use it where no machine can be a server and speeds differ. Not where labels differ between workers and p is low: they
drift apart.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from paceline.core.effects import KEEP, RESET, Effect, Reply, Tell, Train
from paceline.core.errors import PeerLost
from paceline.core.local.push_sum import Holder, whole
from paceline.core.message import message
from paceline.core.role import RoleContext
from paceline.core.scheme import Paper, Scheme, parameter, scheme


@message("gosgd.Offer")
class Offer:
    """There is a share for you; say when you are ready."""


@message("gosgd.ReadyForShare")
class ReadyForShare:
    """I begin a step: send what you have offered."""


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
    few_steps = (50, "below 50 the models of the workers are still apart")

    class Worker(Holder):
        transient = ("offered", "offers", "ready")

        def __init__(self, scheme: Any, place: RoleContext) -> None:
            super().__init__(scheme, place)
            self.weight = whole(1.0 / len(self.workers))
            self.offered: set[int] = set()  # who has not yet said that it is ready for a share of ours
            self.offers: dict[int, None] = {}  # who has one for us, in the order in which they said so
            self.ready: set[int] = set()  # who was told that we are ready for its share, which has not come

        def run(self) -> Generator[Effect, Any, None]:
            yield from self.enter()
            while True:
                self.absorb()
                if self.offers:
                    yield from self.take_first_offer()
                self.w = self.trained((yield Train(self.w, 1, memory=self.memory())).x)
                if self.rng.random() < self.scheme.p:
                    yield from self.offer(self.anybody())

        def take_first_offer(self) -> Generator[Effect, Any, None]:
            rank = next(iter(self.offers))
            del self.offers[rank]
            self.ready.add(rank)
            yield from self.tell(rank, ReadyForShare())

        def expects(self, src: int, round: int) -> bool:
            asked = src in self.ready
            self.ready.discard(src)
            return asked or super().expects(src, round)

        def offer(self, r: int | None) -> Generator[Effect, Any, None]:
            if r is not None and r not in self.offered:
                self.offered.add(r)
                yield from self.tell(r, Offer())

        def tell(self, rank: int, message: Any) -> Generator[Effect, Any, None]:
            try:
                yield Tell(rank, message)
            except PeerLost:
                self.not_taken(rank)
                self.forget(rank)

        def forget(self, rank: int) -> None:
            self.offered.discard(rank)
            self.offers.pop(rank, None)
            self.ready.discard(rank)

        def on(self, now: float, src: int, message: Any) -> Iterator[Tell | Reply]:
            match message:
                case Offer():
                    self.offers[src] = None
                case ReadyForShare():
                    if src in self.offered and not self.left:  # nobody gets a share that was not offered to it
                        yield from self.give((src,))
                    self.offered.discard(src)
                case _:
                    yield from super().on(now, src, message)

        def on_worker_left(self, now: float, rank: int) -> Iterator[Tell | Reply]:
            self.forget(rank)
            yield from super().on_worker_left(now, rank)
