"""Weed-out: asynchronous, but what comes from a worker that has not been heard of for long is dropped.

    worker i:  repeat  push what came of the work at w;  w <- pull
    server:    upon i:  i among the senders of the last n reports, or fewer than n so far  ->  w <- merge
                        otherwise                                                          ->  drop it
                   in either case i is the latest sender;  answer at once

n is `window`, but never less than the number of workers; by default twice that. It counts reports, dropped ones too,
so a worker that was weeded out counts again if its next report comes within n others. A report is dropped whole; its
worker goes on from the weights of the server, and loses one exchange of work.

The rules are those of SpeeDO's source (`--weedout`; its manual says `--drop`, which did nothing). Our choice is the
default of n. SpeeDO's is the number of workers (here `window` 1), with which whoever is overtaken by anybody is
weeded out: of 4, 8, 16 and 64 equal workers' steps with 10 % jitter it drops 15, 26, 36 and 44 %, and twice the
number of workers none; with 30 % jitter 30 to 42 %, and at most 0.7 %. When a worker leaves, n shrinks by its one or
two reports. With several shards each looks at the order in which reports reached it, so slices of one report may be
judged differently when two reports come close together.

Use it where a worker now and then stalls for long (other tenants, preemption): what it then sends is too old to help.
Not where one worker is always slow: nothing that it does is ever used, and data that it alone has is never learnt.
The trace has every drop with its reason.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from typing import Any

from paceline.core.effects import Reply, Tell
from paceline.core.paramserver.gated_server import ClockedServer
from paceline.core.paramserver.gated_worker import ClockedWorker
from paceline.core.paramserver.options import Payload
from paceline.core.role import RoleContext
from paceline.core.scheme import Paper, parameter, scheme

REPORTS_OF_EACH = 2
"""Workers of equal speed are then weeded out when they stall, and not because others came before them."""


@scheme(
    "weedout",
    summary="asynchronous: what comes from a worker that was not heard of for n reports is dropped",
    paper=Paper(
        key="zheng2015speedo",
        authors="Zheng, Zhongyang and Jiang, Wenrui and Wu, Gang and Chang, Edward Y.",
        title="SpeeDO: Parallelizing Stochastic Gradient Descent for Deep Convolutional Neural Network",
        venue="NIPS Workshop on Machine Learning Systems (LearningSys)",
        year=2015,
        url="https://github.com/obdg/speedo",
    ),
)
class WeedOut(Payload):
    window: int = parameter(
        0, "n: reports after which a worker's next one is dropped, at least one a worker; 0: two a worker", low=0
    )

    Worker = ClockedWorker

    class Server(ClockedServer):
        transient = ("of_each", "window", "senders", "times")

        def __init__(self, scheme: Any, place: RoleContext) -> None:
            super().__init__(scheme, place)
            self.of_each = 1 if scheme.window else REPORTS_OF_EACH
            self.window: int = max(scheme.window, self.of_each * len(self.workers))
            self.senders: deque[int] = deque()  # of the last reports, the oldest first
            self.times: Counter[int] = Counter()  # how often each worker is among them

        def refuse(self, rank: int) -> str | None:
            late = len(self.senders) >= self.window and not self.times[rank]
            self.senders.append(rank)
            self.times[rank] += 1
            self._forget()
            return f"not among the last {self.window} reports" if late else None

        def _forget(self) -> None:
            while len(self.senders) > self.window:
                self.times[self.senders.popleft()] -= 1

        def on_worker_left(self, now: float, rank: int) -> Iterator[Tell | Reply]:
            if rank in self.clocks:
                self.window -= self.of_each
                self._forget()
            yield from super().on_worker_left(now, rank)

        def on_worker_joined(self, now: float, rank: int) -> Iterator[Tell | Reply]:
            if rank not in self.clocks:
                self.window += self.of_each
            yield from super().on_worker_joined(now, rank)
