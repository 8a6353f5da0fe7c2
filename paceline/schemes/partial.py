"""Partially synchronous SGD: nobody waits, until somebody is n exchanges ahead; then all line up once.

    worker i:  repeat  push what came of the work at w;  w <- pull
    server:    upon i:  w <- merge;  c_i <- c_i + 1
                   max c - min c >= n  ->  catch up: hold i and everybody who reports from now on,
                                           until every worker has reported once
                   all have reported   ->  c_j <- 1 for all j;  answer everybody
                   otherwise           ->  answer i

n is `max_advance`, counted in exchanges since all last lined up. A worker that is n ahead waits for one report of
each of the others, not for the slowest to make up the difference. (Stale synchronous parallel, `ssp`, does that.)
n = 1 is a barrier at every exchange: the first report of a turn starts the catching up. Every contribution is
applied on arrival, also while others are held.

The rules are those of SpeeDO's source (`--maxAdvance`). With several shards, shard 0 alone decides who is held: two
shards that see reports in different orders could hold workers that wait for one another. A worker that was held pulls
the weights again, so that all start from the weights of the barrier, up to what was on its way to other shards.

Use it where speeds fluctuate and staleness should be bounded without a stop at every step. Not where one worker is
always slow: there is a barrier every n exchanges of the fastest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from paceline.core.effects import Reply, Tell
from paceline.core.paramserver.clocks import Clocks
from paceline.core.paramserver.gated_server import ClockedServer, some
from paceline.core.paramserver.gated_worker import ClockedWorker
from paceline.core.paramserver.options import Payload
from paceline.core.role import RoleContext
from paceline.core.scheme import Paper, parameter, scheme


@scheme(
    "partial",
    summary="asynchronous, with a barrier whenever somebody is n exchanges ahead",
    paper=Paper(
        key="zheng2015speedo",
        authors="Zheng, Zhongyang and Jiang, Wenrui and Wu, Gang and Chang, Edward Y.",
        title="SpeeDO: Parallelizing Stochastic Gradient Descent for Deep Convolutional Neural Network",
        venue="NIPS Workshop on Machine Learning Systems (LearningSys)",
        year=2015,
        url="https://github.com/obdg/speedo",
    ),
)
class Partial(Payload):
    max_advance: int = parameter(4, "n: exchanges a worker may be ahead of another before all line up", low=1)

    one_gate = True

    Worker = ClockedWorker

    class Server(ClockedServer):
        transient = ("lap", "missing")

        def __init__(self, scheme: Any, place: RoleContext) -> None:
            super().__init__(scheme, place)
            self.lap = Clocks(self.workers)  # exchanges since all last lined up
            self.missing: set[int] | None = None  # who has not reported yet; None while nobody has to

        def ticked(self, now: float, rank: int, low_moved: bool) -> bool:
            self.lap.tick(rank, self.lap[rank] + 1)
            if self.missing is None and self.lap.high - self.lap.low >= self.scheme.max_advance:
                self.missing = set(self.lap)
            if self.missing is None:
                return False
            self.missing.discard(rank)
            return self._lined_up()

        def _lined_up(self) -> bool:
            """True, once, when nobody is missing any longer."""
            if self.missing is None or self.missing:
                return False
            self.lap, self.missing = Clocks(self.lap), None
            return True

        def on_worker_left(self, now: float, rank: int) -> Iterator[Tell | Reply]:
            if rank in self.lap:
                self.lap.drop(rank)
                if self.missing is not None:
                    self.missing.discard(rank)
                self._lined_up()
            yield from super().on_worker_left(now, rank)

        def on_worker_joined(self, now: float, rank: int) -> Iterator[Tell | Reply]:
            if rank not in self.lap:
                self.lap.add(rank)
            yield from super().on_worker_joined(now, rank)

        def may_go(self, rank: int) -> bool:
            return self.missing is None or rank in self.missing

        def holders(self, rank: int) -> Collection[int]:
            return self.missing or ()

        def why_not(self, rank: int) -> str:
            assert self.missing is not None
            return f"somebody is {self.scheme.max_advance} ahead: waits for a report of {some(self.missing)}"
