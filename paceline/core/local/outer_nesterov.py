"""Local steps, then one outer Nesterov step along their mean: DiLoCo and the schemes that vary it share this.

`paceline/schemes/diloco.py` has the boxes, with the letters that are used here, the papers and what is ours.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Generator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from paceline.core.collective.mean_server import Averaged
from paceline.core.effects import Effect, Mean, Start, Wait
from paceline.core.errors import ConfigError
from paceline.core.local.local_sgd import AVERAGE, Trainer, memory_parameter
from paceline.core.role import Role, RoleContext
from paceline.core.scheme import Scheme, parameter
from paceline.core.vector import cut, splice


class OuterNesterovWorker(Trainer):
    """Runs the box without eager updates. x: its weights; w, v: those of all workers and their momentum."""

    common = ("round", "samples_seen", "v")
    private: ClassVar[tuple[str, ...]] = ("x",)
    saved: ClassVar[tuple[str, ...]] = ("samples_ahead",)
    transient: ClassVar[tuple[str, ...]] = ("parts", "uncut", "travels", "private")

    def __init__(self, scheme: Any, place: RoleContext) -> None:
        super().__init__(scheme, place)
        self.x: Any = place.w
        self.v: Any = place.w * 0.0
        self.parts = cut(len(place.w), scheme.fragments)
        self.uncut = len(self.parts) == 1
        self.travels = False  # an exchange, while this worker trains on
        if self.uncut and not scheme.delay:
            self.private = ()  # type: ignore[misc]  # x is w after an exchange

    @property
    def whole(self) -> bool:
        return not self.travels

    def run(self) -> Generator[Effect, Any, None]:
        tau, between = self.scheme.delay, self.scheme.h // self.scheme.fragments
        while True:
            if self.done is None:
                # Of the steps between two exchanges, tau have been made while the last one was on its way.
                self.done = yield self.train(self.x, between - (tau if self.round else 0))
            turn = self.round % len(self.parts)
            x, p = self.done.x, self.parts[turn]
            if self.scheme.memory == AVERAGE:
                yield from self.average_memory()
            samples = self.samples_ahead + self.done.samples  # all that have moved x since the last exchange
            minus_delta = x - self.w if self.uncut else x[p] - self.w[p]
            exchange, ahead = self.mean(minus_delta, float(samples), series=turn), 0
            if tau:
                ticket = yield Start(exchange)
                self.travels = True
                t = yield self.train(x, tau, begins=False)
                x, ahead = t.x, t.samples
                mean = yield Wait(ticket)
                self.travels = False
            else:
                mean = yield exchange
            self.receive(p, mean.v, x)
            self.samples_seen += int(mean.weight)
            self.samples_ahead = ahead
            self.met()
            # One fragment that is NaN would make the others NaN in the next step.
            if self.private and not self.is_sound(x):
                self.x, self.samples_ahead = self.w, 0

    def receive(self, p: slice, minus_delta: Any, x: Any) -> None:
        """Takes the outer step on fragment `p` with the mean, and mixes it into `x`."""
        alpha = self.scheme.alpha if self.scheme.delay else 0.0
        w_p, v_p, x_p = (self.w, self.v, x) if self.uncut else (self.w[p], self.v[p], x[p])
        w, v = self.scheme.outer(w_p, v_p, minus_delta * -1.0)
        x_p = x_p * alpha + w * (1 - alpha) if alpha else w
        if self.uncut:
            self.v, self.w, self.x = v, w, x_p
        else:
            self.v, self.w, self.x = splice(self.v, p, v), splice(self.w, p, w), splice(x, p, x_p)


class EagerWorker(Trainer):
    """Runs the box of eager updates.

    x: its weights; y, u: its own outer weights and momentum; w, v: those of all workers, without what is on its way.
    owed: by fragment, Delta' - Delta'_i / M, what the means bring that y has not; without Delta' until that has come.
    under_way: the exchange that is not over yet. together: samples of all in the last mean. A resumed worker begins the
    exchange that was under way once more, with the very same part.
    """

    common = ("round", "samples_seen", "v")
    private = ("x", "y", "u", "owed")
    saved = ("together", "samples_ahead")
    transient = ("parts", "under_way", "part_before")

    def __init__(self, scheme: Any, place: RoleContext) -> None:
        super().__init__(scheme, place)
        self.x: Any = place.w
        self.y: Any = place.w
        self.v: Any = place.w * 0.0
        self.u: Any = self.v
        self.owed: Any = self.v
        self.parts = cut(len(place.w), scheme.fragments)
        self.under_way: Mean | None = None
        self.part_before: tuple[Any, float] | None = None  # of a resumed worker: its part of what was under way
        self.together = 0.0

    def state(self) -> dict[str, Any]:
        part = self.under_way
        handed_over = {"under_way": part.v, "under_way_samples": part.weight} if part is not None else {}
        return {**super().state(), **handed_over}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        if "under_way" in state:
            self.part_before = state["under_way"], state["under_way_samples"]

    def load_join_state(self, shown: Mapping[str, Any]) -> None:
        resumed = self.u is not self.v  # what this worker alone has was restored before
        super().load_join_state(shown)
        if not resumed:
            self.u = self.v

    def run(self) -> Generator[Effect, Any, None]:
        while True:
            if self.under_way is None and self.round:
                self.under_way = self.once_more()
            ticket = (yield Start(self.under_way)) if self.under_way else None
            if self.done is None:
                self.done = yield self.train(self.x, self.scheme.h // self.scheme.fragments)
            if ticket is not None:
                self.receive((yield Wait(ticket)))
            self.hand_over()

    def part(self, round: int) -> slice:
        """Returns which fragment has its turn in that round."""
        return self.parts[round % len(self.parts)]

    def once_more(self) -> Mean:
        """Returns this worker's part in the exchange under way where it has none any more: that of the run before, or
        for a newcomer, which needs the mean, one without weight.
        """
        turn = (self.round - 1) % len(self.parts)
        v, weight = self.part_before or (self.v[self.parts[turn]] * 0.0, 0.0)
        self.part_before = None
        return Mean(v, self.workers, tag=f"{self.scheme.name}/{self.round - 1}", weight=weight, series=turn)

    def receive(self, mean: Averaged) -> None:
        """Applies the mean to w and v, and keeps it for the next turn of its fragment, when y takes it in."""
        self.under_way = None
        if not mean.weight:  # everybody has been resumed, and nobody has what was under way
            return
        p, delta = self.part(self.round - 1), mean.v * -1.0
        w, v = self.scheme.outer(self.w[p], self.v[p], delta)
        self.w, self.v = splice(self.w, p, w), splice(self.v, p, v)
        self.owed = splice(self.owed, p, self.owed[p] + delta)
        self.together = mean.weight
        self.samples_seen += int(mean.weight)

    def hand_over(self) -> None:
        """Goes on with the estimate, and has the exchange of this turn under way."""
        assert self.done is not None
        p, samples = self.part(self.round), float(self.done.samples)
        delta = self.y[p] - self.done.x[p]
        self.under_way = self.mean(delta * -1.0, samples, series=self.round % len(self.parts))
        if self.is_sound(self.done.x):
            self.estimate(p, delta * min(1.0, samples / (self.together or samples * len(self.workers))))
        else:
            self.x, self.y, self.u, self.owed = self.w, self.w, self.v, self.v * 0.0
        self.samples_ahead = int(samples)
        self.met()

    def estimate(self, p: slice, own: Any) -> None:
        """Takes y, u and x on by E_i of fragment `p`; `own` is Delta_i / M."""
        assert self.done is not None
        y, u = self.scheme.outer(self.y[p], self.u[p], own + self.owed[p])
        self.x, self.y, self.u = splice(self.done.x, p, y), splice(self.y, p, y), splice(self.u, p, u)
        self.owed = splice(self.owed, p, own * -1.0)


@dataclass(frozen=True, kw_only=True)
class WithOuterNesterov(Scheme):
    """Declares the parameters of such a scheme; its workers are the two classes above."""

    h: int = parameter(20, "H: local steps between two exchanges of the same parameters", low=1)
    outer_lr: float = parameter(0.7, "lr: outer learning rate", low=0.0)
    outer_momentum: float = parameter(0.9, "mu: outer Nesterov momentum", low=0.0, high=0.999)
    fragments: int = parameter(1, "P: parts of the model that are exchanged in turn", low=1)
    delay: int = parameter(0, "tau: local steps during which an exchange may be on its way", low=0)
    alpha: float = parameter(0.5, "with a delay: share of a worker's own fragment in the mixture", low=0.0, high=1.0)
    memory: str = memory_parameter("keep")
    eager: bool = parameter(False, "an exchange takes until the next turn; meanwhile its own part of it is estimated")

    round_steps = "h"
    needs_mean = True
    trains_locally = True
    lock_step = True

    def with_round(self, steps: int, given: Collection[str]) -> Scheme:
        """Returns this scheme with rounds as short as fragments and delay, which nobody gives without a reason, let
        them be.
        """
        between = max(self.delay + 1, steps // self.fragments)
        return dataclasses.replace(self, h=min(self.h, between * self.fragments))

    def check(self, workers: int, servers: int) -> None:
        super().check(workers, servers)
        if self.h % self.fragments:
            raise ConfigError(
                f"{self.name}.h = {self.h} must be a multiple of {self.name}.fragments = {self.fragments}"
            )
        if self.delay >= self.h // self.fragments:
            raise ConfigError(
                f"{self.name}.delay = {self.delay}: a fragment must be back before the next one leaves, "
                f"{self.h // self.fragments} steps later; take less"
            )
        average = f"{self.name}.memory = 'average'"
        if self.delay and self.memory == AVERAGE:
            raise ConfigError(f"{average} needs {self.name}.delay = 0: with a delay nobody pauses to average")
        if self.eager and self.delay:
            raise ConfigError(f"{self.name}.eager: an exchange takes until the next turn, so leave out the delay")
        if self.eager and self.memory == AVERAGE:
            raise ConfigError(f"{average} needs {self.name}.eager = false: with it nobody pauses to average")

    def worker(self, servers: int) -> type[Role]:
        return EagerWorker if self.eager else super().worker(servers)

    def outer(self, w: Any, v: Any, delta: Any) -> tuple[Any, Any]:
        """Returns (w, v) after one step of OuterOpt, Nesterov momentum, along `delta`."""
        v = v * self.outer_momentum + delta
        return w - (delta + v * self.outer_momentum) * self.outer_lr, v

    Worker = OuterNesterovWorker
