"""The clock-gated server, shared by every scheme whose rule is about clocks: BSP, ASP, SSP, GSP, ...

A worker pushes a gradient and waits for weights; on a parameter server a scheme is *when the server answers*.
Three questions tell the schemes apart, and a scheme overrides the ones it answers differently:

    partition()   whose contributions are averaged into one update?       (default: everyone on its own)
    weigh(y)      what does an update count that is y - 1 versions late?  (default: 1)
    may_go(rank)  may this worker compute again?                          (default: yes)
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import Any

from paceline.core.clocks import Clocks
from paceline.core.effects import SERVERS, Call, Compute, Effect, Reply, Tell
from paceline.core.mean import weighted_mean
from paceline.core.message import message
from paceline.core.role import Place, Role
from paceline.core.trace import Applied, Decision
from paceline.core.vector import Vector


@message
class Pull:
    """Ask for the weights."""


@message
class Push:
    """Mean gradient `g` over `samples` samples; `clock` counts this worker's pushes from 1. Answered by Weights."""

    g: Vector
    clock: int
    samples: int


@message
class Weights:
    w: Vector
    version: int


class ClockedWorker(Role):
    """repeat: compute the gradient at w, push it, take the weights the server answers with."""

    clock = 0

    def run(self) -> Generator[Effect, Any, None]:
        self.w = (yield Call(SERVERS, Pull())).w
        while True:
            c = yield Compute(self.w)
            answer = yield Call(SERVERS, Push(g=c.g, clock=self.clock + 1, samples=c.samples))
            self.clock += 1
            self.w = answer.w


class Round:
    """The contributions of one group that wait to become one update."""

    def __init__(self, members: Iterable[int]) -> None:
        self.members = set(members)
        self.reset()

    def reset(self) -> None:
        self.came: set[int] = set()
        self.sum: Any = None
        self.samples = 0

    def add(self, rank: int, g: Any, samples: int) -> None:
        """Sum of sample-weighted gradients, so that unequal batches average as one large batch would."""
        weighted = g * float(samples)
        self.sum = weighted if self.sum is None else self.sum + weighted
        self.samples += samples
        self.came.add(rank)

    @property
    def complete(self) -> bool:
        # The lengths decide all but the last arrivals, so that a push costs the same in a group of any size.
        return bool(self.came) and len(self.came) >= len(self.members) and self.members <= self.came


class ClockedServer(Role):
    """One shard: applies complete rounds, answers those who may go on."""

    def __init__(self, scheme: Any, place: Place) -> None:
        super().__init__(scheme, place)
        self.clocks = Clocks(self.workers)
        self.version = 0
        self.seen = dict.fromkeys(self.workers, 0)  # version of the weights each worker computes on
        self.rounds = {rank: group for members in self.partition() for group in [Round(members)] for rank in members}
        self.waiting: dict[int, str | None] = {}  # rank -> the reason it was last told to wait for

    # ---- what a scheme may answer differently ------------------------------------------------------------
    def partition(self) -> Iterable[tuple[int, ...]]:
        return ((rank,) for rank in self.workers)

    def weigh(self, y: int) -> float:
        return 1.0

    def may_go(self, rank: int) -> bool:
        return True

    def why_not(self, rank: int) -> str:
        """The reason behind `may_go`; asked for only when somebody keeps a trace."""
        return ""

    # ---- upon receiving ----------------------------------------------------------------------------------
    def on(self, now: float, src: int, message: Any) -> Iterator[Tell | Reply]:
        match message:
            case Push() | Pull() if src not in self.clocks:
                return  # it has left; what was still on its way changes nothing
            case Push(clock=clock) if clock > self.clocks[src]:
                self.waiting[src] = None
                low_moved = self.clocks.tick(src, clock)
                closed = self._contribute(now, src, message)
                affected = self.waiting if low_moved else self.rounds[src].members if closed else (src,)
                yield from self._release(now, affected)
            case Push() | Pull():  # a repeated push is answered and changes nothing
                self.waiting[src] = None
                yield from self._release(now, (src,))
            case _:
                yield from super().on(now, src, message)

    def gone(self, now: float, rank: int) -> Iterator[Tell | Reply]:
        if rank not in self.clocks:
            return
        self.clocks.drop(rank)
        self.waiting.pop(rank, None)
        group = self.rounds.pop(rank)
        group.members.discard(rank)
        if group.complete:
            self._apply(now, group)
        yield from self._release(now, self.waiting)

    def _contribute(self, now: float, src: int, push: Push) -> bool:
        """True when the contribution completed a round."""
        group = self.rounds[src]
        group.add(src, push.g, push.samples)
        if not group.complete:
            return False
        self._apply(now, group)
        return True

    def _apply(self, now: float, group: Round) -> None:
        y = 1 + self.version - min(self.seen[rank] for rank in group.came)
        weight = self.weigh(y)
        if weight > 0:
            g = weighted_mean(group.sum, group.samples) * weight
            self.w = self.update(self.w, g, group.samples)
            self.version += 1
        if self.note:
            self._explain_update(now, group, y - 1, weight)
        group.reset()

    def _release(self, now: float, ranks: Iterable[int]) -> Iterator[Reply]:
        for rank in [rank for rank in ranks if rank in self.waiting]:
            if rank in self.rounds[rank].came or not self.may_go(rank):
                self._explain_wait(now, rank)
                continue
            del self.waiting[rank]
            self.seen[rank] = self.version
            yield Reply(rank, Weights(w=self.w, version=self.version))

    # ---- reasons -----------------------------------------------------------------------------------------
    def _explain_update(self, now: float, group: Round, staleness: int, weight: float) -> None:
        assert self.note is not None
        ranks = tuple(sorted(group.came))
        self.note(
            Applied(
                at=now,
                shard=self.me,
                ranks=ranks,
                version=self.version,
                staleness=staleness,
                weight=weight,
                samples=group.samples,
            )
        )
        if weight == 0:
            self._decide(now, ranks[0], "dropped", f"{staleness} versions late")

    def _explain_wait(self, now: float, rank: int) -> None:
        if not self.note or self.waiting[rank] is not None:
            return
        group = self.rounds[rank]
        if rank in group.came:
            reason = f"waits for {some(group.members.difference(group.came))} of its group"
        else:
            reason = self.why_not(rank)
        self.waiting[rank] = reason
        self._decide(now, rank, "wait", reason)

    def _decide(self, now: float, rank: int, verdict: str, reason: str) -> None:
        assert self.note is not None
        self.note(Decision(at=now, party=f"server {self.me}", rank=rank, verdict=verdict, reason=reason))


def some(ranks: Iterable[int]) -> str:
    """`worker 1`, `workers 1, 2, 3` or `workers 1, 2, 3 and 7 more`."""
    ordered = sorted(ranks)
    head = ", ".join(map(str, ordered[:3]))
    rest = f" and {len(ordered) - 3} more" if len(ordered) > 3 else ""
    return f"worker{'s' if len(ordered) > 1 else ''} {head}{rest}"
