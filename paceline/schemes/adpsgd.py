"""AD-PSGD: everybody trains alone and, while it does, averages with one neighbour at a time. Nobody waits.

    worker i:  repeat  g_i <- grad f_i(x_i)
                       x_i <- x_i - gamma g_i
    and, beside it, if i is active:
               repeat  draw a passive neighbour j;  x_i, x_j <- (x_i + x_j) / 2

x_i: flat weights (here `self.w`). The two loops run at the same time: g_i may have been computed on an x_i that
averaging has changed since (Lian et al. 2018, Algorithm 1: gradient at one x, update of another). Two things are asked
of the averaging (their Section 3). It is atomic: j adds d = (x_i - x_j) / 2 to its model at once, and i, who sent x_i,
takes the same d off its own when it hears of it, whatever has become of x_i meanwhile; so the mean of all models is
preserved. It is free of deadlock: the graph is bipartite, active workers ask and passive ones are asked. Every second
worker of the ring is active; where their number is odd, two neighbours are, and the ring is open between them.

topology: `ring`, the paper's; or `complete`, where an active worker draws any passive one, which mixes faster.
The model that is evaluated and saved is the mean of the workers'.

Memory of the local optimizer: kept by default, or reset by an averaging, on both sides, before the next update. Where a
worker averages as often as it steps, reset leaves it no momentum. Each side has its own; they are not averaged.

Our choice: an active worker has one averaging under way at a time and does not wait for it, so on a slow network it
averages less often than once a step. A worker that leaves hands its model over: its heir averages it in and counts
for both from then on, and so do its later steps. With two workers each step is half a step of the mean, and the steps
that one makes after the other has left are whole ones. Those who remain are split anew.

Use it on workers of uneven speed without servers: the fast never wait for the slow. Not on very many workers in a
ring: news travels one neighbour at a time.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, ClassVar

from paceline.core.effects import KEEP, RESET, Compute, Effect, Reply, Tell
from paceline.core.errors import PeerLost
from paceline.core.local.push_sum import Holder
from paceline.core.local.topology import BIPARTITE, is_active, passive_beside
from paceline.core.message import INCREMENT, STATE, Nature, message
from paceline.core.scheme import Paper, Scheme, parameter, scheme
from paceline.core.validation import bounds


@message("adpsgd.Average")
class Average:
    """Average with me: this is my model, and what it counts."""

    carries: ClassVar[Nature] = STATE

    x: bounds.Whole
    weight: bounds.Weight


@message("adpsgd.Moved")
class Moved:
    """What the other one added to its model, times what that counts; you take it off yours."""

    carries: ClassVar[Nature] = INCREMENT

    d: bounds.Whole


@message("adpsgd.Declined")
class ExchangeDeclined:
    """I have left."""


@scheme(
    "adpsgd",
    summary="everybody trains alone and averages with one neighbour at a time, without waiting",
    paper=Paper(
        key="lian2018asynchronous",
        authors="Lian, Xiangru and Zhang, Wei and Zhang, Ce and Liu, Ji",
        title="Asynchronous Decentralized Parallel Stochastic Gradient Descent",
        venue="International Conference on Machine Learning (ICML)",
        year=2018,
        url="https://proceedings.mlr.press/v80/lian18a.html",
    ),
)
class ADPSGD(Scheme):
    topology: str = parameter("ring", "who averages with whom", choices=BIPARTITE)
    memory: str = parameter(
        KEEP, "what an averaging does to the local optimizer's memory: keep or reset it", choices=(KEEP, RESET)
    )

    needs_peers = True
    workers_differ = True
    few_steps = (50, "below 50 the models of the workers are still apart")

    class Worker(Holder):
        transient = ("asked", "owed")
        asked: int | None = None  # with whom an averaging is under way
        owed: Any = (
            None  # what an earlier incarnation of this worker was moved by, until there is a mass to take it off
        )

        def run(self) -> Generator[Effect, Any, None]:
            yield from self.enter()
            while True:
                self.absorb()
                if self.asked is None:
                    yield from self.ask()
                c = yield Compute(self.w)
                self.w = self.updated(self.w, c)

        def ask(self) -> Generator[Effect, Any, None]:
            j = self.neighbour()
            if j is None:
                return
            self.asked = j
            try:
                yield Tell(j, Average(x=self.w, weight=self.weight))
            except PeerLost:
                self.asked = None
                self.not_taken(j)

        def neighbour(self) -> int | None:
            """A passive worker, if this one is active and there is any."""
            if not is_active(self.me, self.away):
                return None
            if self.scheme.topology == "ring":
                beside = passive_beside(self.me, len(self.workers), self.away)
                return self.rng.choice(beside) if beside else None
            j = self.anybody()
            while j is not None and is_active(j, self.away):
                j = self.anybody()
            return j

        def on(self, now: float, src: int, message: Any) -> Iterator[Tell | Reply]:
            match message:
                case Average() if self.left:
                    yield Tell(src, ExchangeDeclined())
                case Average(x=x) if self.refuses(now, src, x):
                    yield Tell(src, Moved(d=self.w * 0.0))
                case Average(x=x) if not self.weight:  # a newcomer that has no mass yet has nothing to meet with
                    yield Tell(src, Moved(d=(x - self.w) * 0.0))
                case Average(x=x, weight=weight):
                    d = (x - self.w) * (weight * self.weight / (weight + self.weight))  # half the way if both count 1
                    self.w, self.mixed = self.w + d * (1.0 / self.weight), True
                    yield Tell(src, Moved(d=d))
                case Moved(d=d):
                    yield from self.take_off(src, self.w * 0.0 if self.refuses(now, src, d) else d)
                case ExchangeDeclined():
                    self.asked = None
                    self.not_taken(src)
                case _:
                    yield from super().on(now, src, message)

        def take_off(self, src: int, d: Any) -> Iterator[Tell]:
            self.asked = None if src == self.asked else self.asked
            if self.heir is not None:
                yield Tell(self.heir, Moved(d=d))
                return
            self.owed = d if self.owed is None else self.owed + d
            self.pay()

        def pay(self) -> None:
            if self.weight and self.owed is not None:
                self.w, self.owed, self.mixed = self.w - self.owed * (1.0 / self.weight), None, True

        def absorb(self, round: int | None = None) -> None:
            super().absorb(round)
            self.pay()

        def leave(self, now: float) -> Iterator[Tell | Reply]:
            yield from super().leave(now)
            if self.owed is not None and self.heir is not None:
                yield Tell(self.heir, Moved(d=self.owed))

        def on_worker_left(self, now: float, rank: int) -> Iterator[Tell | Reply]:
            self.asked = None if self.asked == rank else self.asked
            yield from super().on_worker_left(now, rank)
