"""K-sync SGD and its kin: an update is made of the first k contributions; nobody waits for the slowest.

    worker i:  repeat  g_i <- grad f_i(w);  push g_i;  w <- pull
    server:    upon g_i, computed at w_t:
                   drop and the server is beyond w_t  ->  forget it; answer i with the new weights
                   otherwise                          ->  G <- G + g_i
                   |G| = k  ->  w <- w - eta / k * sum of G;  G <- {};  answer

Four schemes of Dutta et al. (Section 2) by two parameters:

    late    variant   name          a worker that has pushed                       a gradient that came too late
    drop    sync      K-sync        waits for the update; k workers make one       is dropped
    drop    batch     K-batch-sync  goes on at the same w with the next batch      is dropped
    fold    sync      K-async       waits for the update it is part of             counts in the next update
    fold    batch     K-batch-async goes on at once                                counts in the next update

By default k is one less than the workers that take part at the moment. A k that is given stays; where fewer workers
are left than that, all of them make an update (sync).

K-sync with k = N - b is "synchronous SGD with b backup workers" of Chen et al. (Algorithms 3 and 4): "the slowest b
workers' gradients will be dropped when they arrive". k = N is BSP for K-sync; fold with k = 1 is ASP. Gradients are
weighted by their samples, so the sum above is a mean over samples.

Ours: nobody is interrupted. Dutta et al. cancel the work of those who are late; here they finish their step, and what
they push is dropped. Where nobody is interrupted, K-batch-sync is no faster than K-sync: every update makes the work
of all who are at it too late. With several shards each takes the first k that reached it, as in Chen et al.; who waits
is for shard 0 to say, lest two shards hold workers that wait for one another.

Use it where any worker may stall at any time. Not where the same worker is always slow: with drop, data that it alone
has is never learnt. Dropped work is work lost: about (N - k) / N of it under K-sync.
"""

from __future__ import annotations

from typing import Any

from paceline.core.errors import ConfigError
from paceline.core.paramserver.gated_server import ClockedServer
from paceline.core.paramserver.gated_worker import ClockedWorker
from paceline.core.paramserver.options import Clocked
from paceline.core.paramserver.round import Round
from paceline.core.role import RoleContext
from paceline.core.scheme import WHOLE_ROUND, Paper, RateShare, parameter, scheme


@scheme(
    "ksync",
    summary="the first k contributions make an update; the rest are dropped, or folded into the next",
    paper=Paper(
        key="dutta2018slow",
        authors="Dutta, Sanghamitra and Joshi, Gauri and Ghosh, Soumyadip and Dube, Parijat and Nagpurkar, Priya",
        title="Slow and Stale Gradients Can Win the Race: Error-Runtime Trade-offs in Distributed SGD",
        venue="International Conference on Artificial Intelligence and Statistics (AISTATS)",
        year=2018,
        url="https://arxiv.org/abs/1803.01113",
    ),
)
class KSync(Clocked):
    k: int = parameter(0, "contributions that make an update; 0: as many as workers take part, less one", low=0)
    late: str = parameter("drop", "what becomes of a contribution that came too late", choices=("drop", "fold"))
    variant: str = parameter(
        "sync",
        "sync: k workers, who wait for the update; batch: k mini-batches, nobody waits",
        choices=("sync", "batch"),
    )

    one_gate = True
    mixes_steps = True

    Worker = ClockedWorker

    @property
    def answers_early(self) -> bool:
        return self.variant == "batch"

    def check(self, workers: int, servers: int) -> None:
        super().check(workers, servers)
        if self.variant == "sync" and self.k > workers:
            raise ConfigError(
                f"ksync.k = {self.k}: {workers} workers cannot make an update of {self.k}; "
                f"give a k of at most {workers}, or --ksync.variant batch"
            )

    def rate_share(self, workers: int) -> RateShare:
        k = self.k or workers - 1
        if self.late == "drop" or k >= workers:  # what counts is fresh
            return WHOLE_ROUND
        return RateShare(k / workers, f"makes an update of {k} of {workers} contributions, and late ones count")

    class Server(ClockedServer):
        def __init__(self, scheme: Any, place: RoleContext) -> None:
            super().__init__(scheme, place)
            self.waits_for_round = not scheme.answers_early

        @property
        def k(self) -> int:
            """How many contributions make an update, with the workers that there are now."""
            present = len(self.clocks)
            k: int = self.scheme.k or max(1, present - 1)
            return min(k, present) if self.waits_for_round else k

        def partition(self) -> tuple[tuple[int, ...], ...]:
            return (self.workers,)

        def enough(self, group: Round) -> bool:
            return 0 < self.k <= group.count

        def refuse(self, rank: int) -> str | None:
            behind = self.version - self.seen[rank]
            if self.scheme.late == "fold" or not behind:
                return None
            return f"{self.k} others were first: {behind} update{'s' if behind > 1 else ''} late"

        def ticked(self, now: float, rank: int, low_moved: bool) -> bool:
            return False  # clocks are not what anybody waits for here

        def why_in_round(self, group: Round) -> str:
            return f"{group.count} of the {self.k} contributions of an update are there"
