"""The worker of a clock-gated server: works at w, pushes what came of it, and takes what it is answered."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from paceline.core.clocked import DELTA, GRADIENT, Pull, Push, Weights
from paceline.core.effects import SERVERS, STREAMS, Call, Compute, Effect, Train
from paceline.core.role import Place, Role


class ClockedWorker(Role):
    """repeat: work at w, push what came of it, take the weights the server answers with.

    What was pushed stays on `self` until it is answered: a restarted worker hands the very same over again.
    """

    clock = 0
    common = ("clock",)
    servers_count = True
    goes_back = True

    def __init__(self, scheme: Any, place: Place) -> None:
        super().__init__(scheme, place)
        self.steps: int = getattr(scheme, "steps", 1)
        self.payload: str = getattr(scheme, "payload", GRADIENT)
        self.pushed: Push | None = None

    def run(self) -> Generator[Effect, Any, None]:
        if self.pushed is None:
            self.w = (yield Call(SERVERS, Pull())).w
        while True:
            if self.pushed is None:
                self.pushed = self.made((yield self.work()))
            self.met((yield Call(SERVERS, self.pushed, STREAMS)))

    def work(self) -> Compute | Train:
        if self.payload == GRADIENT:
            return Compute(self.w, self.steps, None, STREAMS)
        return Train(self.w, self.steps, self.scheme.memory)

    def made(self, of: Any) -> Push:
        """What came of `work`."""
        if self.payload == GRADIENT:
            v = of.g
        else:
            v = of.x - self.w if self.payload == DELTA else of.x
        return Push(g=v, clock=self.clock + 1, samples=of.samples, data=of.data)

    def met(self, answer: Weights) -> None:
        """The exchange is over."""
        self.w = answer.w
        self.pushed = None
        self.clock += 1

    def undone(self) -> None:
        """What was to be pushed belongs to weights that are no more. The clock goes on: servers take any later one."""
        self.pushed = None


class RefreshingWorker(ClockedWorker):
    """Where shard 0 alone holds workers back: one that was held pulls the weights again."""

    def run(self) -> Generator[Effect, Any, None]:
        current = False
        while True:
            if self.pushed is None:
                while not current:
                    answer = yield Call(SERVERS, Pull())
                    self.w, current = answer.w, answer.current
                self.pushed = self.made((yield self.work()))
            answer = yield Call(SERVERS, self.pushed)
            self.met(answer)
            current = answer.current
