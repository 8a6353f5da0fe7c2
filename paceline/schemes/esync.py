"""ESync: fast workers train on locally until the slowest one is due; then all meet once.

    worker i:       repeat  x <- w;  n <- 0
                        while the coordinator says TRAIN:  x <- x - eta grad f_i(x)
                        w <- w + eps_g * sum(n_i (x_i - w)) / sum(n_i)          (one Mean over all)
    coordinator:    upon query of r with k local steps this round, the last of c_r seconds:
                        k = 0                               -> TRAIN  (everyone trains at least once)
                        s <- argmax c                       (the slowest)
                        r = s  or  s has been told SYNC     -> SYNC
                        c_r (1 + epsilon) > what is left of s's step  -> SYNC
                        otherwise                           -> TRAIN

So the slowest worker makes exactly one step a round and a fast one as many as fit. x, w: flat weights; eta: the
local learning rate (any local optimizer); eps_g: `global_lr`. Differences are weighted by the n_i samples that went
into them (the journal version). Everything is timed on the coordinator's own monotonic clock; from a worker it takes
durations only, so skewed clocks do no harm (they did in the original, where they acted like epsilon). A worker whose
step has never been timed counts as the slowest.

Use it when speeds differ much and are steady. On equal machines it is local SGD with one step: BSP.
"""

from __future__ import annotations

import heapq
from collections.abc import Generator, Iterator
from typing import Any

from paceline.core.effects import COORDINATOR, Call, Effect, Mean, Reply, Tell, Train
from paceline.core.message import message
from paceline.core.role import Place, Role
from paceline.core.scheme import Paper, Scheme, parameter, scheme
from paceline.core.trace import Decision


@message
class Query:
    """`k` local steps done in `round`; the last took `c` seconds."""

    round: int
    k: int
    c: float


@message
class Verdict:
    train: bool


class _Costs:
    """Seconds of every worker's last step; the slowest in O(log workers), by a heap with stale entries."""

    def __init__(self, workers: tuple[int, ...]) -> None:
        self.of = dict.fromkeys(workers, 0.0)
        self.untimed = set(workers)
        self._heap: list[tuple[float, int]] = []

    def put(self, rank: int, seconds: float) -> None:
        self.untimed.discard(rank)
        self.of[rank] = seconds
        heapq.heappush(self._heap, (-seconds, rank))
        if len(self._heap) > 8 * len(self.of) + 64:
            self._heap = [(-c, r) for r, c in self.of.items()]
            heapq.heapify(self._heap)

    def drop(self, rank: int) -> None:
        self.untimed.discard(rank)
        self.of.pop(rank, None)

    def slowest(self) -> int | None:
        while self._heap and self.of.get(self._heap[0][1]) != -self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][1] if self._heap else None


@scheme(
    "esync",
    summary="fast workers train on locally until the slowest is due, then all average",
    paper=Paper(
        key="li2022esync",
        authors="Li, Zonghang and Zhou, Huaman and Zhou, Tianyao and Yu, Hongfang and Xu, Zenglin and Sun, Gang",
        title="ESync: Accelerating Intra-Domain Federated Learning in Heterogeneous Data Centers",
        venue="IEEE Transactions on Services Computing 15(4)",
        year=2022,
        url="https://doi.org/10.1109/TSC.2020.3044043",
    ),
)
class ESync(Scheme):
    global_lr: float = parameter(1.0, "eps_g: how far to go along the averaged difference", low=0.0)
    epsilon: float = parameter(0.0, "safety margin, as a fraction of the worker's own step", low=0.0)

    needs_mean = True
    trains_locally = True

    class Worker(Role):
        round = 0

        def run(self) -> Generator[Effect, Any, None]:
            while True:
                x, k, n, c = self.w, 0, 0, 0.0
                while (yield Call(COORDINATOR, Query(round=self.round, k=k, c=c))).train:
                    t = yield Train(x, 1)
                    x, k, n, c = t.x, k + 1, n + t.samples, t.seconds
                mean = yield Mean(x - self.w, self.workers, tag=f"esync/{self.round}", weight=float(n))
                self.w = self.w + mean.v * self.scheme.global_lr
                self.round += 1

    class Coordinator(Role):
        def __init__(self, scheme: Any, place: Place) -> None:
            super().__init__(scheme, place)
            self.round = 0
            self.cost = _Costs(self.workers)
            self.begun: dict[int, float] = {}  # when this round's current step of each worker began
            self.done: set[int] = set()  # who was told SYNC in this round
            self.told: dict[int, bool] = {}

        def on(self, now: float, src: int, message: Any) -> Iterator[Tell | Reply]:
            match message:
                case Query(round=round, k=k, c=c):
                    if round > self.round:
                        self.round, self.begun, self.done = round, {}, set()
                    if k > 0:
                        self.cost.put(src, c)
                    train, reason = self.decide(now, src, k)
                    if train:
                        self.begun[src] = now
                    else:
                        self.done.add(src)
                    self._explain(now, src, train, reason)
                    yield Reply(src, Verdict(train=train))
                case _:
                    yield from super().on(now, src, message)

        def gone(self, now: float, rank: int) -> Iterator[Tell | Reply]:
            self.cost.drop(rank)
            yield from ()

        def decide(self, now: float, r: int, k: int) -> tuple[bool, str]:
            """Train on? And why."""
            if k == 0:
                return True, "everyone trains at least once a round"
            if self.cost.untimed:
                return True, f"worker {min(self.cost.untimed)} has not finished its first step"
            s = self.cost.slowest()
            if r == s or s is None:
                return False, "it is the slowest"
            if s in self.done:
                return False, f"the slowest, worker {s}, is done"
            if s not in self.begun:
                return True, f"the slowest, worker {s}, has not begun this round"
            rest = self.begun[s] + self.cost.of[s] - now
            step = self.cost.of[r] * (1 + self.scheme.epsilon)
            if step > rest:
                return (
                    False,
                    f"its step of {step:.3f} s does not fit into the {rest:.3f} s that worker {s} still needs",
                )
            return True, f"its step of {step:.3f} s fits into the {rest:.3f} s that worker {s} still needs"

        def _explain(self, now: float, rank: int, train: bool, reason: str) -> None:
            if self.note and self.told.get(rank) != train:
                self.told[rank] = train
                verdict = "train" if train else "sync"
                self.note(Decision(at=now, party="coordinator", rank=rank, verdict=verdict, reason=reason))
