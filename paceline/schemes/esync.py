"""ESync: fast workers train on locally until the slowest one is due; then all meet once.

    worker i:       repeat  x <- w;  n_i <- 0;  report that i enters the round
                        do  x <- x - eta grad f_i(x)  while the coordinator says TRAIN
                        w <- w + eps_g * sum(n_i (x_i - w)) / sum(n_i)          (one Mean over all)
    coordinator:    upon query of r with k local steps this round, of c_r seconds each, and m_r seconds to hand over:
                        d <- c + m;  s <- argmax d                              (the slowest)
                        r = s  or  s has been told SYNC  or  k = cap            -> SYNC
                        now + c_r (1 + epsilon) + m_r > begin of s's step + d_s + l  -> SYNC
                        otherwise                                               -> TRAIN

So the slowest worker makes exactly one step a round and a fast one as many as fit. x, w: flat weights; eta: the
local learning rate (any local optimizer); eps_g: `global_lr`. In the journal version differences are weighted by the
n_i samples that went into them, and m counts; in the preprint all workers weigh the same and m = 0. Everybody trains at
least once a round, so nobody asks before its first step. A worker whose step has never been timed counts as the
slowest. The first step of a worker compiles, loads and allocates: its time is not counted, so everybody makes at least
two steps in its first round (one if the cap is 1).

l: how late a step may end, `overrun` / sum_i(1 / c_i), where the papers have 0. With 0, workers that are 3.0 times as
fast as the slowest make 2 steps a round, since the third ends a little after it, and wait for a third of every round.
While a step is late, everybody waits. So by default l is the time in which all together make one step: the late step
adds at least as much as the wait costs.

Every step is timed and every time reaches the coordinator, also from a worker that made one step in the round. So a
wrong estimate, after a stall or a change of speed, spoils the plan of one round; `ema` and `median` take a few rounds.

Everything is timed on the coordinator's own monotonic clock; from a worker it takes durations only, so skewed
clocks do no harm (they did in the original, where they acted like epsilon). So m_r is the time from the moment the
last worker of a round finished its local steps to r's report of the next round, not what a sender measured.

`delayed_ack` is the paper's non-blocking variant: a worker asks while a step is under way. The original aborts the
step it is in when SYNC comes; here it asks one step ahead, whether another fits after this one, and wastes nothing.
It is on by default, since it takes the way to the coordinator and back out of every step; what it costs is that a
plan is one step older. The coordinator is told when the last step has ended; once the slowest has finished, another
step must fit into the m_s that are left.

Memory of the local optimizer: kept by default; the paper's optimizer has none.

Use it when speeds differ much and are steady. A stall of one worker costs it one round, in which the others train on.
On equal machines it is local SGD with one step: BSP.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import Any

from paceline.core.adaptive.step_times import Estimates, Ranked, Smoothing
from paceline.core.effects import COORDINATOR, Call, Effect, Reply, Start, Tell, Trained, Wait
from paceline.core.local.local_sgd import Trainer, memory_parameter
from paceline.core.message import message
from paceline.core.role import Role, RoleContext
from paceline.core.scheme import Paper, Scheme, parameter, scheme
from paceline.core.trace import Decided
from paceline.core.validation import bounds

VARIANTS = ("journal", "preprint")

TIMED_FROM = 2
"""Which step of a worker is the first to be timed: the one before it is cold."""

SHORTEST_S = 1e-9
"""A step that took no time by the worker's clock counts so much, since 0 says that there is no time."""


@message("esync.Entered")
class Entered:
    """The sender begins `round`, with its first step."""

    round: bounds.RoundNumber


@message("esync.Query")
class Query:
    """`k` local steps done in `round`, `ahead` more under way. May another follow?

    `c`: seconds of the sender's last step, 0 when it has no time that the coordinator has not heard yet.
    """

    round: bounds.RoundNumber
    k: bounds.Count
    c: bounds.Seconds
    ahead: bounds.Count


@message("esync.Verdict")
class Verdict:
    train: bool


