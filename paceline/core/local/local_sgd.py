"""Workers train locally between meetings: this is what all schemes of that kind share.

    worker i:  repeat  x_i <- w, then local steps on n_i samples
                       d <- sum(n_i (x_i - w)) / sum(n_i)              (one Mean over all)
                       w <- outer(w, d)                                (w + d unless a scheme says otherwise)

An exchange does one of three things to the memory m_i of the local optimizer (momentum, Adam's moments):

    keep      every worker goes on with its own
    reset     every worker starts with none
    average   m_i <- sum(n_i m_i) / sum(n_i): Means of its own, so as much traffic again, twice that under Adam

A worker whose x_i is not finite has a part in d that is rejected, and a memory that is not finite either: with `keep`
it starts the next round with none.

Finished work stays on `self` until it is handed over. A worker that is restarted meanwhile hands over the very same
again, and what was averaged already is not averaged twice.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, ClassVar

from paceline.core.collective.mean_server import Averaged
from paceline.core.effects import EVERY_BIT, KEEP, RESET, Effect, Mean, Train, Trained, memory_after
from paceline.core.role import Role, RoleContext
from paceline.core.scheme import parameter
from paceline.core.vector import cut, is_finite, splice

AVERAGE = "average"


def memory_parameter(default: str) -> Any:
    """Declares the field `memory` of a scheme that trains locally."""
    help = "what an exchange does to the local optimizer's memory: keep, reset or average it over the workers"
    return parameter(default, help, choices=(KEEP, RESET, AVERAGE))


class Trainer(Role):
    """A worker that trains between exchanges.

    round: exchanges finished. done: local work that is not handed over yet. start: what the optimizer remembers when it
    begins the next round. averaged: parts of the memory of `done` that are averaged already.
    """

    # `start` has been given to the optimizer by the time that a state is kept.
    transient: ClassVar[tuple[str, ...]] = ("round", "done", "start", "averaged")

    def __init__(self, scheme: Any, place: RoleContext) -> None:
        super().__init__(scheme, place)
        self.round = 0
        self.done: Trained | None = None
        self.start: Any = RESET if scheme.memory == RESET else KEEP
        self.averaged = 0

    def progress(self) -> int:
        return self.round

    def train(self, x: Any, steps: int, *, begins: bool = True) -> Train:
        """Returns the effect for `steps` local steps from `x`; `begins`: they are the first of a round."""
        return Train(x, steps, memory=self.start if begins else KEEP, show_memory=self.scheme.memory == AVERAGE)

    def mean(self, v: Any, weight: float, what: str = "", series: int = 0) -> Mean:
        """Returns the effect that averages `v`; `what` tells several means of one round apart."""
        return Mean(v, self.workers, tag=f"{self.scheme.name}/{self.round}{what}", weight=weight, series=series)

    def average_memory(self) -> Generator[Effect, Any, None]:
        """Averages the optimizer's memory, if the scheme asks for it.

        It is done in parts no longer than the model, because carriers are made for vectors of that length.
        """
        assert self.done is not None
        memory = self.done.memory
        if self.scheme.memory != AVERAGE or memory is None:
            return
        parts = cut(len(memory), -(-len(memory) // len(self.w)))
        while self.averaged < len(parts):
            part = parts[self.averaged]
            mean = yield self.mean(memory[part], float(self.done.samples), f"/memory/{self.averaged}", EVERY_BIT)
            self.start = splice(self.start if self.averaged else memory, part, mean.v)
            self.averaged += 1

    def met(self) -> None:
        """Ends an exchange: the next one has another number and nothing to hand over yet.

        A worker with weights of its own calls `is_sound` itself.
        """
        if not self.private and self.done is not None and self.scheme.memory == KEEP:
            self.start = memory_after(self.done.x)
        self.round += 1
        self.done = None
        self.averaged = 0

    def pass_through(self) -> None:
        """Takes part in the present round without local work: its mean may have begun without this worker, so what it
        would train could be in no model. The next one expects it.

        Where memories are averaged, every member has one to send, so such a worker trains.
        """
        if self.scheme.memory != AVERAGE:
            self.done = Trained(self.w, 0, 0.0)

    def is_sound(self, x: Any) -> bool:
        """Returns True if this worker can go on from its own weights `x`; it must take the common ones otherwise.

        Then the optimizer forgets what it would keep, before the next round.
        """
        sound = is_finite(x)
        if self.scheme.memory == KEEP:
            self.start = KEEP if sound else RESET
        return sound


class LocalWorker(Trainer):
    """Runs the box above. A scheme says how many `steps` a round has, and what `outer` is."""

    common: ClassVar[tuple[str, ...]] = ("round", "samples_seen")

    def steps(self) -> int:
        """Returns the local steps of a round."""
        return int(self.scheme.tau)

    def join_late(self) -> None:
        self.pass_through()

    def outer(self, mean: Averaged) -> Any:
        """Returns the new w; `mean.v` is d, `mean.weight` the number of samples behind it."""
        return self.w + mean.v

    def run(self) -> Generator[Effect, Any, None]:
        """Trains locally, then meets all others: sends x - w and takes the outer step with the mean of these."""
        while True:
            if self.done is None:
                self.done = yield self.train(self.w, self.steps())
            yield from self.average_memory()
            mean = yield self.mean(self.done.x - self.w, float(self.done.samples))
            self.w = self.outer(mean) if mean.weight else self.w  # all may have joined late
            self.samples_seen += int(mean.weight)
            self.met()
