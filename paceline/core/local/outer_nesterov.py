"""Local steps, then one outer Nesterov step along their mean: DiLoCo and the schemes that vary it share this.

`paceline/schemes/diloco.py` has the boxes, with the letters that are used here, the papers and what is ours.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Generator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from paceline.core.collective.mean_server import Averaged
from paceline.core.effects import Effect, Mean, Start, Ticket, Trained, Wait
from paceline.core.errors import ConfigError
from paceline.core.local.local_sgd import AVERAGE, Trainer, memory_parameter
from paceline.core.role import Role, RoleContext
from paceline.core.scheme import Scheme, parameter
from paceline.core.vector import cut, splice


class OuterNesterovWorker(Trainer):
    """Runs the box without eager updates. x: its weights; w, v: those of all workers and their momentum."""

    common = ("round", "samples_seen", "v")
    private: ClassVar[tuple[str, ...]] = ("x",)
    saved: ClassVar[tuple[str, ...]] = ("samples_ahead", "usual")
    transient: ClassVar[tuple[str, ...]] = ("parts", "uncut", "ticket", "private")

    def __init__(self, scheme: Any, place: RoleContext) -> None:
        super().__init__(scheme, place)
        self.x: Any = place.w
        self.v: Any = place.w * 0.0
        self.parts = cut(len(place.w), scheme.fragments)
        self.uncut = len(self.parts) == 1
        self.ticket: Ticket | None = None  # of the exchange that travels while this worker trains on
        self.usual = 0  # samples in this worker's last exchange
        if self.uncut and not scheme.delay:
            self.private = ()  # type: ignore[misc]  # x is w after an exchange

    @property
    def whole(self) -> bool:
        return self.ticket is None

    def run(self) -> Generator[Effect, Any, None]:
        tau, between = self.scheme.delay, self.scheme.h // self.scheme.fragments
        while True:
            if self.done is None:
                # Of the steps between two exchanges, tau have been made while the last one was on its way.
                self.done = yield self.train(self.x, between - (tau if self.round else 0))
            if self.scheme.memory == AVERAGE:
                yield from self.average_memory()
            x, ahead = self.done.x, 0
            if tau:
                self.ticket = yield Start(self.exchange())
                t = yield self.train(x, tau, begins=False)
                x, ahead = t.x, t.samples
                mean = yield Wait(self.ticket)
            else:
                mean = yield self.exchange()
            self.take(mean, x, ahead)

    def last_exchange(self, *, soon: bool = False) -> Generator[Effect, Any, None]:
        """Exchanges all fragments once more, in rounds without local steps.

        Whoever trains on makes its next rounds together with these. At the end of a phase nobody leaves, so a worker
        that has nothing to hand over takes part, without weight: the others wait for it.
        """
        if self.done is not None and self.ticket is not None:
            self.take((yield Wait(self.ticket)), self.done.x, 0)
        rounds = len(self.parts) - (not self.scheme.delay)
        for _ in range(0 if soon and not self.usual else rounds):
            self.done = Trained(self.x, 0, 0.0)
            mean = yield self.exchange()
            if not mean.weight:  # nobody has trained
                return
            self.take(mean, self.x, 0)

    def join_late(self) -> None:
        self.pass_through()

    def exchange(self) -> Mean:
        """Returns the effect that averages what moved the fragment of this round.

        It is weighted by all samples that have moved x since the last exchange, or by those of the exchange before.
        """
        assert self.done is not None
        turn = self.round % len(self.parts)
        x, p, samples = self.done.x, self.parts[turn], self.samples_ahead + self.done.samples
        self.usual = samples or self.usual
        return self.mean(x - self.w if self.uncut else x[p] - self.w[p], float(self.usual), series=turn)

    def take(self, mean: Averaged, x: Any, ahead: int) -> None:
        """Goes on from the mean, and from `x`, which has moved by `ahead` samples while it was on its way."""
        if mean.weight:  # all may have joined late
            self.receive(self.parts[self.round % len(self.parts)], mean.v, x)
        self.samples_seen += int(mean.weight)
        self.samples_ahead, self.ticket = ahead, None
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
    saved = ("together", "samples_ahead", "usual")
    transient = ("parts", "under_way", "ticket", "part_before")

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
        self.ticket: Ticket | None = None
        self.usual = 0.0  # samples in this worker's last exchange
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
            self.ticket = (yield Start(self.under_way)) if self.under_way else None
            if self.done is None:
                self.done = yield self.train(self.x, self.scheme.h // self.scheme.fragments)
            if self.ticket is not None:
                self.receive((yield Wait(self.ticket)))
            self.hand_over()

    def last_exchange(self, *, soon: bool = False) -> Generator[Effect, Any, None]:
        """Waits for the exchange under way, and exchanges the other fragments, in rounds without local steps."""
        if self.ticket is not None:
            self.receive((yield Wait(self.ticket)))
        for _ in () if soon and not self.usual else self.parts[1:]:
            self.done = Trained(self.x, 0, 0.0)
            self.hand_over()
            assert self.under_way is not None
            self.receive((yield self.under_way))

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
        self.under_way = self.ticket = None
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
        self.usual = samples or self.usual
        self.under_way = self.mean(delta * -1.0, self.usual, series=self.round % len(self.parts))
        if self.is_sound(self.done.x):
            part = min(1.0, samples / (self.together or samples * len(self.workers))) if samples else 0.0
            self.estimate(p, delta * part)
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
