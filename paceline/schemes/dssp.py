"""Dynamic SSP: the bound of stale synchronous parallel moves between s_L and s_U, where waiting costs least.

    worker p:  repeat  g <- grad f_p(w);  push g;  t_p <- t_p + 1;  w <- pull
    server:    upon g of p:  w <- w - eta s(Y) g                                            (Algorithm 1)
                   r_p > 0                    ->  r_p <- r_p - 1;  answer
                   t_p - t_slowest <= s_L     ->  answer
                   p is the fastest           ->  r_p <- controller(p);  r_p > 0  ->  r_p <- r_p - 1;  answer
                   otherwise                  ->  answer once  t_p - t_slowest <= s_L
    controller(p):                                                                          (Algorithm 2)
        I_p, I_slowest   <- time between the last two pushes of p, of the slowest
        A_p(r)           <- last push of p + r I_p                     r = 0 .. r_max
        A_slowest(k)     <- last push of the slowest + k I_slowest     k = 1 .. r_max + 1
        r* <- the r for which some A_slowest(k) is nearest to A_p(r); the least such r

So a fast worker goes on for r* more iterations when they are foreseen to end just as the slowest pushes. t: clocks;
s_L, s_U: `low`, `high`; times are those of the shard's own monotonic clock, in seconds. low = high is SSP.

Ours: r_max = s_U - s_L in the paper; here r_max = s_U + 1 - (t_p - t_slowest), the same for a worker that has just
passed s_L, so that s_U is a hard bound whatever is granted when: nobody starts a step more than s_U clocks ahead. While
one of the two has pushed less than twice, r* = 0. Of several slowest workers, the one that came to its clock last
counts. With several shards the strictest decides.

Use it where SSP's best bound is not known or changes. Not where one worker is always slow by much: like SSP, all end
up waiting for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from paceline.core.effects import Reply, Tell
from paceline.core.errors import ConfigError
from paceline.core.paramserver.gated_server import ClockedServer, some
from paceline.core.paramserver.gated_worker import ClockedWorker
from paceline.core.paramserver.options import Weighted
from paceline.core.role import RoleContext
from paceline.core.scheme import Paper, parameter, scheme


def controller(p_last: float, p_interval: float, slowest_last: float, slowest_interval: float, r_max: int) -> int:
    """Returns r*, the least r in 0 .. r_max after which p would push nearest to a push of the slowest.

    Times in seconds: the last push and the interval between the last two, of p and of the slowest. 0 while an interval
    is unknown (Algorithm 2).
    """
    if p_interval <= 0 or slowest_interval <= 0:
        return 0

    def apart(r: int) -> float:
        at = p_last + r * p_interval
        k = min(max(1, round((at - slowest_last) / slowest_interval)), r_max + 1)
        return abs(slowest_last + k * slowest_interval - at)

    return min(range(r_max + 1), key=apart)


@scheme(
    "dssp",
    summary="stale synchronous with a bound that moves in a range, by foreseen push times",
    paper=Paper(
        key="zhao2019dynamic",
        authors="Zhao, Xing and An, Aijun and Liu, Junfeng and Chen, Bao Xin",
        title="Dynamic Stale Synchronous Parallel Distributed Training for Deep Learning",
        venue="IEEE International Conference on Distributed Computing Systems (ICDCS)",
        year=2019,
        url="https://arxiv.org/abs/1908.11848",
    ),
)
class DSSP(Weighted):
    low: int = parameter(3, "s_L: clocks a worker may always be ahead of the slowest", low=0)
    high: int = parameter(15, "s_U: clocks it may be ahead at most, when that saves waiting", low=0)

    Worker = ClockedWorker

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.low > self.high:
            raise ConfigError(f"dssp.low = {self.low} lies above dssp.high = {self.high}: swap them")

    def max_ahead(self) -> int:
        return self.high

    class Server(ClockedServer):
        transient = ("last", "interval", "r", "granted")

        def __init__(self, scheme: Any, place: RoleContext) -> None:
            super().__init__(scheme, place)
            self.last: dict[int, float] = {}  # when each worker last pushed
            self.interval: dict[int, float] = {}  # between its last two pushes
            self.r: dict[int, int] = {}  # iterations beyond s_L still granted
            self.granted: set[int] = set()  # who may start one now

        def ticked(self, now: float, rank: int, low_moved: bool) -> bool:
            if rank in self.last:
                self.interval[rank] = now - self.last[rank]
            self.last[rank] = now
            self.granted.discard(rank)
            if (
                self.r.get(rank, 0) == 0
                and self.clocks[rank] == self.clocks.high
                and self._ahead(rank) > self.scheme.low
            ):
                self.r[rank] = self._extra(rank)
            if self.r.get(rank, 0) > 0:
                self.r[rank] -= 1
                self.granted.add(rank)
            return low_moved

        def on_worker_left(self, now: float, rank: int) -> Iterator[Tell | Reply]:
            for of in (self.last, self.interval, self.r):
                of.pop(rank, None)
            yield from super().on_worker_left(now, rank)

        def _ahead(self, rank: int) -> int:
            return self.clocks[rank] - self.clocks.low

        def _extra(self, p: int) -> int:
            r_max = self.scheme.high + 1 - self._ahead(p)
            slowest = self.clocks.last_of_slowest()
            if r_max < 1 or p not in self.interval or slowest not in self.interval:
                return 0
            return controller(self.last[p], self.interval[p], self.last[slowest], self.interval[slowest], r_max)

        def may_go(self, rank: int) -> bool:
            return rank in self.granted or self._ahead(rank) <= self.scheme.low

        def holders(self, rank: int) -> Collection[int]:
            return self.clocks.slowest()

        def why_not(self, rank: int) -> str:
            ahead, slowest = self._ahead(rank), some(self.clocks.slowest())
            clocks = f"{ahead} clock{'s' if ahead > 1 else ''}"
            return f"{clocks} ahead of {slowest}, bound {self.scheme.low}; going on would not save waiting"
