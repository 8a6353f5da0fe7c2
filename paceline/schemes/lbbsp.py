"""Load-balanced BSP: the batch of each worker follows its speed, the global batch stays, and so all are done at once.

    worker i:     repeat  g_i <- grad f_i(w) over x_i samples, in t_i seconds;  report (x_i, t_i)
                          push g_i;  w <- pull;  x_i <- the coordinator's answer
    server:       upon g_1 .. g_n:  g <- sum(x_i g_i) / X;  w <- w - eta g;  answer everybody
    coordinator:  upon the last report of a round:  v_i <- x_i / t_i, smoothed
                          x_i <- v_i / sum(v_j) X, in whole samples within low .. high_i;  answer everybody

x_i: batch of worker i, v_i: its speed in samples/s, X: the global batch. A step then lasts X / sum(v_j) for everybody,
where BSP takes the step of the slowest. Chen et al., abstract: "ML workers shall be load-balanced at iteration
boundaries, being non-intrusive to intra-iteration execution", by "right-sizing the sample batches at the
synchronization barriers"; gradients are weighted by x_i, so the result is that of one process with batch X.

Whole samples are dealt so that the largest x_i / v_i is smallest, and sum to X exactly. Everybody computes a round with
sizes of one decision: a round is decided once, when all have reported the one before, and the question travels while
the gradient does, so it costs no wait of its own. Our choices: a moving average in place of the paper's NARX network
for CPUs and its search for GPUs (with fixed costs a step, measuring anew at the new size leads to the same balance);
and sizes stay until new ones would save more than `hysteresis` of the step. From workers come durations only. Without
`global_batch` the first round is made of everybody's own batches, and X is their sum. high_i is the smaller of `high`
and the largest batch of worker i (`--batch-limits`). When workers leave, X stays; if the others may not take it on
within their high_i, they take what they may. One that comes adds its samples to the round in
which it comes; from the next decision on it has a part of X.

Data: a worker goes through its own share again and again, each sample once a pass, batches running over the end of a
pass. A fast worker is through sooner: with shares uniform or by speed every pass is drawn anew from all data, so in the
long run every sample counts alike; with fixed shares (by class, dirichlet) those of fast workers count more.

Use it where BSP's result is wanted and speeds differ, with batches large enough to divide. Not where a step costs the
same for any batch (a small model on a GPU), nor for a loop that draws batches of its own and ignores `pace.batch_size`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any

from paceline.core.adaptive.batch_sizes import Balance
from paceline.core.adaptive.step_times import Estimates, Smoothing
from paceline.core.effects import COORDINATOR, SERVERS, Call, Compute, Computed, Effect, Mean, Reply, Start, Tell, Wait
from paceline.core.errors import ConfigError
from paceline.core.message import message
from paceline.core.paramserver.gated_server import ClockedServer, Pull, Push, Weights
from paceline.core.role import Role, RoleContext
from paceline.core.samples.batch_limits import smaller
from paceline.core.scheme import Paper, Scheme, parameter, scheme
from paceline.core.spans import updated
from paceline.core.trace import Decided
from paceline.core.validation import bounds

UNLIKE_MOST = 64  # a GPU's batch beside a CPU's; whatever is claimed beyond that is not believed


@message("lbbsp.Report")
class Report:
    """`round` rounds are finished; the last took `seconds` for `samples`, or is not to be counted (0 samples)."""

    round: bounds.ExchangeNumber
    samples: bounds.Samples
    seconds: bounds.Seconds


@message("lbbsp.Size")
class Size:
    """Tells a worker its batch size of the next round, in samples; 0 means its own."""

    samples: bounds.Samples


@scheme(
    "lbbsp",
    summary="bulk synchronous, and the batch of each worker follows its speed",
    paper=Paper(
        key="chen2020semi",
        authors="Chen, Chen and Weng, Qizhen and Wang, Wei and Li, Baochun and Li, Bo",
        title="Semi-Dynamic Load Balancing: Efficient Distributed Learning in Non-Dedicated Environments",
        venue="ACM Symposium on Cloud Computing (SoCC)",
        year=2020,
        url="https://arxiv.org/abs/1806.02508",
    ),
)
class LBBSP(Scheme):
    global_batch: int = parameter(0, "X: samples a round, all workers together; 0: the sum of their own", low=0)
    low: int = parameter(0, "smallest batch of a worker; 0: 2, or 1 where X has not 2 for each", low=0)
    high: int = parameter(0, "largest batch of any worker, beside its own of --batch-limits; 0: any", low=0)
    smoothing: str = parameter("ema:0.5", "of measured speeds: last, ema:b or median:n", check=Smoothing.parse)
    hysteresis: float = parameter(0.05, "part of a step that new sizes must save", low=0.0, high=1.0)

    def check(self, workers: int, servers: int) -> None:
        super().check(workers, servers)
        if self.high and self.high < self.low:
            raise ConfigError(f"lbbsp.high = {self.high} is below lbbsp.low = {self.low}: raise it, or 0 for any")
        if self.global_batch:
            self.check_bounds(self.global_batch, workers)

    def check_bounds(self, total: int, workers: int) -> None:
        low = self.low or 1
        if total < low * workers:
            raise ConfigError(
                f"lbbsp: {workers} workers cannot share {total} samples a round: raise --lbbsp.global-batch to "
                f"{low * workers}{' or lower --lbbsp.low' if low > 1 else ''}"
            )
        if self.high and total > self.high * workers:
            raise ConfigError(
                f"lbbsp: {workers} workers cannot take {total} samples a round: lower --lbbsp.global-batch to "
                f"{self.high * workers} or raise --lbbsp.high"
            )

    def check_batch_limits(self, limits: Sequence[int]) -> None:
        most = [smaller(self.high, limit) for limit in limits]
        if any(0 < bound < self.low for bound in most):
            raise ConfigError(f"lbbsp: --batch-limits below --lbbsp.low {self.low}: raise them, or lower --lbbsp.low")
        if most and all(most) and sum(most) < self.global_batch:
            raise ConfigError(
                f"lbbsp: workers whose largest batches are {', '.join(map(str, most))} cannot take {self.global_batch} "
                f"samples a round: lower --lbbsp.global-batch to {sum(most)} or raise --batch-limits"
            )

    few_steps = (12, "its global batch is always whole, where bsp ends each epoch with a small one and so updates more")
    lock_step = True
    equal_rounds = False
    mixes_steps = True
    sizes_batches = True

    def most_samples(self, batch: int, workers: int) -> int:
        return self.global_batch or 2 * batch * workers  # see `_own_batches`

    def in_step(self, servers: int) -> bool:
        return True  # the coordinator waits for the reports of all

    class Worker(Role):
        common = ("round", "samples_seen")
        transient = ("size", "done")
        round = 0
        size: int | None = None  # of the round that comes; None: to be asked for
        done: Computed | None = None  # the work of this round; a restarted worker hands over the very same

        def go_on_at(self, clock: int) -> None:
            self.round = clock

        def run(self) -> Generator[Effect, Any, None]:
            if self.size is None:  # asked first: those whose round waits for this worker may wait for its report
                self.size = (yield self.report(0, 0.0)).samples
            yield from self.enter()
            while True:
                if self.done is None:
                    self.done = yield Compute(self.w, samples=self.size or None)
                asked = yield Start(self.report(self.done.samples, self.done.seconds, ahead=1))
                yield from self.exchange(self.done)
                self.round += 1
                self.size = self.done = None
                self.size = (yield Wait(asked)).samples

        def enter(self) -> Generator[Effect, Any, None]:
            self.take((yield Call(SERVERS, Pull())))

        def exchange(self, c: Computed) -> Generator[Effect, Any, None]:
            push = Push(g=c.g, clock=self.round + 1, samples=c.samples, data=c.data, unused=c.unused)
            self.take((yield Call(SERVERS, push)))

        def take(self, answer: Weights) -> None:
            self.w, self.samples_seen = answer.w, answer.samples_seen

        def report(self, samples: int, seconds: float, ahead: int = 0) -> Call:
            return Call(COORDINATOR, Report(round=self.round + ahead, samples=samples, seconds=seconds))

    class Equals(Worker):
        def enter(self) -> Generator[Effect, Any, None]:
            yield from ()

        def exchange(self, c: Computed) -> Generator[Effect, Any, None]:
            mean = yield Mean(c.g, self.workers, tag=f"lbbsp/{self.round}", weight=float(c.samples))
            unused = c.unused if len(self.workers) == 1 else ()
            self.w = updated(self.update, self.w, mean.v, int(mean.weight), unused)
            self.samples_seen += int(mean.weight)

    class Server(ClockedServer):
        def partition(self) -> tuple[tuple[int, ...], ...]:
            return (self.workers,)

    class Coordinator(Role):
        def __init__(self, scheme: Any, place: RoleContext) -> None:
            super().__init__(scheme, place)
            self.members = set(self.workers)
            self.round = 0  # that of the reports that are coming in
            self.reports: dict[int, int] = {}  # who has reported it, and how many samples
            self.asked: dict[int, int] = {}  # the round of each one's latest question: newcomers may count one less
            self.fresh: set[int] = set()  # newcomers at another round: nobody waits for their reports
            v = Estimates(self.workers, Smoothing.parse(scheme.smoothing))
            limits = place.batch_limits or (0,) * len(self.workers)
            most = {rank: smaller(scheme.high, limits[rank]) for rank in self.workers}
            high = {rank: bound for rank, bound in most.items() if bound}
            self.balance = Balance(v, place.seconds_per_step, scheme.global_batch, scheme.low, high, scheme.hysteresis)

        def on(self, now: float, src: int, message: Any) -> Iterator[Tell | Reply]:
            match message:
                case Report() if src not in self.members:
                    return  # it has left
                case Report(samples=samples, seconds=seconds) if src in self.fresh and self.lags(message):
                    if samples:
                        self.balance.v.put(src, samples / max(seconds, 1e-9))
                    if self.members <= self.fresh and self.balance.total:  # nobody else is there to decide
                        self.decide(now)
                    least = self.balance.least(len(self.members)) if self.balance.total else 0
                    least = min(least, self.balance.high.get(src, least))
                    yield Reply(src, Size(samples=self.balance.sizes.get(src, least)))
                case Report(round=round) if round <= self.asked.get(src, -1) and src not in self.reports:
                    yield Reply(src, Size(samples=self.balance.sizes.get(src, 0)))  # asked again, after a restart
                case Report(round=round, samples=samples, seconds=seconds):
                    if self.members <= self.fresh:  # nobody else is there to say which round it is
                        self.round = round
                    self.asked[src] = min(round, self.round)  # one further on would never be heard again
                    self.fresh.discard(src)
                    if samples:
                        self.balance.v.put(src, samples / max(seconds, 1e-9))
                    self.reports[src] = samples or self.reports.get(src, 0)
                    yield from self.close(now)
                case _:
                    yield from super().on(now, src, message)

        def on_worker_left(self, now: float, rank: int) -> Iterator[Tell | Reply]:
            self.members.discard(rank)
            self.balance.v.drop(rank)
            self.fresh.discard(rank)
            self.asked.pop(rank, None)
            self.reports.pop(rank, None)
            self.balance.sizes.pop(rank, None)
            yield from self.close(now)

        def on_worker_joined(self, now: float, rank: int) -> Iterator[Tell | Reply]:
            """It has a part in decisions, and is answered at once, as long as it may be behind or ahead."""
            self.members.add(rank)
            self.fresh.add(rank)
            self.balance.v.add(rank)
            yield from ()

        def lags(self, report: Report) -> bool:
            """The others may have left its round, or not come to it yet, so neither may wait for the other.

            One that is ahead would be counted a round too early from then on; where a phase ends, the others would wait
            for a report that does not come.
            """
            return not report.samples or (report.round != self.round and not self.members <= self.fresh)

        def close(self, now: float) -> Iterator[Reply]:
            """Once all have reported, the round that comes is decided."""
            if not self.reports or len(self.reports) < len(self.members - self.fresh):
                return
            self.decide(now)
            self.round += 1
            reports, self.reports = self.reports, {}
            for rank in reports:
                yield Reply(rank, Size(samples=self.balance.sizes[rank]))

        def _own_batches(self) -> dict[int, int]:
            """Returns the batches that the workers reported; 0 for one that has made none yet, and takes its own.

            Batches of unlike workers may differ, but one that is `UNLIKE_MOST` times that of most others is a lie. A
            batch beyond `low` and `high_i` is brought to them, so that no worker's report can end the run.
            """
            made = {rank: samples for rank, samples in self.reports.items() if samples}
            if made:
                claims = sorted(made.values())
                most = UNLIKE_MOST * claims[(len(claims) - 1) // 2]
                low, high = self.scheme.low or 1, self.balance.high
                made = {rank: max(low, min(claim, most, high.get(rank, most))) for rank, claim in made.items()}
                if self.place.most_samples:  # one worker may have the batches of all one day
                    largest = max(made, key=lambda rank: made[rank])
                    others = sum(made.values()) - made[largest]
                    made[largest] = max(low, min(made[largest], self.place.most_samples - others))
            return {rank: made.get(rank, 0) for rank in self.reports}

        def decide(self, now: float) -> None:
            balance = self.balance
            if not balance.total:  # some have made a batch of their own, and others are about to
                balance.sizes = self._own_batches()
                if all(balance.sizes.values()) and not self.fresh:
                    balance.total = sum(balance.sizes.values())
                    if min(balance.sizes.values()) == 1:  # then a batch of one is what the loop asks for
                        balance.low = balance.low or 1
            for rank, size, reason in balance.settle({*self.reports, *self.fresh}) if balance.total else ():
                if self.note:
                    verdict = f"{size} samples"
                    self.note(Decided(at=now, party="coordinator", rank=rank, verdict=verdict, reason=reason))
