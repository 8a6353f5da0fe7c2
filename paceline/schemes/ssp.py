"""Stale synchronous parallel: a worker may run ahead of the slowest one, by at most s clocks.

    worker i:  repeat  g <- grad f_i(w);  push g;  c_i <- c_i + 1;  w <- pull
    server:    upon g:  w <- w - eta s(Y) g;  answer i once  c_i - min_j c_j <= s

The bound is hard, held by the server, and on the true minimum over all workers (Ho et al., Section 3: "the fastest
and slowest threads must be <= s clocks apart"). A worker that has finished clock c therefore starts its next step
only when everybody has finished clock c - s; s = 0 is lock-step, s = infinity is ASP. What a worker reads
includes every update up to clock c - s, its own included.

Use it when speeds fluctuate around equal means. Not when one worker is always slow: everyone is then s clocks ahead
of it and moves at its pace.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from paceline.core.paramserver.gated_server import ClockedServer, some
from paceline.core.paramserver.gated_worker import ClockedWorker
from paceline.core.paramserver.options import Weighted
from paceline.core.role import RoleContext
from paceline.core.scheme import Paper, parameter, scheme


@scheme(
    "ssp",
    summary="stale synchronous: ahead of the slowest by at most s clocks",
    paper=Paper(
        key="ho2013more",
        authors="Ho, Qirong and Cipar, James and Cui, Henggang and others",
        title="More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server",
        venue="Advances in Neural Information Processing Systems 26",
        year=2013,
        url="https://papers.nips.cc/paper/4894-more-effective-distributed-ml-via-a-stale-synchronous-parallel-parameter-server",
    ),
)
class SSP(Weighted):
    staleness: int = parameter(3, "s: clocks a worker may run ahead of the slowest", low=0)

    Worker = ClockedWorker

    def max_ahead(self) -> int:
        return self.staleness

    class Server(ClockedServer):
        transient = ("s",)

        def __init__(self, scheme: Any, place: RoleContext) -> None:
            super().__init__(scheme, place)
            self.s: int = scheme.staleness

        def may_go(self, rank: int) -> bool:
            return self.clocks[rank] - self.clocks.low <= self.s

        def holders(self, rank: int) -> Collection[int]:
            return self.clocks.slowest()

        def why_not(self, rank: int) -> str:
            ahead = self.clocks[rank] - self.clocks.low
            return f"{ahead} clock{'s' if ahead > 1 else ''} ahead of {some(self.clocks.slowest())}, bound {self.s}"