@message("esync.LocalStepsDone")
class LocalStepsDone:
    """The sender has made its last step of `round` and hands its work over. `c`: see Query."""

    round: bounds.RoundNumber
    c: bounds.Seconds


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
    overrun: float = parameter(1.0, "how late a step may end, in steps of all together; 0 in the papers", low=0.0)
    smoothing: str = parameter("last", "of measured times: last, ema:b or median:n", check=Smoothing.parse)
    cap: int = parameter(0, "local steps a round at most; 0: as many as fit", low=0)
    delayed_ack: bool = parameter(True, "ask one step ahead, and train on while the question is under way")
    memory: str = memory_parameter("keep")

    needs_mean = True
    trains_locally = True

    equal_rounds = False

    @property
    def lock_step(self) -> bool:
        return self.variant == "journal"  # in the preprint a mean does not say how many samples are in it

    class Worker(Trainer):
        common = ("round", "samples_seen")
        saved = ("steps", "last")
        transient = ("c", "made")
        steps = 0  # that this machine has made
        last = c = 0.0  # seconds of the last step; c: until the coordinator has been told
        made: Trained | None = None  # local steps of this round so far

        @property
        def whole(self) -> bool:
            return self.made is None

        def load_state(self, state: Mapping[str, Any]) -> None:
            super().load_state(state)
            self.c = self.last  # the coordinator of this run has not been told

        def join_late(self) -> None:
            self.pass_through()

        def run(self) -> Generator[Effect, Any, None]:
            while True:
                passes = self.done is not None
                if self.done is None:
                    self.done = yield from self.local()
                if passes or self.scheme.delayed_ack:
                    yield self.local_steps_done()
                yield from self.exchange()

        def last_exchange(self, *, soon: bool = False) -> Generator[Effect, Any, None]:
            if self.done is None and self.made is not None:
                self.done = self.made
                yield self.local_steps_done()
            if self.done is not None:
                yield from self.exchange()

        def local_steps_done(self) -> Tell:
            return Tell(COORDINATOR, LocalStepsDone(round=self.round, c=self.untold()))

        def exchange(self) -> Generator[Effect, Any, None]:
            assert self.done is not None
            yield from self.average_memory()
            weight = float(self.done.samples) if self.scheme.variant == "journal" else 1.0
            mean = yield self.mean(self.done.x - self.w, weight)
            self.w = self.w + mean.v * self.scheme.global_lr
            self.samples_seen += int(mean.weight) if self.scheme.lock_step else 0
            self.made = None
            self.met()

        def local(self) -> Generator[Effect, Any, Trained]:
            yield Tell(COORDINATOR, Entered(round=self.round))
            self.made = None  # a worker that is restarted begins the round again
            step, k, n, seconds = self.train(self.w, 1), 0, 0, 0.0
            while True:
                # Who has never timed a step waits for it: to ask ahead it would have to guess.
                ahead = self.scheme.delayed_ack and self.steps >= TIMED_FROM
                ticket = (yield Start(self.query(k, 1))) if ahead else None
                t = yield step
                k, n, seconds = k + 1, n + t.samples, seconds + t.seconds
                self.timed(t.seconds)
                self.made = Trained(t.x, n, seconds, t.memory)
                verdict = (yield Wait(ticket)) if ticket else (yield self.query(k, 0))
                if not verdict.train:
                    return self.made
                step = self.train(t.x, 1, begins=False)

        def timed(self, seconds: float) -> None:
            self.steps += 1
            if self.steps >= TIMED_FROM:
                self.c = self.last = max(seconds, SHORTEST_S)

        def untold(self) -> float:
            """`c`, once: an average must not count a step twice."""
            c, self.c = self.c, 0.0
            return c

        def query(self, k: int, ahead: int) -> Call:
            return Call(COORDINATOR, Query(round=self.round, k=k, c=self.untold(), ahead=ahead))

    class Coordinator(Role):
        def __init__(self, scheme: Any, place: RoleContext) -> None:
            super().__init__(scheme, place)
            smoothing = Smoothing.parse(scheme.smoothing)
            self.round = -1
            self.rounds: dict[int, int] = {}  # that each worker says it is in
            self.c, self.m = Estimates(self.workers, smoothing), Estimates(self.workers, smoothing)
            self.d = Ranked(self.workers)
            self.members = set(self.workers)
            self.begun: dict[int, float] = {}  # when this round's current step of each worker began
            self.done: dict[int, float] = {}  # when each worker ended its last step of this round
            self.last_done, self.met_at = 0.0, 0.0  # the last of them so far, and that of the round before
            self.late = 0.0  # l of this round
            self.told: dict[int, bool] = {}

        def on(self, now: float, src: int, message: Any) -> Iterator[Tell | Reply]:
            match message:
                case Entered() | Query() | LocalStepsDone() if src not in self.members:
                    return  # it has left
                case Entered(round=round):
                    self.enter(now, src, round)
                case Query(k=k, c=c, ahead=ahead):
                    self.timed(src, c)
                    train, reason = self.decide(now, src, k + ahead, ahead)
                    if train or ahead:
                        self.begun[src] = now
                    else:
                        self.ended(now, src)
                    self._explain(now, src, train, reason)
                    yield Reply(src, Verdict(train=train))
                case LocalStepsDone(c=c):
                    self.timed(src, c)
                    # Who says that it is done is waited for no longer until it enters a round, whatever round it names:
                    # it may lie, or another one may have lied and begun a round in which the others are not.
                    self.ended(now, src)
                case _:
                    yield from super().on(now, src, message)

        def timed(self, rank: int, c: float) -> None:
            """A fresh time counts, however few steps the worker was allowed in this round."""
            if c > 0:
                self.c.put(rank, c)
                self.d.put(rank, self.c[rank] + self.m[rank])

        def enter(self, now: float, src: int, round: int) -> None:
            others = [claim for rank, claim in self.rounds.items() if rank != src]
            # All meet at the end of a round, so nobody is further ahead of all others than by one.
            self.rounds[src] = round = min(round, max(others) + 1) if others else round
            if round > self.round:
                self.round, self.begun, self.done, self.met_at = round, {}, {}, self.last_done
                self.late = self.scheme.overrun * self.c.together()
            else:
                self.done.pop(src, None)  # it was restarted, or is done with an earlier round only
            timed = src not in self.c.unknown and src not in self.begun
            if timed and self.scheme.variant == "journal":
                self.m.put(src, now - self.met_at)
                self.d.put(src, self.c[src] + self.m[src])
            self.begun[src] = now
            self._explain(now, src, True, "everyone trains at least once a round")

        def ended(self, now: float, src: int) -> None:
            self.done.setdefault(src, now)
            self.last_done = max(self.last_done, now)

        def on_worker_left(self, now: float, rank: int) -> Iterator[Tell | Reply]:
            self.members.discard(rank)
            self.rounds.pop(rank, None)
            for estimates in (self.c, self.m, self.d):
                estimates.drop(rank)
            yield from ()

        def on_worker_joined(self, now: float, rank: int) -> Iterator[Tell | Reply]:
            self.members.add(rank)
            self.c.add(rank)
            for estimates in (self.m, self.d):
                estimates.drop(rank)
            yield from ()

        def decide(self, now: float, r: int, k: int, ahead: int) -> tuple[bool, str]:
            """May r make another step after its k-th, `ahead` of which are under way? And why."""
            if k == self.scheme.cap:
                return False, f"{k} steps are the cap"
            untimed = next((rank for rank in self.c.unknown if rank not in self.done), None)
            if untimed is not None:
                return True, f"worker {untimed} has no step that was timed"
            s = self.d.largest()
            if r == s or s is None:
                return False, "it is the slowest"
            if s in self.done and (not ahead or now >= self.done[s] + self.m[s]):
                return False, f"the slowest, worker {s}, is done"
            # Who has not begun this round yet will begin it now at the earliest.
            due = self.done[s] + self.m[s] if s in self.done else self.begun.get(s, now) + self.d[s]
            rest = due - now
            step = self.c[r] * (1 + self.scheme.epsilon + ahead) + self.m[r]
            fits = step <= rest + self.late
            if not self.note:  # words cost more than the decision
                return fits, ""
            verb = "does not fit" if not fits else "fits" if step <= rest else "ends little enough after it: it fits"
            return fits, f"its step of {step:.3f} s {verb} into the {rest:.3f} s that worker {s} still needs"

        def _explain(self, now: float, rank: int, train: bool, reason: str) -> None:
            if self.note and self.told.get(rank) != train:
                self.told[rank] = train
                verdict = "train" if train else "sync"
                self.note(Decided(at=now, party="coordinator", rank=rank, verdict=verdict, reason=reason))
