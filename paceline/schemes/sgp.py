"""Stochastic gradient push: every round each worker hands a part of itself on, along a graph that changes.

    worker i:  x_i <- x;  w_i <- 1;  z_i <- x
               for k = 0, 1, ..
                   x_i <- x_i - gamma grad F_i(z_i)
                   send (p x_i, p w_i) to each out-neighbour of round k;  keep (p x_i, p w_i)
                   receive those of the in-neighbours of round k - tau
                   x_i <- x_i + sum_j p x_j;  w_i <- w_i + sum_j p w_j
                   z_i <- x_i / w_i

x: the biased model, w: the push-sum weight, z: the de-biased model (here `self.w`; x is never stored: it is w z).
p is one over the number of out-neighbours and one: what a worker has is split evenly, so the mixing matrix is
column-stochastic (Assran et al. 2019, Section 3), and the sums of x and of w over workers and messages change by
gradients alone. gamma and momentum belong to the worker's own optimizer, which is applied to x, as in the paper. The
model that is evaluated and saved is sum(w_i z_i) / sum(w_i), the mean of the x_i.

Memory of the local optimizer: kept by default, or reset when shares are taken in, before the next update. With tau of 0
or 1 they are taken in after every step, so that reset leaves no momentum. Shares carry none, so there is no average.

tau = 0 is SGP, which waits for the shares of its own round; tau > 0 is Overlap-SGP (the paper's Algorithm 2): a worker
sends after every tau steps and has waited, before it mixes again, for what was sent to it the time before; so a share
may take as long as tau steps.

Our choice: shares are told, and the wait is a question that an in-neighbour answers once it has sent its share, so the
answer travels right behind it. A worker that is known to have left gets no share, what was on its way to it comes back,
and nobody waits for it.

A worker that is lost takes its mass along, and one that comes has half of another's. So the mean weight falls below 1,
and a step in z, gamma / w_i, would grow with every loss. From the first newcomer on a step is therefore multiplied by
the mean weight, which each worker follows by its own: gamma stays what it was.

Use it on many machines behind a network that is slow or uneven: a worker sends one model a round however many there
are, and waits for one neighbour. Not where one worker is much slower than all others: along the graph everybody comes
to wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

from paceline.core.effects import KEEP, RESET, Call, Compute, Computed, Effect, Reply, Start, Tell, Wait
from paceline.core.errors import PeerLost
from paceline.core.local.answered_rounds import AnsweredRounds, RoundSent
from paceline.core.local.topology import DIRECTED, hears_from, sends_to
from paceline.core.role import RoleContext
from paceline.core.scheme import Paper, Scheme, parameter, scheme

FOLLOWED = 0.1
"""How much of the distance to its own weight the mean weight goes each round."""


@scheme(
    "sgp",
    summary="push-sum: every round each worker hands a part of its model on, along a changing graph",
    paper=Paper(
        key="assran2019stochastic",
        authors="Assran, Mahmoud and Loizou, Nicolas and Ballas, Nicolas and Rabbat, Michael",
        title="Stochastic Gradient Push for Distributed Deep Learning",
        venue="International Conference on Machine Learning (ICML)",
        year=2019,
        url="https://proceedings.mlr.press/v97/assran19a.html",
    ),
)
class SGP(Scheme):
    topology: str = parameter("exponential", "who sends to whom", choices=DIRECTED)
    tau: int = parameter(0, "steps that a share may take to arrive; 0 waits for the round's own", low=0)
    memory: str = parameter(
        KEEP, "what shares do to their receiver's optimizer's memory: keep or reset it", choices=(KEEP, RESET)
    )

    needs_peers = True
    workers_differ = True

    total_is_exact = False  # no message counts the samples of all
    equal_rounds = False  # one may be rounds ahead of another, so the coordinator divides what is left

    @property
    def lock_step(self) -> bool:
        return self.tau == 0

    class Worker(AnsweredRounds):
        common = ("k", "samples_seen")
        transient = ("k", "late", "mean_weight", "made", "resumed_at")
        made = 0  # steps of this round
        mean_weight: float | None  # of all workers, as far as this one knows; None: nobody has come

        def __init__(self, scheme: Any, place: RoleContext) -> None:
            super().__init__(scheme, place)
            self.k = 0  # rounds sent
            self.late = 1 if scheme.tau else 0
            self.mean_weight = None  # of all workers, as far as this one knows; None: nobody has come
            self.resumed_at = 0

        def go_on_at(self, clock: int) -> None:
            self.resumed_at = clock  # others may be in that round before this one has loaded its state

        @property
        def whole(self) -> bool:
            return not self.made

        def state(self) -> dict[str, Any]:
            if not self.scheme.lock_step:
                return super().state()
            # All are kept in one round, so their masses are those of one moment.
            mean = {} if self.mean_weight is None else {"mean_weight": self.mean_weight}
            return {**super().state(), "k": self.k, "weight": self.weight, **mean}

        def load_state(self, state: Mapping[str, Any]) -> None:
            super().load_state(state)
            if "weight" in state:
                self.k, self.weight, self.mean_weight = state["k"], state["weight"], state.get("mean_weight")

        def run(self) -> Generator[Effect, Any, None]:
            yield from self.enter()
            while True:
                tickets = yield from self.ask(self.k - self.late)
                for made in range(max(1, self.scheme.tau)):
                    self.made = made
                    c = yield Compute(self.w)
                    samples = c.samples * (len(self.workers) - len(self.away))  # as many as each of the others, too
                    self.w = self.stepped(c)
                yield from self.give(self.along(sends_to), round=self.k)
                self.made = 0
                self.k += 1
                self.samples_seen += samples if self.scheme.lock_step else 0
                yield from self.answer_who_asked()
                for ticket in tickets:
                    try:
                        yield Wait(ticket)
                    except PeerLost:
                        continue  # it has left, and handed its mass to somebody
                self.absorb(self.k - 1)
                if self.mean_weight is not None:
                    self.mean_weight += FOLLOWED * (self.weight - self.mean_weight)

        def stepped(self, c: Computed) -> Any:
            """Returns z after a local update of x = w z, both as long as the model."""
            x = self.w * self.weight
            moved = self.updated(x, c)
            if self.mean_weight is None:
                return moved * (1.0 / self.weight)
            return self.w + (moved - x) * (self.mean_weight / self.weight)

        def along(self, edges: Callable[..., tuple[int, ...]], k: int | None = None) -> tuple[int, ...]:
            k = self.k if k is None else k
            return edges(self.scheme.topology, self.me, k, len(self.workers), self.place.seed)

        def ask(self, k: int) -> Generator[Effect, Any, list[Any]]:
            """Questions for the shares of round k, asked before the step so that the answers need not be fetched."""
            tickets = []
            for j in self.along(hears_from, k) if k >= 0 else ():
                if j not in self.away:
                    tickets.append((yield Start(Call(j, RoundSent(round=k)))))
            return tickets

        def expects(self, src: int, round: int) -> bool:
            return True  # every round brings shares

        def is_too_far(self, round: int) -> bool:
            return round > self.latest()

        def latest(self) -> int:
            """No worker is further ahead: each waits for its neighbours, and within so many hops for everybody."""
            hops = len(self.workers)
            return max(int(self.k), self.resumed_at) + hops * (1 + self.late + hops.bit_length())

        def need_not_wait(self, rank: int) -> bool:
            return self.finished or self.asked[rank] < self.k

        def on_worker_joined(self, now: float, rank: int) -> Iterator[Tell | Reply]:
            if rank in self.away:  # one more has what the others had
                here = len(self.workers) - len(self.away)
                self.mean_weight = (self.mean_weight or self.weight) * here / (here + 1)
            yield from super().on_worker_joined(now, rank)

        def load_join_state(self, shown: Mapping[str, Any]) -> None:
            super().load_join_state(shown)
            self.mean_weight = shown.get("mean_weight") or 1.0

        def join_state(self) -> dict[str, Any]:
            return {**super().join_state(), "mean_weight": self.mean_weight}
