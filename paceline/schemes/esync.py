"""ESync: fast workers train on locally until the slowest one is due; then all meet once.

    worker i:       repeat  x <- w;  n_i <- 0;  report that i enters the round
                        do  x <- x - eta grad f_i(x)  while the coordinator says TRAIN
                        w <- w + eps_g * sum(n_i (x_i - w)) / sum(n_i)          (one Mean over all)
    coordinator:    upon query of r with k local steps this round, of c_r seconds each, and m_r seconds to hand over:
                        d <- c + m;  s <- argmax d                              (the slowest)
                        r = s  or  s has been told SYNC  or  k = cap            -> SYNC
                        now + c_r (1 + epsilon) + m_r > begin of s's step + d_s  -> SYNC
                        otherwise                                               -> TRAIN

So the slowest worker makes exactly one step a round and a fast one as many as fit. x, w: flat weights; eta: the
local learning rate (any local optimizer); eps_g: `global_lr`. In the journal version differences are weighted by the
n_i samples that went into them, and m counts; in the preprint all workers weigh the same and m = 0. Everybody trains at
least once a round, so nobody asks before its first step. A worker whose step has never been timed counts as the
slowest.

Everything is timed on the coordinator's own monotonic clock; from a worker it takes durations only, so skewed
clocks do no harm (they did in the original, where they acted like epsilon). So m_r is the time from the last SYNC
of a round, or the end of the step after it, to r's report of the next round, not what a sender measured.

`delayed_ack` is the paper's non-blocking variant: a worker asks while a step is under way. The original aborts the
step it is in when SYNC comes; here it asks one step ahead, whether another fits after this one, and wastes nothing.
It is on by default, since it takes the way to the coordinator and back out of every step; what it costs is that a
plan is one step older.

Memory of the local optimizer: kept by default; the paper's optimizer has none.

Use it when speeds differ much and are steady. On equal machines it is local SGD with one step: BSP.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from paceline.core.effects import COORDINATOR, Call, Effect, Reply, Start, Tell, Trained, Wait
from paceline.core.estimates import Estimates, Ranked, Smoothing
from paceline.core.local import Trainer, memory_parameter
from paceline.core.message import message
from paceline.core.role import Place, Role
from paceline.core.scheme import Paper, Scheme, parameter, scheme
from paceline.core.trace import Decision

VARIANTS = ("journal", "preprint")


@message
class Entered:
    """The sender begins `round`, with its first step."""

    round: int


@message
class Query:
    """`k` local steps done in `round`, the last in `c` seconds, `ahead` more under way. May another follow?"""

    round: int
    k: int
    c: float
    ahead: int


@message
class Verdict:
    train: bool


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
    variant: str = parameter("journal", "what counts: steps and hand-overs, or steps only", choices=VARIANTS)
    global_lr: float = parameter(1.0, "eps_g: how far to go along the averaged difference", low=0.0)
    epsilon: float = parameter(0.0, "safety margin, as a fraction of the worker's own step", low=0.0)
    smoothing: str = parameter("last", "of measured times: last, ema:b or median:n", check=Smoothing.parse)
    cap: int = parameter(0, "local steps a round at most; 0: as many as fit", low=0)
    delayed_ack: bool = parameter(True, "ask one step ahead, and train on while the question is under way")
    memory: str = memory_parameter("keep")

    needs_mean = True
    trains_locally = True

    class Worker(Trainer):
        common = ("round",)
        c = 0.0  # seconds of the last step, 0 before the first

        def run(self) -> Generator[Effect, Any, None]:
            while True:
                if self.done is None:
                    self.done = yield from self.local()
                yield from self.average_memory()
                weight = float(self.done.samples) if self.scheme.variant == "journal" else 1.0
                mean = yield self.mean(self.done.x - self.w, weight)
                self.w = self.w + mean.v * self.scheme.global_lr
                self.met()

        def local(self) -> Generator[Effect, Any, Trained]:
            yield Tell(COORDINATOR, Entered(round=self.round))
            step, k, n, seconds = self.train(self.w, 1), 0, 0, 0.0
            while True:
                # Who has never timed a step waits for it: to ask ahead it would have to guess.
                ahead = self.scheme.delayed_ack and self.c > 0
                ticket = (yield Start(self.query(k, 1))) if ahead else None
                t = yield step
                k, n, seconds, self.c = k + 1, n + t.samples, seconds + t.seconds, t.seconds
                verdict = (yield Wait(ticket)) if ticket else (yield self.query(k, 0))
                if not verdict.train:
                    return Trained(t.x, n, seconds, t.memory)
                step = self.train(t.x, 1, begins=False)

        def query(self, k: int, ahead: int) -> Call:
            return Call(COORDINATOR, Query(round=self.round, k=k, c=self.c, ahead=ahead))

    class Coordinator(Role):
        def __init__(self, scheme: Any, place: Place) -> None:
            super().__init__(scheme, place)
            smoothing = Smoothing.parse(scheme.smoothing)
            self.round = -1
            self.c, self.m = Estimates(self.workers, smoothing), Estimates(self.workers, smoothing)
            self.d = Ranked(self.workers)
            self.begun: dict[int, float] = {}  # when this round's current step of each worker began
            self.done: set[int] = set()  # who was told SYNC in this round, and has no step under way
            self.handed_over, self.met_at = 0.0, 0.0  # the last of this round, so far, and of the round before
            self.told: dict[int, bool] = {}

        def on(self, now: float, src: int, message: Any) -> Iterator[Tell | Reply]:
            match message:
                case Entered(round=round):
                    self.enter(now, src, round)
                case Query(k=k, c=c, ahead=ahead):
                    if k > 0:
                        self.c.put(src, c)
                        self.d.put(src, self.c[src] + self.m[src])
                    train, reason = self.decide(now, src, k + ahead, ahead)
                    if train or ahead:
                        self.begun[src] = now
                    if not train:
                        self.sync(now, src, ahead)
                    self._explain(now, src, train, reason)
                    yield Reply(src, Verdict(train=train))
                case _:
                    yield from super().on(now, src, message)

        def enter(self, now: float, src: int, round: int) -> None:
            if round > self.round:
                self.round, self.begun, self.done, self.met_at = round, {}, set(), self.handed_over
            elif src in self.begun:
                self.done.discard(src)  # it was restarted
            timed = src not in self.c.unknown and src not in self.begun
            if timed and self.scheme.variant == "journal":
                self.m.put(src, now - self.met_at)
                self.d.put(src, self.c[src] + self.m[src])
            self.begun[src] = now
            self._explain(now, src, True, "everyone trains at least once a round")

        def sync(self, now: float, src: int, ahead: int) -> None:
            if not ahead:
                self.done.add(src)
            self.handed_over = max(self.handed_over, now + ahead * self.c[src])

        def gone(self, now: float, rank: int) -> Iterator[Tell | Reply]:
            for estimates in (self.c, self.m, self.d):
                estimates.drop(rank)
            yield from ()

        def came(self, now: float, rank: int) -> Iterator[Tell | Reply]:
            self.c.add(rank)
            yield from ()

        def decide(self, now: float, r: int, k: int, ahead: int) -> tuple[bool, str]:
            """May r make another step after its k-th, `ahead` of which are under way? And why."""
            if k == self.scheme.cap:
                return False, f"{k} steps are the cap"
            if self.c.unknown:
                return True, f"worker {next(iter(self.c.unknown))} has not finished its first step"
            s = self.d.largest()
            if r == s or s is None:
                return False, "it is the slowest"
            if s in self.done:
                return False, f"the slowest, worker {s}, is done"
            # Who has not begun this round yet will begin it now at the earliest.
            rest = self.begun.get(s, now) + self.d[s] - now
            step = self.c[r] * (1 + self.scheme.epsilon + ahead) + self.m[r]
            fits = step <= rest
            if not self.note:  # words cost more than the decision
                return fits, ""
            verb = "fits" if fits else "does not fit"
            return fits, f"its step of {step:.3f} s {verb} into the {rest:.3f} s that worker {s} still needs"

        def _explain(self, now: float, rank: int, train: bool, reason: str) -> None:
            if self.note and self.told.get(rank) != train:
                self.told[rank] = train
                verdict = "train" if train else "sync"
                self.note(Decision(at=now, party="coordinator", rank=rank, verdict=verdict, reason=reason))
